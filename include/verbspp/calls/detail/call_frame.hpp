// SPDX-License-Identifier: Apache-2.0
/// \file
/// The header of the messages of calls; docs/calls.md describes its bytes.
#pragma once

#include <verbspp/pool/message.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace verbspp::detail {

enum class call_frame_kind : std::uint8_t {
  call = 1,
  answer = 2,
  refusal = 3,       ///< the call has failed; the body has the kind of the error, and a text
  lending_call = 4,  ///< a call that lends memory, whose description precedes the request
  lane_request = 5,  ///< asks the service to connect its end of a lane
};

/// The number that takes the place of a method's number in messages that compare the methods of
/// both ends, or that ask for a lane.
inline constexpr std::uint16_t comparing_methods = 0;

/// Converts a value from this machine's byte order to the byte order of the frames, which is
/// little-endian, or back.
template <class Integer>
[[nodiscard]] constexpr Integer in_frame_order(Integer value) noexcept {
  if constexpr (std::endian::native == std::endian::little) return value;
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(Integer)>>(value);
  for (std::size_t i = 0; i < bytes.size() / 2; ++i)
    std::swap(bytes[i], bytes[bytes.size() - 1 - i]);
  return std::bit_cast<Integer>(bytes);
}

template <class Integer>
void put_in_frame(std::byte* into, Integer value) noexcept {
  value = in_frame_order(value);
  std::memcpy(into, &value, sizeof value);
}
template <class Integer>
[[nodiscard]] Integer get_from_frame(const std::byte* from) noexcept {
  Integer value{};
  std::memcpy(&value, from, sizeof value);
  return in_frame_order(value);
}

/// True for the kinds of messages that a caller sends, and for higher numbers, which have no
/// meaning.
[[nodiscard]] constexpr bool is_call(call_frame_kind kind) noexcept {
  return kind == call_frame_kind::call || kind >= call_frame_kind::lending_call;
}

/// The header of each message of a call.
struct call_header {
  static constexpr std::size_t size = 16;
  static constexpr std::uint8_t protocol_version = 2;
  /// Added to the kind of an answer or a refusal: the lane of this call can no longer be used.
  static constexpr std::byte lane_failed{0x80};
  /// Added to the kind of an answer or a refusal: the body begins with bytes that the service has
  /// written to lent memory.
  static constexpr std::byte has_written{0x40};
  static constexpr std::byte all_flags = lane_failed | has_written;

  call_frame_kind kind{};
  std::byte flags{};
  std::uint16_t method = 0;
  /// The number that the caller has assigned to the call. The answer has the same number.
  std::uint32_t number = 0;
  std::uint32_t length = 0;  ///< the number of bytes that follow
  /// In answers and refusals: the total number of calls that the caller may send on this
  /// connection, counted from the first call, modulo 2^32.
  std::uint32_t credits = 0;

  /// The answer and the refusal of a call begin with 8 bytes that differ from call to call, and
  /// that are the same in both, except for the bits in `key_ignores`. The key of a call consists of
  /// these bytes.
  [[nodiscard]] static constexpr std::uint64_t key(std::uint16_t method,
                                                   std::uint32_t number) noexcept {
    return start(static_cast<std::uint64_t>(call_frame_kind::answer), method, number);
  }
  [[nodiscard]] static constexpr std::uint16_t method_of(std::uint64_t key) noexcept {
    return static_cast<std::uint16_t>(key >> 16);
  }
  [[nodiscard]] static constexpr std::uint32_t number_of(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>(key >> 32);
  }
  /// The difference between the keys of two calls of the same method, if the numbers of the calls
  /// differ by `numbers`.
  [[nodiscard]] static constexpr std::uint64_t key_distance(std::uint32_t numbers) noexcept {
    return std::uint64_t{numbers} << 32;
  }
  /// True if the header belongs to an answer or a refusal of the call with this key.
  [[nodiscard]] static bool has_key(const std::byte* header, std::uint64_t key) noexcept {
    return (get_from_frame<std::uint64_t>(header) & ~key_ignores) == key;
  }

  void encode(std::byte* into) const noexcept {
    put_in_frame(into, start(static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(flags),
                             method, number));
    put_in_frame(into + 8, std::uint64_t{credits} << 32 | length);
  }
  /// Returns the header, or nothing if the bytes are not a message of this protocol.
  [[nodiscard]] static std::optional<call_header> decode(
      std::span<const std::byte> message) noexcept {
    if (!is_from_caller(message) && !is_from_service(message)) return std::nullopt;
    const std::byte* const header = message.data();
    return call_header{.kind = kind_in(header),
                       .flags = header[0] & all_flags,
                       .method = method_in(header),
                       .number = number_in(header),
                       .length = static_cast<std::uint32_t>(message.size() - size),
                       .credits = credits_in(header)};
  }
  /// True for messages of this protocol that a caller sends.
  [[nodiscard]] static bool is_from_caller(std::span<const std::byte> message) noexcept {
    if (!is_framed(message) || !has_version(message.data())) return false;
    const auto kind = static_cast<call_frame_kind>(message[0]);  // calls have no flags
    return is_call(kind) && kind <= call_frame_kind::lane_request;
  }
  /// True for messages of this protocol that a service sends.
  [[nodiscard]] static bool is_from_service(std::span<const std::byte> message) noexcept {
    if (!is_framed(message) || !has_version(message.data())) return false;
    const call_frame_kind kind = kind_in(message.data());
    return kind == call_frame_kind::answer || kind == call_frame_kind::refusal;
  }

  /// Turns the encoded header of a call into the header of its answer.
  static void set_kind(std::byte* header, call_frame_kind kind, std::uint32_t length,
                       std::byte flags) noexcept {
    header[0] = static_cast<std::byte>(kind) | flags;
    put_in_frame(header + 8, length);
  }
  [[nodiscard]] static call_frame_kind kind_in(const std::byte* header) noexcept {
    return static_cast<call_frame_kind>(header[0] & ~all_flags);
  }
  [[nodiscard]] static std::uint16_t method_in(const std::byte* header) noexcept {
    return get_from_frame<std::uint16_t>(header + 2);
  }
  [[nodiscard]] static std::uint32_t number_in(const std::byte* header) noexcept {
    return get_from_frame<std::uint32_t>(header + 4);
  }
  [[nodiscard]] static std::uint32_t credits_in(const std::byte* header) noexcept {
    return get_from_frame<std::uint32_t>(header + 12);
  }
  static void set_credits(std::byte* header, std::uint32_t credits) noexcept {
    put_in_frame(header + 12, credits);
  }

  /// True if the message is as long as its header states.
  [[nodiscard]] static bool is_framed(std::span<const std::byte> message) noexcept {
    return message.size() >= size &&
           get_from_frame<std::uint32_t>(&message[8]) == message.size() - size;
  }

 private:
  /// The bits in which the kinds of an answer and a refusal differ, and the bits of the flags.
  static constexpr std::uint64_t key_ignores =
      (static_cast<std::uint64_t>(call_frame_kind::answer) ^
       static_cast<std::uint64_t>(call_frame_kind::refusal)) |
      static_cast<std::uint64_t>(all_flags);

  /// The first 8 bytes of a header.
  [[nodiscard]] static constexpr std::uint64_t start(std::uint64_t kind_and_flags,
                                                     std::uint16_t method,
                                                     std::uint32_t number) noexcept {
    return std::uint64_t{number} << 32 | std::uint64_t{method} << 16 |
           std::uint64_t{protocol_version} << 8 | kind_and_flags;
  }
  [[nodiscard]] static bool has_version(const std::byte* header) noexcept {
    return header[1] == std::byte{protocol_version};
  }
};

/// The bytes after the header of a message.
[[nodiscard]] inline std::span<std::byte> body_of(message& of) noexcept {
  return of.bytes().subspan(call_header::size);
}
[[nodiscard]] inline std::span<const std::byte> body_of(const message& of) noexcept {
  return of.bytes().subspan(call_header::size);
}

}  // namespace verbspp::detail
