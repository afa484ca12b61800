// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
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

/// What an exchange is about to do.
enum class exchange_step : std::uint8_t {
  waiting,  ///< for the socket
  greeted,  ///< the peer is one to be connected to: set what it shall get, and offer it
  offered,  ///< the peer's endpoint and values are here: connect, then say so
  done,
};

class frame_seal;

/// What each side sends, and may receive.
struct exchange_setup {
  int file_descriptor = -1;
  std::span<const field_description> mine{};    ///< live as long as the program
  std::span<const field_description> theirs{};  ///< likewise
  std::size_t largest_mine = 0;                 ///< of the values that are written, in bytes
  std::size_t largest_theirs = 0;               ///< likewise
  exchange_options options{};
  /// Both ends connect to each other: the greater number chooses the connection.
  bool is_of_equals = false;
  std::array<std::byte, 16> party{};
};

/// One side of an exchange, whatever it connects and whatever values it sends. docs/exchange.md has
/// the protocol.
class exchange_core {
 public:
  /// \errors `invalid_input` for options that cannot travel, `resource_exhausted`
  [[nodiscard]] static result<owned<exchange_core>> create(const exchange_setup& setup,
                                                           const wait_limit& limit) noexcept;
  exchange_core(const exchange_core&) = delete;
  exchange_core& operator=(const exchange_core&) = delete;
  /// One that has not come to an end tells the peer that it is given up.
  ~exchange_core();

  /// Where the values go that this side sends, before `offer`; then their size is set.
  [[nodiscard]] std::span<std::byte> values() noexcept { return values_; }
  void set_mine(const endpoint& local, std::size_t size_of_values) noexcept;

  /// Does what can be done without waiting.
  [[nodiscard]] result<exchange_step> advance() noexcept;
  /// The peer gets the endpoint and the values.
  void offer() noexcept;
  /// The next step is this side's `offer`.
  [[nodiscard]] bool is_greeted() const noexcept { return awaited_ == awaited::decision; }
  /// The peer has said what it is, and proven the secret if there is one.
  [[nodiscard]] bool has_greeted() const noexcept { return awaited_ > awaited::proof; }
  /// Among equals: the peer chooses the connection, and has done so when this is greeted.
  [[nodiscard]] bool lets_choose() const noexcept { return lets_choose_; }
  /// What the peer offered, when that is the step.
  [[nodiscard]] const endpoint& remote() const noexcept { return remote_; }
  [[nodiscard]] std::span<const std::byte> theirs() const noexcept { return offered_values_; }
  /// The offered endpoint is connected to: this side can receive.
  void set_connected() noexcept;
  /// Ends it, and tells the peer why; returns the error.
  error refuse(const error& why) noexcept;

  [[nodiscard]] int file_descriptor() const noexcept { return file_descriptor_; }
  [[nodiscard]] short events() const noexcept;
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return limit_.sleep_until(); }
  /// Until the socket is ready for `events`, or the limit has passed.
  [[nodiscard]] result<void> wait() noexcept;

 private:
  /// The frame that comes next, which as a `choice` is the offer; `decision` and `connection` are
  /// what this side does itself.
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
  std::array<std::byte, 16> party_;
  bool lets_choose_ = false;  ///< the peer chooses the connection
  bool has_offer_ = false;    ///< the peer's came before this side's went
  wait_limit limit_;
  std::array<std::byte, 32> nonce_{};
  endpoint local_{};
  endpoint remote_{};
  awaited awaited_ = awaited::hello;
  bool is_over_ = true;    ///< the peer knows how it ended, or cannot be told
  int broken_output_ = 0;  ///< the errno with which sending failed
  std::optional<error> failure_{};

  // One allocation, as large as the types say: nothing that arrives decides about memory.
  owned<std::byte[]> memory_{};
  std::span<std::byte> values_{};
  std::span<std::byte> output_{};
  std::span<std::byte> input_{};
  std::span<std::byte> own_hello_{};  ///< as it was sent
  owned<frame_seal> seal_{};          ///< with a secret
  std::size_t output_at_ = 0;
  std::size_t output_end_ = 0;
  std::size_t input_size_ = 0;
  std::span<const std::byte> offered_values_{};
};

}  // namespace verbspp::detail
