// SPDX-License-Identifier: Apache-2.0
/// \file
/// A codec that fails if the test wants it to.
#pragma once

#include "lending.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// The fault of a codec. Without one, it encodes the request as the byte 7.
enum class codec_fault : std::uint8_t {
  none,
  fails,
  returns_too_large,  ///< a size larger than the space for the request
};
struct faulty_bytes {
  codec_fault fault;
};
template <>
struct verbspp::codec<faulty_bytes> {
  static constexpr std::uint32_t size = any_size;
  [[nodiscard]] static result<std::size_t> encode(const faulty_bytes& from,
                                                  std::span<std::byte> into) noexcept {
    if (from.fault == codec_fault::fails)
      return error(error_kind::not_found, "encode", "this codec has failed");
    if (from.fault == codec_fault::returns_too_large) return into.size() + 1;
    into[0] = std::byte{7};
    return std::size_t{1};
  }
  [[nodiscard]] static result<faulty_bytes> decode(std::span<const std::byte> /*from*/) noexcept {
    return faulty_bytes();
  }
};

namespace verbspp::test {

/// The method `fill`, as far as the service can see.
struct faulty_fill_of_any_size : fill {
  using request = faulty_bytes;
};

}  // namespace verbspp::test
