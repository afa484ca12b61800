// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Whatever answer a service sends to a call that has sent its lent memory,
/// `take_written` must either return an error and change none of this memory, or change exactly the
/// bytes that the answer marks as written, and move the rest of the answer to the beginning of the
/// body.
///
/// The first byte of the input, modulo 64, is the size of the memory. The remaining bytes are the
/// body of the answer.

#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/lanes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// The parts of a body, as docs/calls.md describes them.
struct parts {
  std::span<const std::byte> written;
  std::span<const std::byte> answer;
  std::span<const std::byte> bits;
  bool are_valid = false;
};

parts split(std::span<const std::byte> body, std::size_t memory_size) {
  constexpr std::size_t header = 32;
  if (body.size() < header) return {};
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = value << 8U | std::to_integer<unsigned>(body[at + i]);
    return value;
  };
  const std::uint64_t written = number(0), bits = number(4);
  if (written > memory_size || (bits != 0 && bits != (written + 7) / 8) ||
      header + written + bits > body.size())
    return {};
  return {.written = body.subspan(header, written),
          .answer = body.subspan(header + written, body.size() - header - written - bits),
          .bits = body.last(bits),
          .are_valid = true};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span sent(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  // Both objects are allocated with their exact sizes, so that AddressSanitizer reports each access
  // outside of them.
  std::vector<std::byte> memory(data[0] % 64, std::byte{0xA5});
  std::vector<std::byte> body(sent.begin(), sent.end());
  std::vector<std::byte> wanted = memory;
  const parts expected = split(sent, memory.size());
  for (std::size_t i = 0; i < expected.written.size(); ++i)
    if (expected.bits.empty() ||
        (std::to_integer<unsigned>(expected.bits[i / 8]) >> i % 8 & 1U) != 0)
      wanted[i] = expected.written[i];

  const auto taken = verbspp::detail::take_written(body, memory);
  require(taken.has_value() == expected.are_valid);
  require(memory == wanted);
  if (!expected.are_valid) {
    require(taken.error() == verbspp::error_kind::mismatch && taken.error().message().size() > 10);
    return 0;
  }
  require(std::ranges::equal(std::span(body).first(taken.value()), expected.answer));
  return 0;
}
