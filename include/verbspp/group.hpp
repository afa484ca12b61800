// SPDX-License-Identifier: Apache-2.0
/// \file
/// Groups, which combine several channels in one object that has one completion queue, and that
/// offers operations on several peers.
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
