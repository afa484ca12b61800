// SPDX-License-Identifier: Apache-2.0
/// \file
/// Worlds, which consist of numbered processes that can all communicate with each other. They offer
/// barriers and small collective operations. This is part of a separate library, `verbspp-ranks`.
#pragma once

#include <verbspp/group.hpp>
#include <verbspp/ranks/barrier_kind.hpp>
#include <verbspp/ranks/barrier_session.hpp>
#include <verbspp/ranks/bootstrap.hpp>
#include <verbspp/ranks/find_bootstrap.hpp>
#include <verbspp/ranks/host_list.hpp>
#include <verbspp/ranks/hosts_bootstrap.hpp>
#include <verbspp/ranks/local_bootstrap.hpp>
#include <verbspp/ranks/pmix_bootstrap.hpp>
#include <verbspp/ranks/tcp_bootstrap.hpp>
#include <verbspp/ranks/world.hpp>
