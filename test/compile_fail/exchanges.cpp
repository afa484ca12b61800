// SPDX-License-Identifier: Apache-2.0

// Values that an exchange cannot send.

#include <verbspp/exchange/exchange.hpp>

#include <chrono>
#include <cstdint>
#include <tuple>

using namespace verbspp;

// case: exchanged_integer_of_more_than_8_bytes
// expect: an exchange can't send this type: it can send integers, enumerations, bool
// flags: -std=gnu++20
__extension__ using number = BAD(__int128) GOOD(std::int64_t);
auto send(int socket, channel& link, number mine) {
  return exchange<std::tuple<>>(socket, link, mine, std::chrono::seconds(1));
}
