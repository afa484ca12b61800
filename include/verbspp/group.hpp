// SPDX-License-Identifier: Apache-2.0
/// \file
/// Groups: several channels as one object, with one completion queue, and operations on several
/// peers.
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
