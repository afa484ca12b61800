// SPDX-License-Identifier: Apache-2.0
/// \file
/// Private data: bytes that a program can attach to the messages of the connection manager.
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/refers_elsewhere.hpp>
#include <verbspp/base/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>

namespace verbspp {

namespace detail {

/// A value that only refers to bytes stored elsewhere: a pointer, a view, or a container. A type
/// with data() and size() is assumed to store its elements elsewhere, unless the number of elements
/// is known at compile time, as for `std::array`.
template <class Value>
concept HasBytesElsewhere = RefersElsewhere<Value> || (requires(const Value& value) {
                              value.data();
                              value.size();
                            } && !requires { std::tuple_size<Value>::value; });

[[nodiscard]] error private_data_too_long(std::size_t size, std::size_t most) noexcept;
[[nodiscard]] error private_data_too_short(std::size_t size, std::size_t wanted) noexcept;

}  // namespace detail

/// A type whose bytes can be sent to the peer: it is trivially copyable, and is not a pointer, a
/// view, a container, or any other type with a unary `*`, such as `std::optional`. A `std::array`
/// is accepted if its element type is. Members of structures are not examined.
template <class Value>
concept TravelsAsBytes = std::is_trivially_copyable_v<Value> && !detail::HasBytesElsewhere<Value>;

template <class Value, std::size_t Most>
concept FitsPrivateData = TravelsAsBytes<Value> && sizeof(Value) <= Most;

/// Up to `Most` bytes of private data in a message of the connection manager, set from a value or
/// from a sequence of bytes.
///
///     // If the byte orders of the hosts may differ, store the numbers as big-endian.
///     struct greeting { std::uint32_t version, tenant; };
///     VERBSPP_TRY(connected, std::move(route).connect(std::move(prepared), 5s,
///                                                     {.data = greeting{1, 7}}));
///     const auto said = request.data().as<greeting>();  // at the other end
///
/// The peer may receive more bytes than were set, because InfiniBand and RoCE pad the data with
/// zeros to `Most` bytes. A value is therefore read from the first bytes, and data of variable
/// length has to include its length.
///
/// A plain value.
template <std::size_t Most>
class private_data {
  static_assert(Most < 256);

 public:
  static constexpr std::size_t max_size = Most;

  constexpr private_data() noexcept = default;
  template <class Value>
    requires(!std::is_same_v<Value, private_data>) && FitsPrivateData<Value, Most>
  private_data(const Value& value) noexcept : size_(sizeof(Value)) {
    std::memcpy(bytes_.data(), &value, sizeof(Value));
  }
  template <class Value>
  private_data(const Value&) VERBSPP_DETAIL_REFUSED(
      !std::is_trivially_copyable_v<Value>,
      "private data is sent as the bytes of a value, which has to be trivially copyable");
  template <class Value>
  private_data(const Value&) VERBSPP_DETAIL_REFUSED(
      std::is_trivially_copyable_v<Value>&& detail::HasBytesElsewhere<Value>,
      "private data is sent as the bytes of the value itself, which cannot be a pointer, a view, a "
      "container or an optional: for bytes that are stored elsewhere, use from(), as in "
      "cm_request_data::from(bytes).value(); for an optional, pass the value that it holds");
  template <class Value>
  private_data(const Value&)
      VERBSPP_DETAIL_REFUSED((TravelsAsBytes<Value> && (sizeof(Value) > Most) &&
                              !std::is_same_v<Value, private_data>),
                             "the connection manager cannot carry this much private data: at most "
                             "56 bytes in a connection request, 196 in an acceptance, 148 in a "
                             "rejection, 180 in the lookup of a datagram service, and 136 in the "
                             "answer to a lookup");
  /// Copies the bytes.
  /// \errors `invalid_input` for more than `Most` bytes
  [[nodiscard]] static result<private_data> from(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() > Most) return detail::private_data_too_long(bytes.size(), Most);
    private_data made;
    if (!bytes.empty()) std::memcpy(made.bytes_.data(), bytes.data(), bytes.size());
    made.size_ = static_cast<std::uint8_t>(bytes.size());
    return made;
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return std::span(bytes_).first(size_);
  }
  [[nodiscard]] bool is_empty() const noexcept { return size_ == 0; }
  /// Returns the value that the first bytes represent.
  /// \errors `mismatch` if there are fewer bytes than the value has, which means that the peer sent
  /// a different value or none
  template <class Value>
    requires FitsPrivateData<Value, Most>
  [[nodiscard]] result<Value> as() const noexcept {
    if (size_ < sizeof(Value)) return detail::private_data_too_short(size_, sizeof(Value));
    std::array<std::byte, sizeof(Value)> front;
    std::memcpy(front.data(), bytes_.data(), sizeof(Value));
    return __builtin_bit_cast(Value, front);
  }

 private:
  std::array<std::byte, Most> bytes_{};
  std::uint8_t size_ = 0;
};

/// The private data of a connection request.
using cm_request_data = private_data<56>;
/// The private data of an acceptance.
using cm_acceptance_data = private_data<196>;
/// The private data of a rejection.
using cm_rejection_data = private_data<148>;
/// The private data that a lookup of a datagram service can carry.
using cm_lookup_data = private_data<180>;
/// The private data that the answer to a lookup can carry.
using cm_answer_data = private_data<136>;

}  // namespace verbspp
