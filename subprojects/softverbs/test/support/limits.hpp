// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes that reach a limit, and get an error that says so.
namespace limits_of_host {

/// All slots for processes are taken. Succeeds if this is reported.
int latecomer();
/// No thread can be started. Succeeds if this is reported.
int without_threads();
/// Looks for a peer whose slot belongs to a process with another version. Succeeds if this is
/// reported.
int seeker();

}  // namespace limits_of_host
