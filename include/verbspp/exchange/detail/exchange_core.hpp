// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/stoppable_limit.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/core/detail/tied_socket.hpp>
#include <verbspp/exchange/detail/field.hpp>
#include <verbspp/exchange/exchange_options.hpp>
#include <verbspp/qp/endpoint.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbspp::detail {

/// The next step of an exchange.
enum class exchange_step : std::uint8_t {
  waiting,  ///< the socket is not ready
  greeted,  ///< the peer matches: set the endpoint and values to send, and call `offer`
  offered,  ///< the peer's endpoint and values have arrived: connect, then call `set_connected`
  done,
};

class frame_seal;

/// The parameters of one side of an exchange.
struct exchange_setup {
  int file_descriptor = -1;
  std::span<const field_description> mine{};    ///< in static storage
  std::span<const field_description> theirs{};  ///< in static storage
  /// The maximum size of the encoded values that this side sends.
  std::size_t largest_mine = 0;
  /// The maximum size of the encoded values that the peer sends.
  std::size_t largest_theirs = 0;
  exchange_options options{};
  bool connects_channel = false;  ///< false for a queue pair
  /// True in a meeting, where both ends connect to each other, and the side with the greater
  /// `party` number chooses one of the connections.
  bool is_of_equals = false;
  std::array<std::byte, 16> party{};
};

/// The type-independent part of one side of an exchange: it knows neither the type of the object
/// being connected nor the types of the values sent. docs/exchange.md describes the protocol.
class exchange_core {
 public:
  /// Checks the application's name and the secret, for callers that have no connection yet.
  /// \errors those of `create` for these options
  [[nodiscard]] static result<void> check(const exchange_options& options) noexcept;
  /// Creates one side of an exchange.
  /// \errors `invalid_input` if the descriptor, the application's name or the secret is not valid;
  /// `not_supported` for a secret if the library was built without libcrypto; `resource_exhausted`;
  /// the errno of `getrandom`
  [[nodiscard]] static result<owned<exchange_core>> create(const exchange_setup& setup,
                                                           const wait_limit& limit) noexcept;
  exchange_core(const exchange_core&) = delete;
  exchange_core& operator=(const exchange_core&) = delete;
  /// Notifies the peer that the exchange is aborted, unless it has ended.
  ~exchange_core();

  /// Returns the buffer for the values that this side sends. The caller fills it before it calls
  /// `offer`, and passes the size of the values to `set_mine`.
  [[nodiscard]] std::span<std::byte> values() noexcept { return values_; }
  void set_mine(const endpoint& local, std::size_t size_of_values) noexcept;

  /// Proceeds as far as possible without waiting.
  [[nodiscard]] result<exchange_step> poll() noexcept;
  /// Queues the endpoint and the values, which the next `poll` sends to the peer.
  void offer() noexcept;
  /// True if the exchange waits for this side's `offer`.
  [[nodiscard]] bool is_greeted() const noexcept { return awaited_ == awaited::decision; }
  /// True if the peer has introduced itself and, if there is a secret, has proven that it knows the
  /// secret.
  [[nodiscard]] bool has_greeted() const noexcept { return awaited_ > awaited::proof; }
  /// True if only the peer's last frame is missing.
  [[nodiscard]] bool awaits_last_frame() const noexcept { return awaited_ == awaited::done; }
  /// In a meeting, returns true if the peer chooses the connection, and not this side. In that
  /// case, `is_greeted` returns true only after the peer has chosen this connection.
  [[nodiscard]] bool lets_choose() const noexcept { return lets_choose_; }
  /// The endpoint that the peer has offered, available at the step `offered`.
  [[nodiscard]] const endpoint& remote() const noexcept { return remote_; }
  [[nodiscard]] std::span<const std::byte> theirs() const noexcept { return offered_values_; }
  /// Duplicates the socket for the channel that will be tied to it. The result is empty unless both
  /// ends tie their channels.
  [[nodiscard]] result<tied_socket> socket_to_tie() const noexcept;
  /// Reports to the exchange that this side is connected to the offered endpoint and can receive.
  void set_connected() noexcept;
  /// Ends the exchange, sends the peer the reason, and returns the error.
  error refuse(const error& why) noexcept;

  [[nodiscard]] int file_descriptor() const noexcept { return file_descriptor_; }
  [[nodiscard]] short events() const noexcept;
  /// The descriptor and the events that an event loop waits for.
  [[nodiscard]] int loop_descriptor() noexcept {
    return descriptor_.get(file_descriptor_, events(), limit_);
  }
  [[nodiscard]] short loop_events() const noexcept;
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return descriptor_.alarm(limit_);
  }
  /// Waits until the socket is ready for `events`, or the limit is reached.
  [[nodiscard]] result<void> wait() noexcept;

 private:
  /// The frame or step for which the exchange waits. `choice` waits for the peer's offer in a
  /// meeting in which the peer chooses: it chooses this connection by sending its offer. `decision`
  /// and `connection` wait for this side's own steps.
  enum class awaited : std::uint8_t {
    hello,
    proof,
    choice,
    decision,
    offer,
    connection,
    ready,
    done,
    nothing
  };

  exchange_core(const exchange_setup& setup, const wait_limit& limit) noexcept;
  void flush() noexcept;
  [[nodiscard]] result<bool> fill() noexcept;
  [[nodiscard]] result<void> check_awaited(std::uint8_t type, std::size_t length) const noexcept;
  [[nodiscard]] result<void> take_frame() noexcept;
  [[nodiscard]] result<void> take_hello(std::span<const std::byte> body) noexcept;
  [[nodiscard]] result<void> take_offer(std::span<const std::byte> body) noexcept;
  [[nodiscard]] bool add_hello() noexcept;
  void add_offer() noexcept;
  void add_frame(std::uint8_t type, std::span<const std::byte> body,
                 std::span<const std::byte> more = {}) noexcept;
  [[nodiscard]] result<void> take_proof(std::span<const std::byte> body) noexcept;
  [[nodiscard]] bool is_accepting() const noexcept {
    return options_.role == exchange_role::accepting;
  }
  [[nodiscard]] awaited behind_greeting() const noexcept;
  [[nodiscard]] std::span<std::byte> body() noexcept;
  [[nodiscard]] result<std::span<const std::byte>> opened() noexcept;
  void tell(const error& why) noexcept;
  [[nodiscard]] error without_more(int errnum) const noexcept;
  [[nodiscard]] error at_limit() const noexcept;

  int file_descriptor_;
  std::span<const field_description> mine_;
  std::span<const field_description> theirs_;
  exchange_options options_;
  bool is_of_equals_;
  /// True if this side ties its channel to the socket; once the peer's hello has arrived, true only
  /// if both sides do so.
  bool is_tied_;
  std::array<std::byte, 16> party_;
  bool lets_choose_ = false;  ///< the peer chooses the connection
  bool has_offer_ = false;    ///< the peer's offer has arrived
  wait_limit limit_;
  session_descriptor descriptor_{};
  std::array<std::byte, 32> nonce_{};
  endpoint local_{};
  endpoint remote_{};
  awaited awaited_ = awaited::hello;
  bool is_over_ = true;    ///< the peer knows the outcome, or cannot be notified
  int broken_output_ = 0;  ///< the errno of the send that failed; EIO if encryption failed
  std::optional<error> failure_{};

  // All buffers are in this one allocation. Its size depends only on the types of the values, and
  // never on data that was received.
  owned<std::byte[]> memory_{};
  std::span<std::byte> values_{};
  std::span<std::byte> output_{};
  std::span<std::byte> input_{};
  std::span<std::byte> own_hello_{};  ///< this side's hello frame, as it was sent
  owned<frame_seal> seal_{};          ///< empty without a secret
  std::size_t output_at_ = 0;
  std::size_t output_end_ = 0;
  std::size_t input_size_ = 0;
  std::span<const std::byte> offered_values_{};
};

}  // namespace verbspp::detail
