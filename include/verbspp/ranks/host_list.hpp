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

/// A host of a world, and how many of its ranks run there.
struct host_entry {
  std::string name{};  ///< or an address
  std::uint32_t ranks = 1;

  friend bool operator==(const host_entry&, const host_entry&) = default;
};

/// Which hosts a world runs on: the first ranks on the first host, and so on. Rank 0 has the
/// meeting point, at a port of its host.
///
///     // Comments are allowed.
///     {
///       "world": "heat",                              // a name, if there is more than one
///       "port": 4711,
///       "hosts": ["node1", {"name": "node2", "ranks": 4}],
///       "size": 3                                     // only the first ranks; else all
///     }
///
/// A value that owns its memory. Thread rule: as a container.
class host_list {
 public:
  static constexpr std::uint32_t longest_name = 253;
  static constexpr std::uint32_t longest_world = 40;

  /// Reads JSON.
  /// \errors `invalid_input` with the line, and the beginning of the name that is meant, for what
  /// is no JSON, entries that are unknown, missing, doubled, of another type, or contradict others;
  /// `not_supported` of a library without JSON (Meson option `json`); `resource_exhausted`
  [[nodiscard]] static result<host_list> parse(std::string_view text) noexcept;
  /// Reads a file of at most 16 MiB.
  /// \errors as `parse`, and those of the file: `not_found`, `permission`, `driver`
  [[nodiscard]] static result<host_list> read(const char* path) noexcept;
  /// The list as a program has it.
  /// \errors `invalid_input` for no hosts, one without a name or ranks, one that is there twice,
  /// names of more than 253 characters or with spaces, more than 65,535 ranks, or port 0
  [[nodiscard]] static result<host_list> from(std::span<const host_entry> hosts,
                                              std::uint16_t port) noexcept;

  /// The same for the first ranks only.
  /// \errors `invalid_input` for none, or more than there are
  [[nodiscard]] result<host_list> first(std::uint32_t ranks) const noexcept;

  /// How many ranks there are.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// Hosts with at least one rank.
  [[nodiscard]] std::span<const host_entry> hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// The name of the world, if there is one.
  [[nodiscard]] std::string_view world() const noexcept { return world_; }
  /// Where that rank runs; empty if there is no such rank.
  [[nodiscard]] std::string_view host_of(std::uint32_t rank) const noexcept;
  /// The rank of the process on that host.
  /// \errors `not_found` if the list does not have it; `invalid_input` if it has more ranks than
  /// one there
  [[nodiscard]] result<std::uint32_t> rank_on(std::string_view host) const noexcept;

  friend bool operator==(const host_list&, const host_list&) = default;
  friend std::ostream& operator<<(std::ostream& out, const host_list& list);

 private:
  host_list() noexcept = default;

  std::vector<host_entry> hosts_{};
  std::string world_{};
  std::uint32_t size_ = 0;
  std::uint16_t port_ = 0;
};

}  // namespace verbspp
