// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.hpp"
#include "exchange/lookup.hpp"
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

/// Frames are small, and waited for.
void send_at_once(int descriptor) noexcept;

/// Connects to a host: looks up its name, and tries one address after the other, each for its share
/// of the time. It waits for nothing itself. Not movable while it is under way: it stays where it
/// is.
class tcp_attempt {
 public:
  /// \param time_to_connect for all addresses, once they are known
  explicit tcp_attempt(const wait_limit& limit, std::chrono::nanoseconds time_to_connect =
                                                    (std::chrono::nanoseconds::max)()) noexcept
      : limit_(limit), time_to_connect_(time_to_connect) {}

  /// \errors `invalid_input` for what is no host or port; `resource_exhausted`
  [[nodiscard]] result<void> start(std::string_view host, std::string_view port) noexcept;
  /// Does what can be done without waiting. Nothing as long as it goes on.
  /// \errors as `tcp_socket::connect`
  [[nodiscard]] result<std::optional<tcp_socket>> advance() noexcept;

  /// What to wait for before it can go on.
  [[nodiscard]] int file_descriptor() const noexcept;
  [[nodiscard]] short events() const noexcept;
  /// When it can go on though nothing has happened.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

 private:
  using clock = std::chrono::steady_clock;

  void take_addresses(const host_addresses& found) noexcept;
  [[nodiscard]] int begin_next() noexcept;
  [[nodiscard]] std::optional<int> outcome_of_current() noexcept;
  [[nodiscard]] std::optional<error> give_up_current(int errnum) noexcept;

  wait_limit limit_;
  std::chrono::nanoseconds time_to_connect_;
  pending_lookup lookup_{};
  host_addresses found_{};
  std::size_t next_ = 0;       ///< of the addresses, behind the current one
  tcp_socket current_{};       ///< on its way to the address in front of that
  clock::time_point until_{};  ///< of the current one's share
  clock::time_point until_all_{};
  /// What became of the addresses, one behind the other.
  std::array<char, longest_words> account_{};
  std::size_t account_size_ = 0;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
