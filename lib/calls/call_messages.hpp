// SPDX-License-Identifier: Apache-2.0
/// \file
/// The bodies of refusals and of the messages that compare methods, and helpers of the caller and
/// the service. docs/calls.md describes the bytes of these bodies.
#pragma once

#include <verbspp/base/detail/words.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/pool/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The maximum size of a list of methods, in bytes. Each end accepts messages of this size before
/// it knows the options of the other end. A list with one method always fits.
inline constexpr std::size_t largest_comparison = 128;

/// The answer to a list of methods: the maximum size of a request that the service accepts, and the
/// maximum size of lent memory whose contents may be sent, both in bytes.
using largest_sizes = std::array<std::uint32_t, 2>;

/// Checks a message size that the program has chosen.
/// \errors `invalid_input` if it is below `largest_comparison` or above 1 GiB
[[nodiscard]] inline result<void> check_message_size(const char* operation,
                                                     std::uint32_t size) noexcept {
  constexpr std::uint32_t largest = 1U << 30;
  if (size >= largest_comparison && size <= largest) return success();
  return error::out_of_range(operation, "message_size", size, "use 128 bytes to 1 GiB");
}

class method_list_writer {
 public:
  /// \param message_size the largest answer that the caller accepts, in bytes
  /// \pre `into` has at least `largest_comparison` bytes
  method_list_writer(std::span<std::byte> into, std::uint32_t message_size) noexcept;
  /// \returns false if the method does not fit
  [[nodiscard]] bool add(const method_description& one) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::span<std::byte> into_;
  std::size_t size_;
  std::uint8_t count_ = 0;
};

/// A method in a list that was received. The name refers to the received bytes.
struct listed_method {
  std::uint16_t number = 0;
  std::uint16_t version = 0;
  std::uint32_t request_size = 0;
  std::uint32_t answer_size = 0;
  access_flags lends{};
  std::string_view name{};
};

class method_list_reader {
 public:
  /// \errors `mismatch` if the peer has the other byte order; `invalid_input` if the bytes are not
  /// a list
  [[nodiscard]] static result<method_list_reader> open(std::span<const std::byte> from) noexcept;
  /// The largest answer that the caller accepts, in bytes.
  [[nodiscard]] std::uint32_t message_size() const noexcept { return message_size_; }
  /// Returns the next method; empty at the end of the list.
  /// \errors `invalid_input` if the bytes are not a list
  [[nodiscard]] result<std::optional<listed_method>> next() noexcept;

 private:
  method_list_reader() noexcept = default;

  std::span<const std::byte> rest_{};
  unsigned count_ = 0;
  std::uint32_t message_size_ = 0;
};

/// The description of the call that requests a lane.
inline constexpr method_description opening_lane{.number = comparing_methods,
                                                 .version = 0,
                                                 .request_size = any_size,
                                                 .answer_size = endpoint::encoded_size,
                                                 .name = "lend memory",
                                                 .lends = {}};

/// Posts a send of the message in a place. There is no handle to this request: the place returns to
/// its pool when the device has released it.
/// \errors those of `channel::post_send`; the place then stays with the caller of this function
[[nodiscard]] VERBSPP_DATA_PATH result<void> post_frame(channel_core& core,
                                                        const kept_memory& place,
                                                        const ibv_sge& frame) noexcept {
  const send_operation operation{.elements = gather_element::from_native(frame)};
  request made;
  VERBSPP_TRYV(core.post(operation, made, {.has_handle = false}));
  core.sends().keep_unheld(made.number, place);
  if (core.watches()) [[unlikely]]
    core.protect(made.number, native_of(operation.elements));
  return success();
}

/// A text that is composed of several texts and numbers, and truncated after `longest_words`
/// characters.
class short_text {
 public:
  template <class... Parts>
  explicit short_text(const Parts&... parts) noexcept {
    (add(parts), ...);
  }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  void add(std::string_view part) noexcept;
  void add(std::uint32_t number) noexcept;

  std::array<char, longest_words> text_{};
  std::size_t size_ = 0;
};

/// Writes a refusal. A text that does not fit is truncated.
/// \returns the number of bytes
[[nodiscard]] std::size_t write_refusal(std::span<std::byte> into, error_kind kind,
                                        std::string_view text) noexcept;
/// Returns the error that a refusal contains.
[[nodiscard]] error read_refusal(std::span<const std::byte> from, const char* operation) noexcept;
/// Adds to a counter that other threads may read or change.
inline void count(std::uint64_t& counter, std::uint64_t added) noexcept {
  __atomic_fetch_add(&counter, added, __ATOMIC_RELAXED);
}
/// The error for a codec that has used the caller while it encoded a request.
[[nodiscard]] inline error codec_has_called(const char* method) noexcept {
  return {error_kind::invalid_input, method,
          "the codec made a call while it was encoding a request: a codec must not use the caller"};
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
