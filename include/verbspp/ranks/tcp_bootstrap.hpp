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

/// The rank of this process, the size and name of its world, and the address at which the ranks
/// meet.
struct tcp_launch {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  /// The host and port of rank 0, such as "node17:4711" or "[fe80::1%eth0]:4711".
  std::string_view meeting_point{};
  /// The name of the world: up to 64 bytes, the same for all ranks. The meeting point refuses ranks
  /// of a world with a different name.
  std::string_view name{};
};

/// A bootstrap over TCP: all ranks connect to one meeting point, which is a thread of rank 0.
///
/// Ranks may start in any order, and are served independently of each other. A rank that starts
/// before the meeting point exists keeps trying until its limit is reached. Values are sent
/// immediately to the meeting point, which stores them for other ranks. A process that is not a
/// rank of this world (a stranger, a rank of a world with a different size or name, or a second
/// process with the same rank) is refused.
///
/// The connections are neither encrypted nor authenticated, so the meeting point should be in a
/// network that only trusted processes can reach.
///
/// All copies share one connection. Destroying the last copy leaves the world. Since the meeting
/// point is a thread of rank 0, rank 0's destructor then waits, for at most 5 seconds, until all
/// ranks that have joined have left. The functions of a moved-from object that return a `result`
/// fail (`invalid_input`); its rank and size are 0. Thread rule: one thread at a time for all
/// copies together.
class tcp_bootstrap {
 public:
  /// Joins the world.
  /// \errors `invalid_input` if the rank, size, name or meeting point is not valid; `busy` if this
  /// rank has already joined at the meeting point, the port of the meeting point is in use, or too
  /// many other clients have connected to it; `mismatch` if the meeting point belongs to a
  /// different world, or uses another version of the protocol; `not_found` if the host name of the
  /// meeting point has no address, or could not be resolved; `not_connected` if the connection to
  /// the meeting point is lost; `timed_out` and `cancelled` when the limit is reached;
  /// `resource_exhausted`; on rank 0, those of `tcp_listener::open`
  [[nodiscard]] static result<tcp_bootstrap> join(const tcp_launch& launch,
                                                  const wait_limit& limit) noexcept;
  /// Joins the world that the environment variables VERBSPP_RANK, VERBSPP_WORLD_SIZE and
  /// VERBSPP_MEETING_POINT describe. VERBSPP_WORLD is optional and contains the name.
  /// \errors as `join`; `not_found` if a required variable is not set
  [[nodiscard]] static result<tcp_bootstrap> from_environment(const wait_limit& limit) noexcept;

  [[nodiscard]] std::uint32_t rank() const noexcept;
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// Publishes a value (see `Bootstrap`).
  /// \errors `invalid_input` for a key of more than 64 bytes, or a value of more than 64 KiB;
  /// `not_connected` if the connection to the meeting point is broken; `timed_out` if the meeting
  /// point has not accepted the data within 30 seconds; `resource_exhausted`
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept;
  /// Waits for all ranks (see `Bootstrap`).
  /// \errors `timed_out` and `cancelled`, usually with the first missing rank and the number of
  /// missing ranks (to learn these from the meeting point, the call may exceed its limit by up to a
  /// second); `not_connected` with a rank that has left, or without a rank if the connection to the
  /// meeting point is broken; `resource_exhausted`
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept;
  /// Reads a value that a rank has published (see `Bootstrap`).
  /// \errors `not_found`; `invalid_input` for a key of more than 64 bytes, or if the value is
  /// larger than `into`; `not_connected` if the connection to the meeting point is broken;
  /// `timed_out` and `cancelled`; `resource_exhausted`
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept;

 private:
  explicit tcp_bootstrap(std::shared_ptr<detail::tcp_rank> made) noexcept;

  std::shared_ptr<detail::tcp_rank> rank_;
};

}  // namespace verbspp
