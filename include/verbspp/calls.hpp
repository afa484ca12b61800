// SPDX-License-Identifier: Apache-2.0
/// \file
/// Calls: requests and answers between a caller and a service, over a channel. This is part of a
/// separate library, `verbspp-calls`.
#pragma once

#include <verbspp/calls/caller.hpp>
#include <verbspp/calls/caller_options.hpp>
#include <verbspp/calls/detail/awaited_access.hpp>
#include <verbspp/calls/detail/awaited_call.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/calls/service.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/channel.hpp>
