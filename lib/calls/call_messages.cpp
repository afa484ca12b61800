// SPDX-License-Identifier: Apache-2.0
#include "calls/call_messages.hpp"

#include <verbspp/base/detail/words.hpp>
#include <verbspp/calls/caller.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace verbspp::detail {

namespace {

constexpr std::size_t list_header_size = 6;
constexpr std::size_t method_header_size = 14;
constexpr std::byte own_byte_order{std::endian::native == std::endian::big ? 1 : 0};

std::string_view name_of(const method_description& one) noexcept {
  return std::string_view(one.name).substr(0, method_description::longest_name);
}

/// Writes a number. \returns the position after it
template <class Integer>
std::byte* put(std::byte* into, Integer value) noexcept {
  put_in_frame(into, value);
  return into + sizeof value;
}
/// Reads a number, and removes it from the bytes.
template <class Integer>
Integer take(std::span<const std::byte>& from) noexcept {
  const auto value = get_from_frame<Integer>(from.data());
  from = from.subspan(sizeof value);
  return value;
}

// The rights to lent memory, in a list of methods.
constexpr std::uint8_t lends_to_read = 1;
constexpr std::uint8_t lends_to_write = 2;

std::uint8_t number_of(access_flags rights) noexcept {
  return static_cast<std::uint8_t>((rights.contains(access::remote_read) ? lends_to_read : 0) |
                                   (rights.contains(access::remote_write) ? lends_to_write : 0));
}

error no_list() noexcept {
  return {
      error_kind::invalid_input, "list of methods",
      "the caller has sent a malformed list of methods: use the same version of verbspp at both "
      "ends"};
}

constexpr const char* refused = "the service has refused the call";

}  // namespace

static_assert(list_header_size + method_header_size + method_description::longest_name <=
              largest_comparison);

method_list_writer::method_list_writer(std::span<std::byte> into,
                                       std::uint32_t message_size) noexcept
    : into_(into.first(largest_comparison)), size_(list_header_size) {
  into_[0] = own_byte_order;
  into_[1] = std::byte{0};
  put(&into_[2], message_size);
}

bool method_list_writer::add(const method_description& one) noexcept {
  const std::string_view name = name_of(one);
  const std::size_t length = method_header_size + name.size();
  if (into_.size() - size_ < length) return false;
  std::byte* at = into_.data() + size_;
  at = put(at, one.number);
  at = put(at, one.version);
  at = put(at, one.request_size);
  at = put(at, one.answer_size);
  at = put(at, number_of(one.lends));
  at = put(at, static_cast<std::uint8_t>(name.size()));
  std::memcpy(at, name.data(), name.size());
  size_ += length;
  into_[1] = static_cast<std::byte>(++count_);
  return true;
}

result<method_list_reader> method_list_reader::open(std::span<const std::byte> from) noexcept {
  if (from.size() < list_header_size || std::to_integer<unsigned>(from[0]) > 1) return no_list();
  if (from[0] != own_byte_order)
    return error(error_kind::mismatch, "list of methods",
                 "the two ends have different byte orders, and calls do not convert values: run "
                 "both ends on machines of the same byte order");
  method_list_reader made;
  made.count_ = std::to_integer<unsigned>(from[1]);
  made.rest_ = from.subspan(2);
  made.message_size_ = take<std::uint32_t>(made.rest_);
  return made;
}

result<std::optional<listed_method>> method_list_reader::next() noexcept {
  if (count_ == 0) {
    if (!rest_.empty()) return no_list();
    return std::optional<listed_method>();
  }
  --count_;
  if (rest_.size() < method_header_size) return no_list();
  listed_method read;
  read.number = take<std::uint16_t>(rest_);
  read.version = take<std::uint16_t>(rest_);
  read.request_size = take<std::uint32_t>(rest_);
  read.answer_size = take<std::uint32_t>(rest_);
  const auto lends = take<std::uint8_t>(rest_);
  if (lends > (lends_to_read | lends_to_write)) return no_list();
  if ((lends & lends_to_read) != 0) read.lends |= access::remote_read;
  if ((lends & lends_to_write) != 0) read.lends |= access::remote_write;
  const auto length = take<std::uint8_t>(rest_);
  if (length > rest_.size()) return no_list();
  read.name = {reinterpret_cast<const char*>(rest_.data()), length};
  rest_ = rest_.subspan(length);
  return std::optional(read);
}

void short_text::add(std::string_view part) noexcept {
  const std::size_t size = std::min(part.size(), text_.size() - size_);
  std::ranges::copy(part.substr(0, size), text_.begin() + size_);
  size_ += size;
}

void short_text::add(std::uint32_t number) noexcept {
  std::array<char, 10> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
  add(std::string_view(digits.begin(), end));
}

std::size_t write_refusal(std::span<std::byte> into, error_kind kind,
                          std::string_view text) noexcept {
  if (into.empty()) return 0;
  const std::size_t size = std::min({text.size(), into.size() - 1, longest_words});
  // The text may be a part of the request, and `into` may overlap the bytes of the request.
  if (size != 0) std::memmove(&into[1], text.data(), size);
  into[0] = static_cast<std::byte>(kind);
  return 1 + size;
}

error read_refusal(std::span<const std::byte> from, const char* operation) noexcept {
  error_kind kind = error_kind::driver;
  std::array<char, longest_words> text{};
  std::size_t size = 0;
  if (!from.empty()) {
    const auto number = std::to_integer<std::uint8_t>(from[0]);
    if (number <= static_cast<std::uint8_t>(error_kind::driver))
      kind = static_cast<error_kind>(number);
    from = from.subspan(1);
    size = std::min(from.size(), text.size());
    // The text comes from the peer, so ASCII control characters, which could control a terminal,
    // are replaced.
    std::ranges::transform(from.first(size), text.begin(), [](std::byte one) {
      const auto character = std::to_integer<unsigned char>(one);
      return character < 0x20 || character == 0x7f ? '?' : static_cast<char>(character);
    });
  }
  return error_in_words(kind, operation, size != 0 ? std::string_view(text.data(), size) : refused)
      .as(kind, refused);
}

}  // namespace verbspp::detail

namespace verbspp {

bool is_refusal(const error& failure) noexcept { return failure.hint() == detail::refused; }

}  // namespace verbspp
