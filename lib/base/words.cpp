// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/words.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace verbspp::detail {

namespace {

struct kept_words {
  std::uint64_t serial = 0;
  std::size_t size = 0;
  std::array<char, longest_words> text{};
};

struct word_keeper {
  brief_lock lock;
  std::uint64_t last = 0;
  std::array<kept_words, words_to_keep> kept{};
};

constinit word_keeper keeper;

std::size_t format_words(const error& e, std::span<char> buffer) noexcept {
  const std::uint64_t serial = error_access::facts(e)[0];
  kept_words words;
  {
    const brief_guard guard(keeper.lock);
    words = keeper.kept[serial % keeper.kept.size()];
  }
  const int length =
      words.serial == serial
          ? std::snprintf(buffer.data(), buffer.size(), "%s: %s: %.*s", e.operation(),
                          to_string(e.kind()), static_cast<int>(words.size), words.text.data())
          : std::snprintf(buffer.data(), buffer.size(),
                          "%s: %s: newer errors have replaced the text of this one", e.operation(),
                          to_string(e.kind()));
  return length > 0 ? static_cast<std::size_t>(length) : 0;
}

int code_of_words(const error& e) noexcept {
  const auto errnum = static_cast<int>(error_access::facts(e)[1]);
  return errnum != 0 ? errnum : error(e.kind(), e.operation(), nullptr).code().value();
}

constexpr error_source source_of_words{.format = &format_words, .code = &code_of_words};

}  // namespace

error error_in_words(error_kind kind, const char* operation, std::string_view words,
                     int errnum) noexcept {
  std::uint64_t serial = 0;
  {
    const brief_guard guard(keeper.lock);
    serial = ++keeper.last;
    kept_words& place = keeper.kept[serial % keeper.kept.size()];
    place.serial = serial;
    place.size = std::min(words.size(), longest_words);
    std::ranges::copy(words.substr(0, place.size), place.text.begin());
  }
  return error_access::with_errno(
      error_access::made(source_of_words, operation, nullptr,
                         {serial, static_cast<std::uint64_t>(errnum), 0}, kind),
      errnum);
}

error error_in_words_of(error_kind kind, const char* operation, const char* format, ...) noexcept {
  std::array<char, longest_words> text{};
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::size_t size = length > 0 ? static_cast<std::size_t>(length) : 0;
  return error_in_words(kind, operation, {text.data(), std::min(size, text.size() - 1)});
}

}  // namespace verbspp::detail
