// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes that reach a limit or find an incompatible peer. They check that the error says so.
namespace limits_of_host {

/// Occupies all slots for processes, and then opens the device. Succeeds if the error names the
/// limit.
int latecomer();
/// Opens the device although no thread can be started. Succeeds if the error says so.
int without_threads();
/// Connects to a slot that seems to belong to a process with a different version of softverbs.
/// Succeeds if the error says so.
int seeker();

}  // namespace limits_of_host
