// SPDX-License-Identifier: Apache-2.0

// The connection manager, and its private data.

#include <verbspp/cm.hpp>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>

using namespace verbspp;

// case: cm_end_of_unreliable_connection
// expect: a connection manager can connect only a prepared_channel, a prepared RC queue pair, or a
// expect: variable of type channel that is prepared or renewed
constexpr auto type = BAD(transport::uc) GOOD(transport::rc);
bool meet(cm_route route, prepared_queue_pair<type> prepared) {
  return std::move(route).connect(std::move(prepared), std::chrono::seconds(1)).has_value();
}

// case: private_data_not_trivial
// expect: has to be trivially copyable
cm_request_data greeting() { return BAD(std::string("hello")) GOOD(std::array{'h', 'i'}); }

// case: private_data_of_a_view
// expect: private data is sent as the bytes of the value itself, which cannot be a pointer, a view
cm_request_data greeting(std::string_view text, [[maybe_unused]] std::span<const char> characters) {
#if MUST_FAIL == 1
  return text;
#elif MUST_FAIL == 2
  return characters;
#elif MUST_FAIL == 3
  return text.data();
#else
  return cm_request_data::from(std::as_bytes(std::span(text))).value();
#endif
}

// case: private_data_too_long
// expect: the connection manager cannot carry this much private data: at most 56 bytes in a
// expect: connection request
cm_request_data greeting() { return std::array<char, BAD(57) GOOD(56)>{}; }
