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

namespace verbspp {

namespace detail {
class pmix_session;
}

/// A bootstrap by PMIx, which the launchers of clusters speak: `mpirun` and `prun`, `srun
/// --mpi=pmix`. Takes a library that was built with it (Meson option `pmix`).
///
/// PMIx says of a fence only that it did not come in time, not who is missing; nor does it know of
/// fences that some have given up: the job is better ended then.
///
/// A move-only owner of the process' connection to its launcher. Thread rule: as a container.
class pmix_bootstrap {
 public:
  /// Whether this process was started by such a launcher.
  [[nodiscard]] static bool is_launched() noexcept;
  /// \errors `not_supported` of a library without PMIx; `not_found` if there is no such launcher;
  /// `driver` for what PMIx says
  [[nodiscard]] static result<pmix_bootstrap> open() noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// \errors `driver`
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept;
  /// \errors `timed_out`, `cancelled`, `driver`
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept;
  /// \errors `not_found`; `invalid_input` for a value that is larger than the place for it;
  /// `timed_out`, `cancelled`, `driver`
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept;

 private:
  explicit pmix_bootstrap(std::shared_ptr<detail::pmix_session> session) noexcept;

  std::shared_ptr<detail::pmix_session> session_;
};

}  // namespace verbspp
