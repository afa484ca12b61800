// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

// g++ and clang both accept this spelling.
#define VERBSPP_RANKS_NOT_WATCHED __attribute__((no_sanitize("thread")))

// These functions access memory that the device reads and writes, too. ThreadSanitizer must ignore
// them, because in its view softverbs is a thread that does not take the library's locks.

[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline std::uint64_t look(
    const std::byte* at) noexcept {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline void show(std::byte* at,
                                                             std::uint64_t value) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED inline void take_bytes(std::byte* to,
                                                                   const std::byte* from,
                                                                   std::size_t size) noexcept {
  for (std::size_t i = 0; i < size; ++i)
    *static_cast<volatile std::byte*>(to + i) = *static_cast<const volatile std::byte*>(from + i);
}

/// The words in each rank's memory. There is one word of each kind for each rank.
enum class signal_word : std::uint8_t {
  signal_from,
  joined_with,
  number_from,        // for values with even numbers
  other_number_from,  // for values with odd numbers
  taken_by,
  farewell_from,        // for even numbers of joined steps
  other_farewell_from,  // for odd numbers of joined steps
  connected_from,
  // The sources of writes to other ranks, and finally the memory for the counts that are read from
  // those ranks.
  signal_to,
  number_to,
  taken_to,
  farewell_to,
  other_farewell_to,
  connected_to,
  answer_of,
  count,
};

/// The layout of each rank's memory. First come the words, sorted by kind and then by rank; then
/// two values from each rank; then two sets of values from all ranks (`all_gather`); and finally
/// two values of this rank.
///
/// The values from a rank are stored in its two places in turn, and after each value, the sender
/// writes the value's number. When the receiver no longer needs a value, it writes the number back,
/// and the sender is never more than two values ahead of that number. So a late receiver still
/// finds the value of its step, if the sender has written it.
class signal_layout {
 public:
  static constexpr std::size_t largest_value = 256;

  explicit constexpr signal_layout(std::uint32_t ranks) noexcept : ranks_(ranks) {}

  [[nodiscard]] constexpr std::size_t at(signal_word which, std::uint32_t rank) const noexcept {
    return (std::size_t{ranks_} * static_cast<std::size_t>(which) + rank) * sizeof(std::uint64_t);
  }
  [[nodiscard]] constexpr std::size_t number_from(std::uint32_t rank,
                                                  std::uint64_t number) const noexcept {
    return at(number % 2 == 0 ? signal_word::number_from : signal_word::other_number_from, rank);
  }
  /// The offset of the farewell from that rank. Successive steps use two words in turn.
  [[nodiscard]] constexpr std::size_t farewell_from(std::uint32_t rank,
                                                    std::uint64_t joined) const noexcept {
    return at(joined % 2 == 0 ? signal_word::farewell_from : signal_word::other_farewell_from,
              rank);
  }
  [[nodiscard]] constexpr std::size_t farewell_to(std::uint32_t rank,
                                                  std::uint64_t joined) const noexcept {
    return at(joined % 2 == 0 ? signal_word::farewell_to : signal_word::other_farewell_to, rank);
  }
  [[nodiscard]] constexpr std::size_t value_from(std::uint32_t rank,
                                                 std::uint64_t number) const noexcept {
    return at(signal_word::count, 0) + (std::size_t{rank} * 2 + number % 2) * largest_value;
  }
  /// The offset of all ranks' values in an `all_gather`. Successive steps use the two sets in turn.
  [[nodiscard]] constexpr std::size_t values_of_all(std::uint64_t turn) const noexcept {
    return value_from(ranks_, 0) + std::size_t{ranks_} * (turn % 2) * largest_value;
  }
  /// The offset of one of this rank's values. There are two values, because one that is sent up a
  /// tree may still be in flight when another one is sent down.
  [[nodiscard]] constexpr std::size_t own_value(std::uint32_t which) const noexcept {
    return values_of_all(0) + std::size_t{ranks_} * 2 * largest_value + which * largest_value;
  }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return own_value(2); }

 private:
  std::uint32_t ranks_;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
