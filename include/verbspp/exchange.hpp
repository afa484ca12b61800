// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a socket to a connected channel or queue pair: endpoints, and whatever else both ends have
/// to know, exchanged so that neither believes in a connection that the other does not have.
#pragma once

#include <verbspp/channel.hpp>
#include <verbspp/exchange/acceptor.hpp>
#include <verbspp/exchange/acceptor_options.hpp>
#include <verbspp/exchange/bounded_text.hpp>
#include <verbspp/exchange/exchange.hpp>
#include <verbspp/exchange/exchange_options.hpp>
#include <verbspp/exchange/exchanged_value.hpp>
#include <verbspp/exchange/meet.hpp>
#include <verbspp/exchange/tcp.hpp>
