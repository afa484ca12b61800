// SPDX-License-Identifier: Apache-2.0
/// \file
/// Functions with which the samples read their options, based on getopt_long.
#pragma once

#include <getopt.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string_view>
#include <system_error>

namespace common {

/// Reads the option's argument (`optarg`) as a bounded number; `Number::from` checks the range.
/// Prints errors to stderr.
template <class Number>
bool read_number(const char* program, Number& into) {
  const std::string_view text = optarg;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) {
    std::cerr << program << ": '" << text
              << "' is not a whole number, or is out of range; see --help\n";
    return false;
  }
  const auto number = Number::from(value);
  if (number.has_value())
    into = number.value();
  else
    std::cerr << program << ": " << number.error() << "; see --help\n";
  return number.has_value();
}

template <class Number>
bool read_number(const char* program, std::optional<Number>& into) {
  return read_number(program, into.emplace());
}

/// Passes each option to `take(option)`, until it returns false, for example because an option is
/// wrong.
template <class Take>
bool read_options(int argc, char** argv, const char* short_options, const option* long_options,
                  Take take) {
  for (;;) {
    const int next = getopt_long(argc, argv, short_options, long_options, nullptr);
    if (next == -1) return true;
    if (!take(next)) return false;
  }
}

}  // namespace common
