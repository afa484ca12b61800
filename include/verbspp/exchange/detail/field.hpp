// SPDX-License-Identifier: Apache-2.0
/// \file
/// The encoding of the values in an exchange: a description that is sent to the peer, a writer, and
/// a reader.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace verbspp::detail {

/// The kind of a field. The numbers are part of the protocol.
enum class field_kind : std::uint8_t {
  unsigned_integer = 1,
  signed_integer = 2,
  floating_point = 3,
  truth = 4,
  structure_little_endian = 5,
  structure_big_endian = 6,
  text = 7,
  bytes = 8,
  remote_memory = 9,
  remote_object = 10,
  remote_array = 11,
  remote_word = 12,
};

/// The maximum length of a structure's name, and the maximum number of fields that one side sends.
inline constexpr std::size_t longest_field_name = 31;
inline constexpr std::size_t most_fields = 16;

/// The properties of a field that both ends have to agree on.
struct field_description {
  field_kind kind{};
  access_flags rights{};  ///< the rights to remote memory
  /// The size of the value or of one element, in bytes. This is the maximum length for text and
  /// bytes, and 0 for `remote_memory`.
  std::uint32_t size = 0;
  /// The name of a structure. In a description that was received, it refers to the received bytes.
  std::string_view name{};

  friend constexpr bool operator==(const field_description&,
                                   const field_description&) noexcept = default;
};

/// Writes values one after another, with numbers in big-endian order. It does not check the size of
/// the buffer, because the caller has computed that size from the types of the fields.
class field_writer {
 public:
  explicit constexpr field_writer(std::span<std::byte> to) noexcept : to_(to) {}

  constexpr void number(std::uint64_t value, std::size_t size) noexcept {
    for (std::size_t i = size; i-- > 0;) to_[at_++] = static_cast<std::byte>(value >> 8 * i & 0xff);
  }
  void bytes(std::span<const std::byte> from) noexcept {
    if (!from.empty()) std::memcpy(to_.data() + at_, from.data(), from.size());
    at_ += from.size();
  }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return at_; }

 private:
  std::span<std::byte> to_;
  std::size_t at_ = 0;
};

/// Reads the output of a `field_writer`, and checks all lengths, because a peer may send any bytes.
class field_reader {
 public:
  explicit constexpr field_reader(std::span<const std::byte> from) noexcept : rest_(from) {}

  [[nodiscard]] constexpr result<std::uint64_t> number(std::size_t size) noexcept {
    VERBSPP_TRY(from, bytes(size));
    std::uint64_t value = 0;
    for (const std::byte byte : from) value = value << 8 | std::to_integer<std::uint64_t>(byte);
    return value;
  }
  [[nodiscard]] constexpr result<std::span<const std::byte>> bytes(std::size_t size) noexcept {
    if (size > rest_.size())
      return error::above_limit("exchange: read a frame", "bytes of the next field", size,
                                rest_.size(),
                                "the data ends before its last field is complete: it is damaged, "
                                "or the peer sent values of other types, or uses another "
                                "protocol");
    const std::span<const std::byte> taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  /// Fails if bytes are left after the last field.
  [[nodiscard]] constexpr result<void> end() const noexcept {
    if (rest_.empty()) return success();
    return error::above_limit("exchange: read a frame", "bytes after the last field", rest_.size(),
                              0,
                              "the data is longer than its fields: it is damaged, or the peer sent "
                              "values of other types, or uses another protocol");
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace verbspp::detail
