// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a socket to a connected channel or queue pair: exchanges endpoints, and any other data that
/// both ends need, so that neither end takes itself for connected if the other does not.
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
