// SPDX-License-Identifier: Apache-2.0
/// \file
/// The awaited calls of channels, inboxes and leases, for coroutines of any type. Without this
/// header, these calls are only declared, so programs without coroutines do not need `<coroutine>`.
#pragma once

#include <verbspp/base/event_loop.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/channel/async_scope.hpp>
#include <verbspp/channel/detail/awaited_message.hpp>
#include <verbspp/channel/detail/awaited_revocation.hpp>
#include <verbspp/channel/detail/awaited_work.hpp>
