// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <concepts>

namespace verbspp {

/// An object for which an event loop of the program can wait: a channel, an inbox, a hub, its table
/// of clients, a group, a service of calls, an acceptor, a session, or an object of the connection
/// manager.
///
/// A round of a loop has three steps:
///
/// 1. `request_notification()`. If it returns true, there may be work already: go to step 3.
/// 2. Sleep until `file_descriptor()` is readable, or until `deadline()`.
/// 3. Let the object work: each of these objects has a `poll()`, which never blocks. It returns
///    what it finds, such as the message of an inbox, or whether a session is done. Then start
///    again at step 1.
///
/// No event is lost if, between step 1 and the sleep, only `file_descriptor`, `events` (see below)
/// and `deadline` are called on the object. The descriptor works with poll, select, and
/// level-triggered epoll and io_uring, and stays the same as long as the object exists. It may
/// become readable even though there is no work. Read the deadline after the first step; it is the
/// maximum time point if the object does not need to be called at a certain time.
///
/// A class of the program is an event source, too, if it has the functions of the first two steps:
/// for example, a wrapper of a descriptor.
///
/// Step 2 is different for an `exchange_session`: sleep until its descriptor is ready for the
/// events that `events()` returns, because the session may also have to wait until it can write.
template <class Source>
concept EventSource = requires(Source& source, const Source& unchanged) {
  { unchanged.file_descriptor() } noexcept -> std::same_as<int>;
  { source.request_notification() } noexcept -> std::same_as<result<bool>>;
  { unchanged.deadline() } noexcept -> std::same_as<wait_limit::time_point>;
};

}  // namespace verbspp
