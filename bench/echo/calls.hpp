// SPDX-License-Identifier: Apache-2.0
/// \file
/// Calls of 32 bytes compared with the same service over TCP, calls of many clients compared with
/// those of a few, and calls that lend 1 MiB compared with a stream of writes. Also an echo over
/// TCP, with which awaited messages are compared.
#pragma once

#include "side.hpp"

namespace bench {

// Each form measures the time per call, with several calls in flight.
extern const form calls_by_verbspp;
extern const form calls_by_tcp;

// Each form measures the time per call, with 16 or 512 clients that have one call in flight each.
// It fails if a message has waited for a receive.
extern const form calls_of_few;
extern const form calls_of_many;

// Measures the round trip time of `echo_bytes` bytes, with coroutines of Asio.
extern const form echo_by_tcp;

// Each form measures the time per transfer of 1 MiB, with several transfers in flight.
extern const form lending_calls;
extern const form stream_of_writes;

}  // namespace bench
