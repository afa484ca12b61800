// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Processes that can't have what they want, and are told why.
namespace limits_of_host {

/// Where all places for processes are taken; succeeds if that is what is said.
int latecomer();
/// Where no thread can be started.
int without_threads();
/// Looks for a peer whose place somebody has who uses another version; succeeds if that is said.
int seeker();

}  // namespace limits_of_host
