// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes that reach a limit. They check that the error reports the limit.
namespace limits_of_host {

/// Occupies all slots for processes, and opens the device. Succeeds if the error reports the limit.
int latecomer();
/// Opens the device while no thread can be started. Succeeds if the error reports this.
int without_threads();
/// Connects to a peer whose slot belongs to a process with another version of softverbs. Succeeds
/// if the error reports this.
int seeker();

}  // namespace limits_of_host
