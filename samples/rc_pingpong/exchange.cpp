// SPDX-License-Identifier: Apache-2.0
#include "exchange.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <string_view>

namespace rc_pingpong {

using verbspp::endpoint;
using verbspp::error;
using verbspp::error_kind;
using verbspp::result;
using verbspp::success;

namespace {

// The limit of each wait for the peer during the exchange. The peer's device may take some time to
// resolve the path.
constexpr std::chrono::seconds exchange_limit{5};

constexpr std::byte ready{'R'};
constexpr std::byte goodbye{'B'};

// The endpoint format of ibv_rc_pingpong: LID, queue pair number, PSN and GID in hexadecimal
// digits, and a null character at the end.
constexpr std::string_view ibv_example = "0000:000000:000000:00000000000000000000000000000000";
constexpr std::size_t lid_at = 0, number_at = 5, psn_at = 12, gid_at = 19;
using ibv_text = std::array<char, ibv_example.size() + 1>;
constexpr std::array<char, 5> ibv_done{'d', 'o', 'n', 'e', '\0'};

ibv_text to_ibv_text(const endpoint& end, bool with_gid) {
  ibv_text text{};
  std::snprintf(text.data(), text.size(), "%04x:%06x:%06x:", unsigned{end.lid.value()},
                end.number.value(), end.send_psn.value());
  for (std::size_t i = 0; i < end.address.bytes.size(); ++i)
    std::snprintf(text.data() + gid_at + 2 * i, 3, "%02x",
                  with_gid ? unsigned{end.address.bytes[i]} : 0U);
  return text;
}

error not_ibv_text() noexcept {
  return {error_kind::invalid_input, "decode endpoint of ibv_rc_pingpong",
          "this is not LID:QPN:PSN:GID in hex; give --ibv-exchange at both ends, or at neither"};
}

template <class Number>
result<Number> from_hex(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (failure != std::errc{} || end != digits.data() + digits.size()) return not_ibv_text();
  return Number::from(value);
}

struct byte_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 255;
  static constexpr const char* name = "byte of the GID";
};

/// Decodes the peer's endpoint. The text contains only the LID, the queue pair number, the PSN and
/// the GID. Read depths of 1 are assumed; all other values are assumed to be those of this end.
result<endpoint> from_ibv_text(const ibv_text& text, const endpoint& local) {
  const std::string_view digits(text.data(), ibv_example.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i == ibv_example.size() ? text[i] != '\0' : (text[i] == ':') != (ibv_example[i] == ':'))
      return not_ibv_text();
  endpoint remote = local;
  VERBSPP_TRY(lid, from_hex<verbspp::lid>(digits.substr(lid_at, 4)));
  VERBSPP_TRY(number, from_hex<verbspp::queue_pair_number>(digits.substr(number_at, 6)));
  VERBSPP_TRY(psn, from_hex<verbspp::packet_sequence_number>(digits.substr(psn_at, 6)));
  for (std::size_t i = 0; i < remote.address.bytes.size(); ++i) {
    VERBSPP_TRY(byte, from_hex<verbspp::bounded<byte_traits>>(digits.substr(gid_at + 2 * i, 2)));
    remote.address.bytes[i] = byte.value();
  }
  if (remote.address.is_zero()) {
    if (local.link_layer == verbspp::link_layer::ethernet)
      return error(error_kind::invalid_input, "decode endpoint of ibv_rc_pingpong",
                   "it has no GID, which Ethernet (RoCE) needs: give the peer --gid-idx");
    // An InfiniBand port may send no GID, because its LID is sufficient within the subnet.
    std::copy_n(local.address.bytes.begin(), 8, remote.address.bytes.begin());
  }
  remote.lid = lid;
  remote.number = number;
  remote.send_psn = psn;
  remote.reads_as_initiator = remote.reads_as_target = 1;
  return remote;
}

}  // namespace

result<void> exchange::receive(std::span<std::byte> bytes, std::chrono::nanoseconds limit) const {
  const auto received = peer_.receive(bytes, limit);
  if (received.has_error() && received.error() == error_kind::timed_out)
    return received.error().as(
        error_kind::timed_out,
        "the peer is silent, or sent less than expected: it hangs, or is not "
        "a 02_rc_pingpong with the same --ibv-exchange");
  return received;
}

result<void> exchange::send_endpoint(const endpoint& local) const {
  if (!given_.ibv_exchange) return peer_.send(local.encode());
  // On InfiniBand, ibv_rc_pingpong adds a global header to packets if the text contains a GID.
  const bool with_gid =
      local.link_layer == verbspp::link_layer::ethernet || given_.gid_index.has_value();
  const ibv_text text = to_ibv_text(local, with_gid);
  return peer_.send(std::as_bytes(std::span(text)));
}

result<endpoint> exchange::receive_endpoint(const endpoint& local) const {
  if (given_.ibv_exchange) {
    ibv_text text{};
    VERBSPP_TRYV(receive(std::as_writable_bytes(std::span(text)), exchange_limit));
    return from_ibv_text(text, local);
  }
  // Endpoints have two formats, and the peer sends at least as many bytes as the shorter one has.
  // These bytes show how many more follow.
  std::array<std::byte, endpoint::encoded_size> bytes{};
  const auto beginning = std::span(bytes).first<endpoint::former_encoded_size>();
  VERBSPP_TRYV(receive(beginning, exchange_limit));
  const auto all = std::span(bytes).first(endpoint::encoded_size_of(beginning));
  VERBSPP_TRYV(receive(all.subspan(beginning.size()), exchange_limit));
  auto decoded = endpoint::decode(all);
  if (decoded.has_error() && bytes[number_at - 1] == std::byte{':'})
    return decoded.error().as(error_kind::mismatch,
                              "the peer may be ibv_rc_pingpong: give --ibv-exchange here");
  return decoded;
}

result<verbspp::connected_queue_pair<verbspp::transport::rc>> exchange::connect(
    verbspp::prepared_queue_pair<verbspp::transport::rc> prepared) {
  // The client of ibv_rc_pingpong may send as soon as it has the server's endpoint, so with that
  // format the server connects before it sends its endpoint. Our own format has a "ready" signal
  // instead, so both ends get both endpoints even if they don't match.
  const bool connect_first = given_.ibv_exchange && !given_.host;
  const endpoint local = prepared.endpoint();
  if (!connect_first) VERBSPP_TRYV(send_endpoint(local));
  VERBSPP_TRY(remote, receive_endpoint(local));
  std::cout << "  remote: " << remote << '\n' << std::flush;
  VERBSPP_TRY(connected, std::move(prepared).handshake(remote));
  if (connect_first) VERBSPP_TRYV(send_endpoint(local));
  VERBSPP_TRYV(meet());
  if (given_.ibv_exchange) peer_.close();
  return connected;
}

result<void> exchange::meet() const {
  if (!given_.ibv_exchange) {
    VERBSPP_TRYV(peer_.send(std::span(&ready, 1)));
    return expect(ready, exchange_limit);
  }
  if (given_.host) return peer_.send(std::as_bytes(std::span(ibv_done)));
  std::array<char, ibv_done.size()> said{};
  VERBSPP_TRYV(receive(std::as_writable_bytes(std::span(said)), exchange_limit));
  if (said != ibv_done)
    return error(error_kind::invalid_input, "wait for the client's \"done\"",
                 "the client sent something else: is it ibv_rc_pingpong?");
  return success();
}

result<void> exchange::expect(std::byte sign, std::chrono::nanoseconds limit) const {
  std::byte said{};
  VERBSPP_TRYV(receive(std::span(&said, 1), limit));
  if (said != sign)
    return error::mismatch(
        "receive over TCP", "byte after the endpoint", std::to_integer<int>(sign),
        std::to_integer<int>(said),
        "the peer is not a 02_rc_pingpong of this version, or has other options");
  return success();
}

result<void> exchange::check_peer() {
  if (!peer_.is_open() || peer_is_done_ || !peer_.has_news()) return success();
  VERBSPP_TRYV(expect(goodbye, given_.patience()));
  peer_is_done_ = true;
  return success();
}

result<void> exchange::finish() {
  if (!peer_.is_open()) return success();
  VERBSPP_TRYV(peer_.send(std::span(&goodbye, 1)));
  if (peer_is_done_) return success();
  return expect(goodbye, given_.patience());
}

}  // namespace rc_pingpong
