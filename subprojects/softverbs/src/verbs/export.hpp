// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the functions that programs may see. All other functions are hidden, so no internal name
/// can collide with a name in the program.
#define SOFTVERBS_EXPORT extern "C" __attribute__((visibility("default")))
