// SPDX-License-Identifier: Apache-2.0
// The types of senders, without a sender library such as stdexec.

#include <verbspp/sender.hpp>

#include <stop_token>
#include <type_traits>
#include <utility>

using namespace verbspp;

namespace {

/// Accepts the completions of all senders.
struct receiver {
  void set_value() && noexcept {}
  template <class... Values>
  void set_value(Values&&... /*values*/) && noexcept {}
  template <class Error>
  void set_error(Error&& /*failed*/) && noexcept {}
  void set_stopped() && noexcept {}
};
/// A receiver whose environment has a stop token.
struct stoppable_receiver : receiver {
  struct environment {
    std::stop_token token{};
    [[nodiscard]] std::stop_token query(execution::get_stop_token_t /*query*/) const noexcept {
      return token;
    }
  };
  [[nodiscard]] environment get_env() const noexcept { return {}; }
};

/// Functions from which senders can be created, except for `posts`.
struct sends {
  channel* link;
  auto operator()() const { return link->async_send({}); }
};
struct writes_buffer {
  channel* link;
  registered_buffer<> memory;
  remote_destination to;
  auto operator()() { return link->async_write(std::move(memory), {.remote = to}); }
};
struct waits {
  inbox* messages;
  auto operator()() const { return messages->async_wait(); }
};
struct posts {
  channel* link;
  auto operator()() const { return link->post_send({}); }
};

template <class Function>
using sender_of = decltype(as_sender(std::declval<Function>()));
template <class Sender>
using signatures_of = decltype(Sender::template get_completion_signatures<Sender>());
template <class Sender, class Receiver = receiver>
using operation_of = decltype(std::declval<Sender>().connect(std::declval<Receiver>()));
template <class Function>
concept CanBeSender = requires(Function function) { as_sender(std::move(function)); };
template <class Sender>
concept ConnectsTwice = requires(const Sender& sender) { sender.connect(receiver()); };

// A sender completes with the value or the error of the awaited call, or is stopped.
template <class... Functions>
using completes_by = execution::completion_signatures<Functions...>;
static_assert(std::is_same_v<
              signatures_of<sender_of<sends>>,
              completes_by<execution::set_value_t(completed_work),
                           execution::set_error_t(transport_error), execution::set_stopped_t()>>);
static_assert(
    std::is_same_v<signatures_of<sender_of<writes_buffer>>,
                   completes_by<execution::set_value_t(completed_work, registered_buffer<>),
                                execution::set_error_t(finished<registered_buffer<>>),
                                execution::set_stopped_t()>>);
static_assert(
    std::is_same_v<signatures_of<sender_of<waits>>,
                   completes_by<execution::set_value_t(message), execution::set_error_t(error),
                                execution::set_stopped_t()>>);
static_assert(std::is_same_v<signatures_of<hub_scheduler::sender>,
                             completes_by<execution::set_value_t(), execution::set_stopped_t()>>);

// A sender can be copied, and connected more than once, if its function can be copied and called
// more than once.
static_assert(std::is_copy_constructible_v<sender_of<sends>>);
static_assert(ConnectsTwice<sender_of<sends>>);
static_assert(!std::is_copy_constructible_v<sender_of<writes_buffer>>);
static_assert(std::is_nothrow_move_constructible_v<sender_of<writes_buffer>>);
static_assert(!ConnectsTwice<sender_of<writes_buffer>>);
static_assert(std::is_same_v<sender_of<sends>::sender_concept, execution::sender_tag>);

// An operation state cannot be moved, and its start does not throw.
template <class Operation>
constexpr bool is_operation_state =
    std::is_same_v<typename Operation::operation_state_concept, execution::operation_state_tag> &&
    !std::is_move_constructible_v<Operation> && !std::is_move_assignable_v<Operation> &&
    noexcept(std::declval<Operation&>().start()) && std::is_destructible_v<Operation>;
static_assert(is_operation_state<operation_of<sender_of<sends>>>);
static_assert(is_operation_state<operation_of<sender_of<sends>, stoppable_receiver>>);
static_assert(is_operation_state<operation_of<sender_of<writes_buffer>, stoppable_receiver>>);
static_assert(is_operation_state<operation_of<sender_of<waits>, stoppable_receiver>>);
static_assert(is_operation_state<operation_of<hub_scheduler::sender>>);
// If the receiver has no stop token, the operation state spends no memory on stop requests.
static_assert(sizeof(operation_of<sender_of<sends>>) + sizeof(continuation) <=
              sizeof(operation_of<sender_of<sends>, stoppable_receiver>));

// A sender can be created only from a function whose call can be awaited.
static_assert(CanBeSender<sends>);
static_assert(!CanBeSender<posts>);
static_assert(!CanBeSender<int>);

// A scheduler can be copied, and copying it does not throw.
static_assert(std::is_nothrow_copy_constructible_v<hub_scheduler>);
static_assert(std::is_nothrow_copy_assignable_v<hub_scheduler>);
static_assert(std::is_same_v<decltype(std::declval<const hub_scheduler&>().schedule()),
                             hub_scheduler::sender>);
static_assert(noexcept(std::declval<const hub_scheduler&>().schedule()));

}  // namespace
