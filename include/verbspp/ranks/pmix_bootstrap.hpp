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

/// A bootstrap that uses PMIx, which cluster launchers support: Open MPI's `mpirun`, `prun`, and
/// `srun` with `--mpi=pmix`. The library must have been built with PMIx (Meson option `pmix`).
///
/// When the limit of a fence is reached, PMIx does not report which ranks are missing. It cannot
/// continue after some ranks have abandoned a fence, so end the job in that case.
///
/// All copies share one connection between the process and its launcher. The connection ends with
/// the last copy. The functions of a moved-from object that return a `result` fail
/// (`invalid_input`); its rank and size are 0. Thread rule: one thread at a time for all copies
/// together.
class pmix_bootstrap {
 public:
  /// True if this process was started by a launcher that supports PMIx.
  [[nodiscard]] static bool is_launched() noexcept;
  /// Connects to the launcher.
  /// \errors `not_supported` if the library was built without PMIx; `not_found` if this process was
  /// not started by a launcher that supports PMIx; `driver` for errors that PMIx reports;
  /// `resource_exhausted`
  [[nodiscard]] static result<pmix_bootstrap> open() noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// Publishes a value (see `Bootstrap`).
  /// \errors `driver`; `invalid_input` if the key is longer than PMIx allows; `resource_exhausted`
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept;
  /// Waits for all ranks (see `Bootstrap`).
  /// \errors `timed_out`, `cancelled`, `driver`, `resource_exhausted`
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept;
  /// Reads a value that a rank has published (see `Bootstrap`).
  /// \errors `not_found`; `invalid_input` if the value is larger than `into`, or the key is longer
  /// than PMIx allows; `timed_out`, `cancelled`, `driver`, `resource_exhausted`
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept;

 private:
  explicit pmix_bootstrap(std::shared_ptr<detail::pmix_session> session) noexcept;

  std::shared_ptr<detail::pmix_session> session_;
};

}  // namespace verbspp
