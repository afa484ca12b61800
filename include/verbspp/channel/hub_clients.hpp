// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/hub/detail/hub_turn.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

/// A table of the clients of a server: it has the channel of each client, and the program's data
/// about the client. The table belongs to a hub, and lets only one thread at a time use each
/// client.
///
///     VERBSPP_TRY(clients, hub_clients<account>::create(hub));
///     ... for each client that connects
///     VERBSPP_TRYV(clients.add(std::move(channel), account{...}));
///     ... on each thread
///     VERBSPP_TRY(client, clients.wait(100ms));
///     while (std::optional<message> request = client.next())
///       client.link().post_send(...), client.data()
///
/// The hub holds back the arrivals of a channel until `add` is called, and keeps their order. Then
/// the client gets its first turn, even if it has no messages. Later it gets a turn whenever it has
/// messages or completions, its channel has failed, or `channel_hub::wake` was called for it. While
/// a thread has a client's turn, other threads get other clients; so the messages of a client stay
/// in order, and its channel and data need no lock. Clients take turns in rotation, so a client
/// that sends many messages does not delay the others.
///
/// If the channel of a client is broken, closed or empty at the end of its turn, the client is
/// removed.
///
/// A move-only owner. Destroying it removes all clients; a client in a turn is removed when the
/// turn ends. After a move, the old object is empty: its functions that return a `result` fail
/// (`invalid_input`). A hub has at most one table in its life, and the table can be created only
/// while the hub has no channels. Thread-safe, except that no other call may be in progress when
/// the table is moved or destroyed.
template <class Data>
class hub_clients {
  static_assert(std::is_nothrow_move_constructible_v<Data>,
                "the data of a client is moved into the table, so its type must be movable without "
                "exceptions");

  struct client {
    channel link{};
    std::optional<Data> data{};
  };
  struct table {
    void drop(std::uint32_t index) noexcept {
      client& old = clients.get()[index];
      if (!old.data) return;
      // The channel is destroyed before the data, which may own the socket that the channel
      // watches.
      old.link = channel();
      old.data.reset();
      __atomic_fetch_sub(&size, 1U, __ATOMIC_RELAXED);
    }
    detail::owned<client[]> clients{};
    std::uint32_t size = 0;
  };

 public:
  /// A thread's turn with one client. The turn ends when this object is destroyed, which may be
  /// after the destruction of the table.
  ///
  /// A move-only owner. After a move, the old object has no client: only `operator bool`,
  /// assignment and destruction are allowed.
  class [[nodiscard]] turn {
   public:
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    turn(turn&& other) noexcept : turn_(std::exchange(other.turn_, {})), table_(other.table_) {}
    turn& operator=(turn&& other) noexcept {
      if (this == &other) return *this;
      end();
      turn_ = std::exchange(other.turn_, {});
      table_ = other.table_;
      return *this;
    }
    ~turn() { end(); }

    /// True if it has a client.
    explicit operator bool() const noexcept { return static_cast<bool>(turn_.hub); }
    [[nodiscard]] channel_id id() const noexcept { return turn_.id; }
    [[nodiscard]] channel& link() const noexcept { return self().link; }
    [[nodiscard]] Data& data() const noexcept { return *self().data; }
    /// Returns the next message of those that had arrived before the turn began. Messages that
    /// arrive during the turn belong to the next one. Messages that are not taken are returned
    /// first in the next turn, unless the channel's queue pair was destroyed in this turn, for
    /// instance by `close` or `renew`: in that case, they are dropped when the turn ends.
    [[nodiscard]] std::optional<message> next() noexcept {
      assert(turn_.hub);
      message taken = turn_.next_message();
      if (!taken) return std::nullopt;
      return taken;
    }
    /// Ends the turn, and removes the client.
    void remove() noexcept {
      if (!turn_.hub) return;
      table_->drop(turn_.id.index);
      end();
    }

   private:
    friend hub_clients;

    turn(detail::hub_turn&& taken, table* of) noexcept : turn_(std::move(taken)), table_(of) {
      // Processes the completions, so that the memory of sends is released and failures are
      // detected.
      self().link.poll();
    }
    [[nodiscard]] client& self() const noexcept {
      assert(turn_.hub);
      return table_->clients.get()[turn_.id.index];
    }
    void end() noexcept {
      if (!turn_.hub) return;
      const channel_state state = self().link.state();
      if (state != channel_state::connected && state != channel_state::prepared)
        table_->drop(turn_.id.index);
      while (!turn_.end()) table_->drop(turn_.id.index);
      // Not `turn_ = {}`: in a template, clang 14 would not destroy the parameter of the
      // assignment.
      turn_ = detail::hub_turn();
    }

    detail::hub_turn turn_;
    table* table_;
  };

  /// Creates the table of a hub's clients.
  /// \errors `busy` if the hub has channels, or has or had a table; `invalid_input` if the hub was
  /// moved from; `resource_exhausted`
  [[nodiscard]] static result<hub_clients> create(channel_hub hub) noexcept {
    if (hub.capacity() == 0) return refusal("the hub was moved from");
    auto* const made = new (std::nothrow) table;
    std::unique_ptr<void, void (*)(void*)> owner(
        made, [](void* old) { delete static_cast<table*>(old); });
    if (made != nullptr)
      made->clients = detail::owned<client[]>(new (std::nothrow) client[hub.capacity()]);
    if (made == nullptr || !made->clients) return error::from_errno(ENOMEM, what);
    VERBSPP_TRYV(detail::hub_turn::keep(hub.state_, std::move(owner)));
    return hub_clients(std::move(hub), made);
  }

  hub_clients(const hub_clients&) = delete;
  hub_clients& operator=(const hub_clients&) = delete;
  hub_clients(hub_clients&& other) noexcept
      : hub_(std::move(other.hub_)), table_(std::exchange(other.table_, nullptr)) {}
  hub_clients& operator=(hub_clients&& other) noexcept {
    if (this == &other) return *this;
    close();
    hub_ = std::move(other.hub_);
    table_ = std::exchange(other.table_, nullptr);
    return *this;
  }
  ~hub_clients() { close(); }

  /// Adds a client, whose channel belongs to the hub. The client gets its first turn immediately.
  /// \returns the id of its channel
  /// \errors `invalid_input` if the channel is empty or does not belong to the hub, or if the table
  /// was moved from; the channel and the data are then destroyed
  result<channel_id> add(channel link, Data data = Data()) noexcept {
    if (table_ == nullptr) return refusal("the table was moved from");
    const channel_id id = link.id();
    if (id.generation == 0 || link.core().connection().settings().hub != hub_.state_)
      return refusal("the channel is empty or does not use this hub: build it with .hub(hub)");
    client& added = table_->clients.get()[id.index];
    added.link = std::move(link);
    added.data.emplace(std::move(data));
    __atomic_fetch_add(&table_->size, 1U, __ATOMIC_RELAXED);
    detail::hub_turn::admit(hub_.state_, id.index);
    return id;
  }

  /// Waits for a client that has arrivals, in the hub's wait mode.
  /// \errors as `channel_hub::wait`
  [[nodiscard]] result<turn> wait(call_limit limit) noexcept {
    if (table_ == nullptr) return refusal("the table was moved from");
    VERBSPP_TRY(taken, detail::hub_turn::wait(hub_.state_, limit));
    return turn(std::move(taken), table_);
  }
  /// Like `wait`, but does not wait for arrivals: returns an empty value if no client has any.
  /// \errors as `channel_hub::poll`
  [[nodiscard]] result<std::optional<turn>> poll() noexcept {
    if (table_ == nullptr) return refusal("the table was moved from");
    VERBSPP_TRY(taken, detail::hub_turn::poll(hub_.state_));
    if (!taken.hub) return std::optional<turn>();
    return std::optional<turn>(turn(std::move(taken), table_));
  }
  /// The descriptor for event loops: the hub's `file_descriptor`. When it is readable, call `poll`
  /// until that returns an empty value, and end each turn before the next call of
  /// `request_notification`.
  ///
  ///     VERBSPP_TRY(has_news, clients.request_notification());
  ///     if (!has_news) ... sleep until the descriptor is readable, or the deadline
  ///     for (;;) {
  ///       VERBSPP_TRY(client, clients.poll());
  ///       if (!client) break;
  ///       ...
  ///     }
  [[nodiscard]] int file_descriptor() const noexcept { return hub_.file_descriptor(); }
  /// Like `channel_hub::request_notification`.
  [[nodiscard]] result<bool> request_notification() noexcept {
    if (table_ == nullptr) return refusal("the table was moved from");
    return hub_.request_notification();
  }
  /// Like `channel_hub::deadline`.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return hub_.deadline(); }

  /// Takes the turn of this client, after waiting until any other turn of the client has ended. Two
  /// threads can block each other if each has a turn and waits for the other's client; they then
  /// wait until a limit is reached, so the limit should be short.
  /// \errors `not_connected` if no client has this id, or if it was removed; `timed_out`;
  /// `cancelled`
  [[nodiscard]] result<turn> find(channel_id id, const wait_limit& limit) noexcept {
    if (table_ == nullptr) return refusal("the table was moved from");
    for (;;) {
      detail::hub_turn taken = id.index < hub_.capacity()
                                   ? detail::hub_turn::of(hub_.state_, id.index)
                                   : detail::hub_turn();
      // The index of an id whose generation is 0 may be that of a place without a client.
      if (taken.id != id || id.generation == 0) {
        if (taken.hub) static_cast<void>(taken.end());
        return error(error_kind::not_connected, what,
                     "no client of the table has this id, or the client was removed");
      }
      if (taken.hub) return turn(std::move(taken), table_);
      if (limit.has_passed())
        return limit.failure(
            what,
            "another turn of the client has not ended: end that turn first, or allow more time");
      detail::hub_turn::pause();
    }
  }
  /// Calls `function` with the turn of each client in the table, one after the other.
  /// \errors as `find`, if another turn of a client lasts until the limit; `function` is then not
  /// called for the remaining clients
  template <class Function>
  result<void> for_each(Function&& function, const wait_limit& limit) noexcept(
      std::is_nothrow_invocable_v<Function&, turn&>) {
    if (table_ == nullptr) return refusal("the table was moved from");
    for (std::uint32_t index = 0; index < hub_.capacity(); ++index) {
      detail::hub_turn taken = detail::hub_turn::of(hub_.state_, index);
      if (taken.id.generation == 0) continue;
      result<turn> one =
          taken.hub ? result<turn>(turn(std::move(taken), table_)) : find(taken.id, limit);
      if (one.has_value())
        function(one.assume_value());
      else if (one.assume_error() != error_kind::not_connected)
        return one.assume_error();
    }
    return success();
  }

  /// The number of clients.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return table_ != nullptr ? __atomic_load_n(&table_->size, __ATOMIC_RELAXED) : 0;
  }
  [[nodiscard]] const channel_hub& hub() const noexcept { return hub_; }

 private:
  static constexpr const char* what = "hub_clients";
  static error refusal(const char* why) noexcept { return {error_kind::invalid_input, what, why}; }

  hub_clients(channel_hub hub, table* kept) noexcept : hub_(std::move(hub)), table_(kept) {}

  void close() noexcept {
    if (table_ == nullptr) return;
    for (std::uint32_t index = 0; index < hub_.capacity(); ++index) {
      detail::hub_turn taken = detail::hub_turn::of(hub_.state_, index);
      if (taken.hub) turn(std::move(taken), table_).link().stop();
    }
    detail::hub_turn::close_table(hub_.state_);
    for (std::uint32_t index = 0; index < hub_.capacity(); ++index) {
      detail::hub_turn taken = detail::hub_turn::of(hub_.state_, index);
      // Ending the turn removes the client, since the table is closed.
      if (taken.hub) static_cast<void>(turn(std::move(taken), table_));
    }
    table_ = nullptr;
  }

  channel_hub hub_;
  table* table_;  ///< the hub owns it, since turns may outlive this object
};

}  // namespace verbspp
