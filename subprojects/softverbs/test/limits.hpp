// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes that have no more of something.
namespace limits_of_host {

/// Where all places for processes are taken; succeeds if that is what is said.
int latecomer();
/// Where no thread can be started.
int without_threads();

}  // namespace limits_of_host
