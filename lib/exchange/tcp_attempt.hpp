// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exchange/lookup.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Disables Nagle's algorithm, because frames are small, and the peer waits for each frame.
void send_at_once(int descriptor) noexcept;

/// Connects to a host. It looks up the host's name, and then tries one address after another, each
/// for its share of the time. Only `wait` blocks.
class tcp_attempt {
 public:
  /// \param time_to_connect the time limit for connecting, which starts when the lookup has ended
  explicit tcp_attempt(const wait_limit& limit, std::chrono::nanoseconds time_to_connect =
                                                    (std::chrono::nanoseconds::max)()) noexcept
      : limit_(limit), time_to_connect_(time_to_connect) {}

  /// \errors `invalid_input` for an invalid host or port; `resource_exhausted`
  [[nodiscard]] result<void> start(std::string_view host, std::string_view port) noexcept;
  /// Proceeds as far as possible without waiting. Returns nothing while the attempt is in progress.
  /// \errors as `tcp_socket::connect`
  [[nodiscard]] result<std::optional<tcp_socket>> advance() noexcept;

  /// The descriptor to watch, and its events, before the next call of `advance`.
  [[nodiscard]] int file_descriptor() const noexcept;
  [[nodiscard]] short events() const noexcept;
  /// The time by which `advance` must be called, even if no event occurs and no stop is requested.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return step().deadline(); }
  /// Waits for the events, or until the deadline.
  [[nodiscard]] result<void> wait() const noexcept;

 private:
  using clock = std::chrono::steady_clock;

  /// The limit of the current step.
  [[nodiscard]] wait_limit step() const noexcept {
    return lookup_.is_under_way() ? limit_ : limit_.no_later_than(until_);
  }
  void take_addresses(const host_addresses& found) noexcept;
  [[nodiscard]] int begin_next() noexcept;
  [[nodiscard]] std::optional<int> outcome_of_current() noexcept;
  [[nodiscard]] std::optional<error> give_up_current(int errnum) noexcept;

  wait_limit limit_;
  std::chrono::nanoseconds time_to_connect_;
  pending_lookup lookup_{};
  host_addresses found_{};
  std::size_t next_ = 0;           ///< the index of the address to try next
  tcp_socket current_{};           ///< the socket that is being connected to the current address
  clock::time_point until_{};      ///< the deadline for the current address
  clock::time_point until_all_{};  ///< the deadline for all addresses
  /// The text of the error: why each address that has been tried so far has failed.
  std::array<char, longest_words> account_{};
  std::size_t account_size_ = 0;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
