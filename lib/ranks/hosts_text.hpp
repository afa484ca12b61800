// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/ranks/host_list.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

inline constexpr const char* listing = "list of hosts";

/// The entries that a text contains, with their line numbers.
struct hosts_text {
  std::vector<host_entry> hosts{};
  std::vector<std::uint32_t> lines{};
  std::string world{};
  std::uint32_t world_line = 0;
  std::uint32_t port = 0;
  std::uint32_t port_line = 0;
  std::optional<std::uint32_t> size{};
  std::uint32_t size_line = 0;
};

/// Returns the error for the entry `name` on a line. `other` is the number of a related line, or 0.
/// Only the first 16 bytes of the name are stored. If `line` is 0, the message contains no line.
[[nodiscard]] error wrong_entry(const char* hint, std::uint32_t line, std::string_view name,
                                std::uint32_t other = 0) noexcept;

/// Reads the entries that a text contains.
/// \errors those of `host_list::parse` that concern the form: the text is not JSON, an entry is
/// unknown, missing or duplicate, a value has the wrong type, or a number is negative or
/// above 2^32 - 1; `not_supported` if the library was built without JSON. The caller checks the
/// values further.
[[nodiscard]] result<hosts_text> read_hosts(std::string_view json);

}  // namespace verbspp::detail

#pragma GCC visibility pop
