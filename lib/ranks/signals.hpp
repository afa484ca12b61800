// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/ranks/barrier_kind.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// What ranks tell each other by writing into each other's memory.
///
/// A signal is a count that goes up: the n-th signal of a pair of ranks writes n. Both ends know
/// which signals a step takes, and count them whether the step goes well or not. So who comes late
/// to a step that others have given up finds, or makes up for, what was missed with the next one,
/// and nothing has to be set back. For who is missing, each rank has a count of the steps that it
/// has come to with each other rank, which those read.
class [[gnu::visibility("hidden")]] signals {
 public:
  static constexpr access_flags rights =
      access::local_write | access::remote_write | access::remote_read;
  using place = remote_memory<access::remote_write | access::remote_read>;
  static constexpr std::size_t largest_value = 256;

  /// What a barrier of a rank among others is made of, in this order.
  struct step {
    enum class does : std::uint8_t { signals, waits } what;
    std::uint32_t rank;
  };

  [[nodiscard]] result<void> open(const protection_domain& domain, std::uint32_t rank,
                                  std::uint32_t size, wait_mode waiting) noexcept;
  /// This rank's memory, for the others.
  [[nodiscard]] result<place> memory() const noexcept { return memory_->remote(); }
  void set_memory_of(std::uint32_t rank, const place& memory) noexcept {
    theirs_.get()[rank] = memory;
  }

  [[nodiscard]] group_results barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                                      const wait_limit& limit) noexcept;
  [[nodiscard]] group_results all_gather(group& peers, std::span<const std::byte> mine,
                                         std::span<std::byte> all,
                                         const wait_limit& limit) noexcept;

 private:
  [[nodiscard]] std::optional<error> objection(const peer_list& ranks) noexcept;
  /// This rank has come to a step with these.
  void join(const peer_list& ranks) noexcept;
  /// Does what the kind of barrier takes, by `signal(rank)` and `await(rank)`.
  template <class Signal, class Await>
  void run(barrier_kind kind, const peer_list& ranks, Signal signal, Await await) const noexcept;
  [[nodiscard]] bool wait_for(std::uint32_t rank, const wait_limit& limit) const noexcept;
  /// Which of the ranks have not come to this step, or can't be asked.
  [[nodiscard]] group_results blame(group& peers, const peer_list& ranks,
                                    std::optional<std::uint32_t> awaited,
                                    const error& cause) noexcept;

  // Where things are in each rank's memory.
  [[nodiscard]] std::size_t signal_from(std::uint32_t rank) const noexcept {
    return rank * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::size_t joined_with(std::uint32_t rank) const noexcept {
    return (std::size_t{size_} + rank) * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::size_t signal_to(std::uint32_t rank) const noexcept {
    return (std::size_t{size_} * 2 + rank) * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::size_t answer_of(std::uint32_t rank) const noexcept {
    return (std::size_t{size_} * 3 + rank) * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::size_t value_of(std::uint32_t rank, std::uint64_t turn) const noexcept {
    return std::size_t{size_} * 4 * sizeof(std::uint64_t) +
           (std::size_t{rank} * 2 + turn % 2) * largest_value;
  }
  [[nodiscard]] std::size_t own_value() const noexcept { return value_of(size_, 0); }

  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  wait_mode waiting_ = wait_mode::spin();
  std::optional<registered_buffer<rights>> memory_{};
  struct counts {
    std::uint64_t sent = 0;
    std::uint64_t awaited = 0;
    std::uint64_t joined = 0;
    std::uint64_t gathered = 0;
    bool is_named = false;
  };
  owned<counts[]> counts_{};
  owned<std::optional<place>[]> theirs_{};
  owned<std::uint32_t[]> everybody_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
