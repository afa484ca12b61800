// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/work/work_error.hpp>

#include <cstdint>

namespace verbspp::detail {

struct pool_place;

/// The id of a receive's slot. Its lowest bits are the index of the slot, and the bits above them
/// count the uses of the slot.
inline constexpr unsigned slot_index_bits = 20;
inline constexpr std::uint32_t no_slot = (1U << slot_index_bits) - 1;
inline constexpr std::uint64_t one_use = std::uint64_t{1} << slot_index_bits;

/// The highest byte of a `wr_id` is the operation, because failed completions do not report the
/// operation. If the operation is a receive, the sign bit is set. The other bytes are the id of the
/// receive's slot, or the number of a request in the send queue. Such a number never becomes so
/// large that it needs the highest byte.
inline constexpr unsigned operation_at = 56;
inline constexpr std::uint64_t below_operation = (std::uint64_t{1} << operation_at) - 1;
[[nodiscard]] constexpr std::uint64_t wr_id_of(work_operation operation,
                                               std::uint64_t id) noexcept {
  return static_cast<std::uint64_t>(operation) << operation_at | id;
}
/// True if the `wr_id` belongs to a receive, whether it was posted by the channel itself or by its
/// hub.
[[nodiscard]] constexpr bool is_receive(std::uint64_t wr_id) noexcept {
  return static_cast<std::int64_t>(wr_id) < 0;
}
/// The highest byte of the `wr_id` of an inbox's receives. The other bytes identify the inbox and
/// the connection.
inline constexpr std::uint64_t inbox_receive = 0xfe;
/// The highest byte of the `wr_id` of a hub's shared receive is 0xff (`pool_place::reset_wr_id`).
[[nodiscard]] constexpr bool is_shared_receive(std::uint64_t wr_id) noexcept {
  return wr_id >> operation_at == 0xff;
}
[[nodiscard]] inline pool_place& place_of_shared_receive(std::uint64_t wr_id) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a `wr_id` is an integer
  return *reinterpret_cast<pool_place*>(static_cast<std::uintptr_t>(~wr_id));
}
static_assert(static_cast<std::uint64_t>(work_operation::receive) == 0x80);
static_assert(static_cast<std::uint64_t>(work_operation::bind_memory_window) < 0x80);

}  // namespace verbspp::detail
