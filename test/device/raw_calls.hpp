// SPDX-License-Identifier: Apache-2.0
/// \file
/// One end of a connection between a caller and a service. It can send any bytes as a message, and
/// receives the other end's messages.
#pragma once

#include "calls.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace verbspp::test {

using detail::call_frame_kind;
using detail::call_header;

/// The bytes of a message with this header and body. If the length in the header is 0, it is set to
/// the length of the body.
[[nodiscard]] inline std::vector<std::byte> frame(call_header header,
                                                  std::span<const std::byte> body = {}) {
  if (header.length == 0) header.length = static_cast<std::uint32_t>(body.size());
  std::vector<std::byte> made(call_header::size + body.size());
  header.encode(made.data());
  std::ranges::copy(body, made.begin() + call_header::size);
  return made;
}
template <class Value>
[[nodiscard]] std::span<const std::byte> bytes_in(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

class raw_end {
 public:
  explicit raw_end(const testbed& bed)
      : pool_(must(message_pool::create(bed.domain, 64, 2048))),
        prepared_(must(bed.domain.build_channel().build())),
        arrived_(must(inbox::open(*prepared_, pool_))) {}

  [[nodiscard]] prepared_channel take_prepared() { return *std::exchange(prepared_, {}); }
  void connect(channel link) { link_ = std::move(link); }
  [[nodiscard]] channel& link() { return link_; }
  /// Sends a message. \returns false if that fails
  bool send(std::span<const std::byte> bytes) {
    message next = must(pool_.take());
    must(next.assign(bytes));
    return link_.send(std::move(next), patience).has_value();
  }
  [[nodiscard]] message receive() { return must(arrived_.wait(patience)); }
  /// Receives the header of the next message.
  [[nodiscard]] call_header receive_header() {
    const message next = receive();
    return call_header::decode(next.bytes()).value();
  }

 private:
  message_pool pool_;
  std::optional<prepared_channel> prepared_;
  inbox arrived_;
  channel link_{};
};

}  // namespace verbspp::test
