// SPDX-License-Identifier: Apache-2.0
/// \file
/// Everything that programs with coroutines need: an event loop, and the calls that a coroutine of
/// any type can await. Channels, handles of requests, inboxes, leases and asynchronous scopes have
/// such calls. `<verbspp/channel.hpp>` does not define the objects that these calls return, so
/// programs without coroutines do not need `<coroutine>`.
#pragma once

#include <verbspp/async/async_scope.hpp>
#include <verbspp/async/detail/awaited_lease.hpp>
#include <verbspp/async/detail/awaited_message.hpp>
#include <verbspp/async/detail/awaited_revocation.hpp>
#include <verbspp/async/detail/awaited_work.hpp>
#include <verbspp/base/event_loop.hpp>
#include <verbspp/channel.hpp>
