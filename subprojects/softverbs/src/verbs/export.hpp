// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the few functions that programs may see; everything else is hidden, so
/// that no internal name can collide with one of the program's.
#define SOFTVERBS_EXPORT extern "C" __attribute__((visibility("default")))
