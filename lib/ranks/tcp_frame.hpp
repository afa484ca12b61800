// SPDX-License-Identifier: Apache-2.0
/// \file
/// The protocol that ranks and their meeting point use: frames, each of which consists of an
/// 11-byte header, a key and a value.
#pragma once

#include "base/bytes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The types of frames. The comments give the meaning of the number, the key and the value in each
/// type of frame.
enum class tcp_frame_type : std::uint8_t {
  hello = 1,     ///< number: rank; key: the world's name; value: magic, version, size
  welcome = 2,   ///< number: the rank
  refused = 3,   ///< number: the reason
  put = 4,       ///< key and value: the arguments of `tcp_bootstrap::put`
  fence = 5,     ///< empty
  released = 6,  ///< number: the fence that all ranks have reached
  get = 7,       ///< number: the rank; key: the key of the value
  value = 8,     ///< number and key: those of the request; value: the value
  no_value = 9,  ///< number and key: those of the request
  who = 10,      ///< empty: asks which ranks are missing at this rank's fence
  missing = 11,  ///< number: the first missing rank; value: the number of missing ranks
  left = 12,     ///< number: a rank that left before this rank's fence
};

enum class tcp_refusal : std::uint32_t {
  no_rank,
  doubled,
  other_size,
  other_world,
  other_version,
  too_slow,
};

inline constexpr std::uint32_t tcp_magic = 0x76787277;
inline constexpr std::uint32_t tcp_version = 1;
inline constexpr std::size_t longest_tcp_key = 64;
inline constexpr std::size_t largest_tcp_value = 65'536;
inline constexpr std::size_t tcp_header = 11;
inline constexpr std::size_t largest_tcp_hello = tcp_header + longest_tcp_key + 12;

inline void append_number(std::vector<std::byte>& to, std::uint64_t number, unsigned size) {
  to.resize(to.size() + size);
  put_number(to, to.size() - size, number, size);
}

struct tcp_frame {
  tcp_frame_type type{};
  std::uint32_t number = 0;
  std::string key{};
  std::vector<std::byte> value{};
};

inline void append_frame(std::vector<std::byte>& to, tcp_frame_type type, std::uint32_t number,
                         std::string_view key, std::span<const std::byte> value) {
  append_number(to, static_cast<std::uint8_t>(type), 1);
  append_number(to, number, 4);
  append_number(to, key.size(), 2);
  append_number(to, value.size(), 4);
  const auto bytes = std::as_bytes(std::span(key));
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.insert(to.end(), value.begin(), value.end());
}

/// Splits a stream of bytes into frames.
class tcp_frames {
 public:
  void add(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// The number of added bytes that `next` has not returned in a frame yet.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - at_; }
  /// True if the next bytes cannot be a frame.
  [[nodiscard]] bool is_wrong() const noexcept {
    const auto rest = this->rest();
    if (rest.empty()) return false;
    const auto type = std::to_integer<unsigned>(rest[0]);
    if (type < 1 || type > 12) return true;
    return rest.size() >= tcp_header &&
           (number_at(rest, 5, 2) > longest_tcp_key || number_at(rest, 7, 4) > largest_tcp_value);
  }
  [[nodiscard]] std::optional<tcp_frame> next() {
    const auto rest = this->rest();
    if (rest.size() < tcp_header || is_wrong()) return std::nullopt;
    const std::size_t key = number_at(rest, 5, 2);
    const std::size_t value = number_at(rest, 7, 4);
    if (rest.size() < tcp_header + key + value) return std::nullopt;
    tcp_frame frame{.type = static_cast<tcp_frame_type>(rest[0]), .number = number_at(rest, 1, 4)};
    frame.key.assign(reinterpret_cast<const char*>(rest.data()) + tcp_header, key);
    const auto bytes = rest.subspan(tcp_header + key, value);
    frame.value.assign(bytes.begin(), bytes.end());
    at_ += tcp_header + key + value;
    if (at_ == bytes_.size() || at_ > largest_tcp_value) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at_));
      at_ = 0;
    }
    return frame;
  }

 private:
  [[nodiscard]] std::span<const std::byte> rest() const noexcept {
    return std::span(bytes_).subspan(at_);
  }
  std::vector<std::byte> bytes_{};
  std::size_t at_ = 0;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
