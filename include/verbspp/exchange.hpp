// SPDX-License-Identifier: Apache-2.0
/// \file
/// Connects channels and queue pairs over a socket, by exchanging their endpoints and any other
/// data that both ends need. An exchange succeeds at one end only after the other end is ready,
/// too.
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
