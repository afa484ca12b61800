// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbspp {

/// A host of a world, and the number of ranks that run there.
struct host_entry {
  std::string name{};  ///< a name or an address
  std::uint32_t ranks = 1;

  friend bool operator==(const host_entry&, const host_entry&) = default;
};

/// The hosts on which a world runs. The first ranks run on the first host, and so on. The meeting
/// point is a port on the host of rank 0.
///
///     // Comments are allowed.
///     {
///       "world": "heat",                              // optional: the name of the world
///       "port": 4711,
///       "hosts": ["node1", {"name": "node2", "ranks": 4}],
///       "size": 3                                     // uses only the first ranks; all by default
///     }
///
/// A value that owns its memory. Thread rule: as for a standard container.
class host_list {
 public:
  static constexpr std::uint32_t longest_name = 253;
  static constexpr std::uint32_t longest_world = 40;

  /// Parses JSON.
  /// \errors `invalid_input`, usually with the line and the beginning of the offending name, if the
  /// text is not JSON, or if entries are unknown, missing, duplicated, of the wrong type, out of
  /// range, or contradict each other; `not_supported` if the library was built without JSON (Meson
  /// option `json`); `resource_exhausted`
  [[nodiscard]] static result<host_list> parse(std::string_view text) noexcept;
  /// Reads a file of at most 16 MiB.
  /// \errors as `parse`; `invalid_input` if the file is larger; those of reading the file:
  /// `not_found`, `permission`, `driver`
  [[nodiscard]] static result<host_list> read(const char* path) noexcept;
  /// Creates the list from values that the program passes.
  /// \errors `invalid_input` if there are no hosts, a host has no name or no ranks, a host is
  /// listed twice, a name has more than 253 bytes or contains spaces, control characters or
  /// brackets, there are more than 65,535 ranks, or the port is 0; `resource_exhausted`
  [[nodiscard]] static result<host_list> from(std::span<const host_entry> hosts,
                                              std::uint16_t port) noexcept;

  /// Returns the list that contains only the first `ranks` ranks.
  /// \errors `invalid_input` for 0, or more ranks than the list has; `resource_exhausted`
  [[nodiscard]] result<host_list> first(std::uint32_t ranks) const noexcept;

  /// The number of ranks.
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// The hosts, each with at least one rank.
  [[nodiscard]] std::span<const host_entry> hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// The name of the world; empty if there is none.
  [[nodiscard]] std::string_view world() const noexcept { return world_; }
  /// The host that the rank runs on; empty if there is no such rank.
  [[nodiscard]] std::string_view host_of(std::uint32_t rank) const noexcept;
  /// The rank that runs on that host.
  /// \errors `not_found` if the host is not in the list; `invalid_input` if more than one rank runs
  /// there
  [[nodiscard]] result<std::uint32_t> rank_on(std::string_view host) const noexcept;

  friend bool operator==(const host_list&, const host_list&) = default;
  friend std::ostream& operator<<(std::ostream& out, const host_list& list);

 private:
  host_list() noexcept = default;

  std::vector<host_entry> hosts_{};
  std::string world_{};
  std::uint16_t port_ = 0;
};

}  // namespace verbspp
