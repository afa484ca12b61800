// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace verbspp::test {

/// Returns the text that an object prints.
template <class Printable>
std::string printed(const Printable& object) {
  std::ostringstream out;
  out << object;
  return out.str();
}

/// Returns the text that an object prints to a stream whose format flags are unusual.
template <class Printable>
std::string printed_by_a_hex_stream(const Printable& object) {
  std::ostringstream out;
  out << std::hex << std::showbase << std::showpos << object;
  return out.str();
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace verbspp::test
