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
class tcp_rank;
}

/// Which rank this is, of which world, and where the ranks meet.
struct tcp_launch {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  /// The host and port of rank 0: "node17:4711", "[fe80::1%eth0]:4711".
  std::string_view meeting_point{};
  /// Up to 64 characters that all ranks have to know; tells worlds apart that meet at one place.
  std::string_view name{};
};

/// A bootstrap by TCP: all ranks connect to one meeting point, which rank 0 has a thread for.
///
/// Ranks may come in any order, and none waits for another's turn; one that comes before the
/// meeting point is there tries again until its limit. What is put travels at once, and is held
/// there, for those who get it. Whoever is no rank of this world (a stranger, a rank of another
/// size or name, one that is there already) is told so, and disturbs nobody.
///
/// What travels is neither encrypted nor does it prove who somebody is: let the meeting point be
/// where only those come who may.
///
/// A move-only owner. Destroying it leaves the world; the one of rank 0 waits until all have left,
/// at most 5 seconds, since it has the meeting point. Thread rule: as a container.
class tcp_bootstrap {
 public:
  /// \errors `invalid_input` for what is no rank, size, name or place; `busy` if the meeting point
  /// has another rank of this number, or its port is in use; `mismatch` for another world's;
  /// `timed_out` and `cancelled` at the limit
  [[nodiscard]] static result<tcp_bootstrap> join(const tcp_launch& launch,
                                                  const wait_limit& limit) noexcept;
  /// The same with VERBSPP_RANK, VERBSPP_WORLD_SIZE and VERBSPP_MEETING_POINT, and VERBSPP_WORLD
  /// for the name, if there is one.
  /// \errors as `join`; `not_found` for a variable that is not set
  [[nodiscard]] static result<tcp_bootstrap> from_environment(const wait_limit& limit) noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// \errors `invalid_input` for keys above 64 bytes and values above 64 KiB; `not_connected` if
  /// the meeting point is gone
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept;
  /// \errors `timed_out` and `cancelled`, with the ranks that are missing; `not_connected`, with a
  /// rank that has left
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept;
  /// \errors `not_found`; `invalid_input` for a value that is larger than the place for it;
  /// `timed_out` and `cancelled`
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept;

 private:
  explicit tcp_bootstrap(std::shared_ptr<detail::tcp_rank> made) noexcept;

  std::shared_ptr<detail::tcp_rank> rank_;
};

}  // namespace verbspp
