// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The reason why a rank has aborted a step. The rank writes it to other ranks that take part in
/// the step, as one word: the low bits of the step's number, two flags, the kind of error, and
/// the culprit, which may be the writing rank itself.
///
/// A farewell concerns only that step. A rank that reads a farewell while it waits in the step
/// usually fails as well, or continues to wait if the cause is only a limit. For each pair of
/// ranks, successive steps use two words in turn, so that the next step does not overwrite the
/// farewell of this step. If the send queue to a rank is full, that rank gets no farewell, and
/// detects the failure itself. A farewell needs no memory allocation.
struct farewell {
  std::uint32_t culprit;
  error_kind kind;
  bool is_lost;
  bool has_refused;  ///< the culprit itself has reported that it cannot do its part

  [[nodiscard]] constexpr std::uint64_t encode(std::uint64_t joined) const noexcept {
    return joined << count_at | (is_lost ? lost_bit : 0) | (has_refused ? refused_bit : 0) |
           static_cast<std::uint64_t>(kind) << kind_at | std::uint64_t{culprit};
  }
  /// \returns nothing if the word belongs to a different step, or is invalid
  [[nodiscard]] static constexpr std::optional<farewell> decode(std::uint64_t word,
                                                                std::uint64_t joined) noexcept {
    const std::uint64_t kind = (word >> kind_at) & kind_bits;
    if (word == 0 || (word ^ joined << count_at) >> count_at != 0 ||
        kind > static_cast<std::uint64_t>(error_kind::driver))
      return std::nullopt;
    return farewell{.culprit = static_cast<std::uint32_t>(word & 0xffffU),
                    .kind = static_cast<error_kind>(kind),
                    .is_lost = (word & lost_bit) != 0,
                    .has_refused = (word & refused_bit) != 0};
  }
  /// True if the word belongs to a later step than step number `joined`.
  [[nodiscard]] static constexpr bool is_later(std::uint64_t word, std::uint64_t joined) noexcept {
    constexpr std::uint64_t half = std::uint64_t{1} << (63 - count_at);
    const std::uint64_t ahead = (word - (joined << count_at)) >> count_at;
    return word != 0 && ahead != 0 && ahead < half;
  }

 private:
  static constexpr unsigned kind_at = 16;
  static constexpr std::uint64_t kind_bits = 0x3f;
  static constexpr std::uint64_t refused_bit = 1U << 22U;
  static constexpr std::uint64_t lost_bit = 1U << 23U;
  static constexpr unsigned count_at = 24;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
