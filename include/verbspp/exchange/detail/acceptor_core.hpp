// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/exchange/acceptor_options.hpp>
#include <verbspp/exchange/detail/exchange_core.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp::detail {

/// The part of an acceptor that does not depend on the types of the objects that it connects. Each
/// client has a place, which is an index. The derived class stores the objects of a client at that
/// index.
class acceptor_core {
 public:
  acceptor_core(const acceptor_core&) = delete;
  acceptor_core& operator=(const acceptor_core&) = delete;
  virtual ~acceptor_core();

  /// Starts to accept clients through the listener.
  /// \errors as `accept_exchanges`
  [[nodiscard]] result<void> open(tcp_listener listener) noexcept;
  [[nodiscard]] result<void> poll() noexcept;
  [[nodiscard]] result<void> wait(const wait_limit& limit) noexcept;
  /// True if a connected client waits to be taken.
  [[nodiscard]] bool has_done() const noexcept { return done_.first != none; }
  /// Removes the first client from the queue of connected clients, and returns its place; returns
  /// nothing if the queue is empty. The caller then calls `take_socket` and `free_place`.
  [[nodiscard]] std::optional<std::uint32_t> next_done() noexcept;
  [[nodiscard]] tcp_socket take_socket(std::uint32_t place) noexcept;
  /// Makes the place available to other clients.
  void free_place(std::uint32_t place) noexcept;
  /// Sets the listener's events and the timer, so that the descriptor becomes readable when
  /// `poll` has work to do. Call it after `free_place`, which may make room for another client.
  void watch() noexcept;
  void stop() noexcept;

  [[nodiscard]] bool is_stopped() const noexcept { return !listener_.is_open(); }
  [[nodiscard]] int file_descriptor() const noexcept { return events_.descriptor(); }
  [[nodiscard]] std::uint32_t under_way() const noexcept { return under_way_; }
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }
  [[nodiscard]] const std::optional<error>& last_failure() const noexcept { return last_failure_; }
  [[nodiscard]] const gid& last_failed_client() const noexcept { return last_failed_client_; }

 protected:
  acceptor_core(const acceptor_options& options, const exchange_setup& setup) noexcept
      : options_(options), setup_(setup) {
    setup_.options.role = exchange_role::accepting;
  }

  /// Creates the object to which the client will be connected, and sets the values to send to it.
  [[nodiscard]] virtual result<void> prepare(std::uint32_t place, exchange_core& core) noexcept = 0;
  /// Connects the object that `prepare` created to the client's endpoint.
  [[nodiscard]] virtual result<void> connect(std::uint32_t place, exchange_core& core) noexcept = 0;
  /// Destroys the objects that were prepared for this client.
  virtual void drop(std::uint32_t place) noexcept = 0;

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  enum class client_state : std::uint8_t { free, speaking, waiting, shaking_hands, done };
  struct neighbours {
    std::uint32_t before = none;
    std::uint32_t behind = none;
  };
  struct client {
    tcp_socket socket{};
    gid address{};  ///< zero if the client is not connected by IP
    owned<exchange_core> core{};
    client_state state = client_state::free;
    std::uint32_t watched = 0;  ///< the events that epoll waits for
    std::uint32_t next = none;  ///< the next place in the queue of free, waiting or done places
    neighbours under_way{};
    neighbours speaking{};
    std::chrono::steady_clock::time_point came{};
  };
  /// A list of places, oldest first.
  struct age_list {
    neighbours client::* links;
    std::uint32_t oldest = none;
    std::uint32_t newest = none;
  };
  /// A queue of places, first in, first out.
  struct place_queue {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };

  void push(place_queue& queue, std::uint32_t place) noexcept;
  [[nodiscard]] std::uint32_t pop(place_queue& queue) noexcept;
  void remove(place_queue& queue, std::uint32_t place) noexcept;
  void enter(age_list& list, std::uint32_t place) noexcept;
  void leave(age_list& list, std::uint32_t place) noexcept;
  [[nodiscard]] std::chrono::steady_clock::time_point next_place() const noexcept;
  [[nodiscard]] bool make_room() noexcept;
  [[nodiscard]] result<void> accept_some() noexcept;
  void take(tcp_socket socket) noexcept;
  void serve(std::uint32_t place) noexcept;
  void serve_step(std::uint32_t place) noexcept;
  void finish(std::uint32_t place) noexcept;
  void fail(std::uint32_t place, const error& why) noexcept;
  void fail_late(std::uint32_t place) noexcept;
  void note_failure(const error& why, const gid& address) noexcept;
  void watch_client(std::uint32_t place) noexcept;
  void watch_listener() noexcept;
  void end_events(int socket) noexcept;
  void set_timer() noexcept;
  [[nodiscard]] bool may_accept() const noexcept;

  acceptor_options options_;
  exchange_setup setup_;
  tcp_listener listener_{};
  tcp_socket events_{};  ///< the epoll descriptor
  tcp_socket timer_{};
  bool listens_ = false;  ///< epoll watches the listener
  bool is_preparing_ = false;
  owned<client[]> clients_{};
  place_queue free_{};
  place_queue waiting_{};
  place_queue done_{};
  /// All exchanges in progress. They all have the same time limit, so the oldest exchange reaches
  /// its limit first.
  age_list under_way_list_{.links = &client::under_way};
  /// The clients that have not introduced themselves yet, or have not proven that they know the
  /// secret.
  age_list speaking_list_{.links = &client::speaking};
  std::uint32_t under_way_ = 0;
  std::uint32_t shaking_hands_ = 0;
  std::uint64_t failed_ = 0;
  std::optional<error> last_failure_{};
  gid last_failed_client_{};
  /// The earliest time at which the next client may be accepted.
  std::chrono::steady_clock::time_point next_accept_{};
  std::chrono::steady_clock::time_point timer_set_to_{};
};

}  // namespace verbspp::detail
