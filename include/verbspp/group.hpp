// SPDX-License-Identifier: Apache-2.0
/// \file
/// Groups. A group combines several channels that share one completion queue, and offers operations
/// for several peers.
#pragma once

#include <verbspp/channel.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_operations.hpp>
#include <verbspp/group/group_pending.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/group_scope.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/group/prepared_group.hpp>
