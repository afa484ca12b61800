// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace verbspp {

namespace detail {
class local_meeting;
}

/// A bootstrap for ranks that are threads of one process, meant for tests and experiments.
///
/// The functions of a moved-from object that return a `result` fail (`invalid_input`); its rank and
/// size are 0. Thread rule: as for a plain value. Each thread uses the object of its own rank.
class local_bootstrap {
 public:
  /// Creates one bootstrap for each of the `size` ranks of a world, in the order of the ranks.
  [[nodiscard]] static std::vector<local_bootstrap> create(std::uint32_t size);

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// Publishes a value (see `Bootstrap`).
  /// \errors `resource_exhausted`
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept;
  /// Waits for all ranks (see `Bootstrap`).
  /// \errors `timed_out` and `cancelled`, with the first missing rank, and the number of missing
  /// ranks
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept;
  /// Reads a value that a rank has published (see `Bootstrap`).
  /// \errors `not_found`; `invalid_input` if the value is larger than `into`; `resource_exhausted`
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept;

 private:
  local_bootstrap(std::shared_ptr<detail::local_meeting> meeting, std::uint32_t rank) noexcept;

  std::shared_ptr<detail::local_meeting> meeting_;
  std::uint32_t rank_;
};

}  // namespace verbspp
