// SPDX-License-Identifier: Apache-2.0
/// \file
/// All of verbspp.
#pragma once

#include <verbspp/config.hpp>
#include <verbspp/error.hpp>
#include <verbspp/flags.hpp>
#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/posting.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/qp/status.hpp>
#include <verbspp/qp/transition.hpp>
#include <verbspp/verbs/access.hpp>
#include <verbspp/verbs/address_handle.hpp>
#include <verbspp/verbs/async_event.hpp>
#include <verbspp/verbs/completion_channel.hpp>
#include <verbspp/verbs/completion_queue.hpp>
#include <verbspp/verbs/context.hpp>
#include <verbspp/verbs/datagram.hpp>
#include <verbspp/verbs/device.hpp>
#include <verbspp/verbs/gid.hpp>
#include <verbspp/verbs/memory_region.hpp>
#include <verbspp/verbs/path.hpp>
#include <verbspp/verbs/port.hpp>
#include <verbspp/verbs/protection_domain.hpp>
#include <verbspp/verbs/queue_pair_number.hpp>
#include <verbspp/verbs/remote_memory.hpp>
#include <verbspp/verbs/remote_word.hpp>
#include <verbspp/verbs/scatter_gather.hpp>
#include <verbspp/verbs/shared_receive_queue.hpp>
#include <verbspp/verbs/transport_error.hpp>
#include <verbspp/verbs/work_completion.hpp>
#include <verbspp/verbs/work_request.hpp>
