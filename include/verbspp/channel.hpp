// SPDX-License-Identifier: Apache-2.0
/// \file
/// Channels, with their hubs, inboxes, message pools, leases and scopes. A channel connects to a
/// peer, and guards the memory that its requests use.
#pragma once

#include <verbspp/async/callback.hpp>
#include <verbspp/channel/async_operations.hpp>
#include <verbspp/channel/blocking_operations.hpp>
#include <verbspp/channel/builder.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/hub_clients.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/channel/scope_error.hpp>
#include <verbspp/core/channel_failure.hpp>
#include <verbspp/core/lease_by.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/verbspp.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/wait/waiting.hpp>
