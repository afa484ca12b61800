// SPDX-License-Identifier: Apache-2.0
/// \file
/// The frames of an exchange; docs/exchange.md describes their bytes.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/exchange/detail/field.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

enum class frame_type : std::uint8_t {
  hello = 1,
  proof = 2,
  offer = 3,
  ready = 4,
  done = 5,
  refused = 6,
};

[[nodiscard]] const char* to_string(frame_type type) noexcept;

inline constexpr std::size_t frame_header_size = 8;
inline constexpr std::uint8_t frame_version = 2;

/// The header of each frame.
struct frame_header {
  frame_type type{};
  std::uint32_t length = 0;  ///< the length of the body in bytes

  [[nodiscard]] std::array<std::byte, frame_header_size> encode() const noexcept;
  /// \errors `invalid_input` if the bytes are not a frame of an exchange, `mismatch` if the frame
  /// has a different version
  [[nodiscard]] static result<frame_header> decode(
      std::span<const std::byte, frame_header_size> bytes) noexcept;
};

inline constexpr std::size_t nonce_size = 32;
inline constexpr std::size_t party_size = 16;
inline constexpr std::size_t longest_application = 64;
inline constexpr std::size_t largest_hello =
    nonce_size + 8 + party_size + longest_application + most_fields * (8 + longest_field_name);

/// The first frame, in which a side describes itself. The strings of a decoded frame refer to the
/// received bytes.
struct hello_frame {
  std::array<std::byte, nonce_size> nonce{};
  bool has_secret = false;
  bool is_of_equals = false;
  bool is_accepting = false;
  /// The sender will tie its channel to the socket if the receiver does so, too.
  bool is_tied = false;
  std::array<std::byte, party_size> party{};  ///< the random number of the sender in a meeting
  std::uint32_t version = 0;
  std::string_view application{};
  std::array<field_description, most_fields> fields{};
  std::size_t field_count = 0;

  /// \returns the length of the body
  [[nodiscard]] std::size_t encode(std::span<std::byte, largest_hello> body) const noexcept;
  /// \errors `invalid_input` if the bytes are malformed, or have a field of an unknown type;
  /// `mismatch` if the peer requests a feature that this version does not support
  [[nodiscard]] static result<hello_frame> decode(std::span<const std::byte> body) noexcept;
};

/// An error in the form in which it is sent to the peer.
struct refused_frame {
  static constexpr std::size_t longest_reason = 300;
  static constexpr std::size_t largest = 1 + longest_reason;

  error_kind kind = error_kind::driver;
  std::array<char, longest_reason> reason{};
  std::size_t size = 0;

  [[nodiscard]] static refused_frame of(const error& why) noexcept;
  /// \returns the length of the body
  [[nodiscard]] std::size_t encode(std::span<std::byte, largest> body) const noexcept;
  /// Replaces characters other than printable ASCII with question marks.
  /// \errors `invalid_input` if the body is empty or too long
  [[nodiscard]] static result<refused_frame> decode(std::span<const std::byte> body) noexcept;
  /// Returns the error that the receiver of this frame reports.
  [[nodiscard]] error as_error() const noexcept;
};

/// Checks that the peer sends the values that this end expects.
/// \errors `mismatch`, which describes the first difference
[[nodiscard]] result<void> check_fields(std::span<const field_description> expected,
                                        std::span<const field_description> sent) noexcept;
/// True if the text is valid as an application's name.
[[nodiscard]] bool is_application(std::string_view name) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
