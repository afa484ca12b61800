// SPDX-License-Identifier: Apache-2.0

// Checks which operations the type of a queue pair permits, and what its accessors return.

#include <verbspp/qp/queue_pair.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace {

using namespace verbspp;
// `error` is not listed here because a type has the same name.
using queue_pair_state::init;
using queue_pair_state::ready_to_receive;
using queue_pair_state::ready_to_send;
using queue_pair_state::reset;
using queue_pair_state::send_queue_drained;
using queue_pair_state::send_queue_error;

template <class QueuePair>
concept Receives = requires(QueuePair& queue_pair, const receive_operation& request) {
  queue_pair.post_receive(request);
};
template <class QueuePair>
concept Sends = requires(QueuePair& queue_pair, const send_operation& request) {
  queue_pair.post_send(request);
};
template <class QueuePair>
concept Writes = requires(QueuePair& queue_pair, const write_operation& request) {
  queue_pair.post_write(request);
};
template <class QueuePair>
concept Reads = requires(QueuePair& queue_pair, const read_operation& request) {
  queue_pair.post_read(request);
};
template <class QueuePair>
concept ShakesHands = requires(QueuePair queue_pair, const endpoint& remote) {
  std::move(queue_pair).handshake(remote);
};
template <class QueuePair>
concept ShakesHandsWithoutMove =
    requires(QueuePair& queue_pair, const endpoint& remote) { queue_pair.handshake(remote); };

template <class QueuePair, memory_window_type Type = memory_window_type::type_2>
concept Binds = requires(QueuePair& queue_pair, memory_window<Type>& window,
                         const window_part<access::remote_read>& part) {
  {
    queue_pair.post_bind(window, part, {.id = 1})
  } -> std::same_as<result<remote_memory<access::remote_read>>>;
};

template <queue_pair_state State>
using rc = queue_pair<transport::rc, State>;

static_assert(!Receives<rc<reset>>);
static_assert(Receives<rc<init>>);
static_assert(Receives<rc<ready_to_receive>>);
static_assert(Receives<rc<ready_to_send>>);
static_assert(Receives<rc<send_queue_drained>>);
static_assert(Receives<rc<send_queue_error>>);
static_assert(Receives<rc<queue_pair_state::error>>);

template <class QueuePair>
concept SendsNothing =
    !Sends<QueuePair> && !Writes<QueuePair> && !Reads<QueuePair> && !Binds<QueuePair>;

static_assert(SendsNothing<rc<reset>>);
static_assert(SendsNothing<rc<init>>);
static_assert(SendsNothing<rc<ready_to_receive>>);
static_assert(Sends<rc<ready_to_send>>);
static_assert(Writes<rc<ready_to_send>>);
static_assert(Reads<rc<ready_to_send>>);

static_assert(Binds<rc<ready_to_send>>);
static_assert(Binds<rc<ready_to_send>, memory_window_type::type_1>);
static_assert(Binds<queue_pair<transport::uc, ready_to_send>>);
static_assert(Binds<queue_pair<transport::uc, ready_to_send>, memory_window_type::type_1>);
static_assert(!Binds<queue_pair<transport::ud, ready_to_send>>, "no peer could use the window");
static_assert(!Binds<queue_pair<transport::ud, ready_to_send>, memory_window_type::type_1>);

static_assert(!ShakesHands<rc<reset>>);
static_assert(ShakesHands<rc<init>>);
static_assert(!ShakesHands<rc<ready_to_receive>>);
static_assert(!ShakesHands<rc<ready_to_send>>);
static_assert(!ShakesHands<rc<queue_pair_state::error>>);
static_assert(!ShakesHandsWithoutMove<rc<init>>, "the handshake consumes the queue pair");
static_assert(!ShakesHandsWithoutMove<const rc<init>>);
static_assert(!ShakesHands<const rc<init>>);

static_assert(std::is_same_v<prepared_queue_pair<transport::rc>, rc<init>>);
static_assert(std::is_same_v<connected_queue_pair<transport::rc>, rc<ready_to_send>>);
static_assert(std::is_same_v<decltype(std::declval<rc<init>>().handshake(endpoint())),
                             result<rc<ready_to_send>>>);
static_assert(rc<init>::type == transport::rc);
static_assert(rc<init>::state == init);

// On its own, a device moves a queue pair to ERR and SQE, but to no other state.
template <class QueuePair, queue_pair_state Actual>
concept IsAssumed =
    requires(QueuePair queue_pair) { std::move(queue_pair).template assume_state<Actual>(); };
template <transport Transport, queue_pair_state State>
constexpr bool is_assumed_as_the_device_does() {
  using pair = queue_pair<Transport, State>;
  constexpr bool stops =
      Transport != transport::rc && (State == ready_to_send || State == send_queue_drained);
  return !IsAssumed<pair, reset> && !IsAssumed<pair, init> && !IsAssumed<pair, ready_to_receive> &&
         !IsAssumed<pair, ready_to_send> && !IsAssumed<pair, send_queue_drained> &&
         IsAssumed<pair, send_queue_error> == stops &&
         IsAssumed<pair, queue_pair_state::error> == (State != reset);
}
template <transport Transport>
constexpr bool every_state_is_assumed_as_the_device_does() {
  return is_assumed_as_the_device_does<Transport, reset>() &&
         is_assumed_as_the_device_does<Transport, init>() &&
         is_assumed_as_the_device_does<Transport, ready_to_receive>() &&
         is_assumed_as_the_device_does<Transport, ready_to_send>() &&
         is_assumed_as_the_device_does<Transport, send_queue_drained>() &&
         is_assumed_as_the_device_does<Transport, send_queue_error>() &&
         is_assumed_as_the_device_does<Transport, queue_pair_state::error>();
}
static_assert(every_state_is_assumed_as_the_device_does<transport::rc>());
static_assert(every_state_is_assumed_as_the_device_does<transport::uc>());
static_assert(every_state_is_assumed_as_the_device_does<transport::ud>());

// The accessors of a queue pair return references to objects that it stores. The accessors of a
// temporary queue pair return copies.
template <class QueuePair, auto Accessor>
using told_by = decltype(Accessor(std::declval<QueuePair>()));
template <auto Accessor, class QueuePair = rc<init>>
inline constexpr bool copied_from_temporaries =
    std::is_lvalue_reference_v<told_by<QueuePair&, Accessor>> &&
    std::is_lvalue_reference_v<told_by<const QueuePair&, Accessor>> &&
    !std::is_reference_v<told_by<QueuePair, Accessor>> &&
    !std::is_reference_v<told_by<const QueuePair, Accessor>>;
#define TELLS(accessor) \
  [](auto&& object) -> decltype(auto) { return std::forward<decltype(object)>(object).accessor(); }
static_assert(copied_from_temporaries<TELLS(endpoint)>);
static_assert(copied_from_temporaries<TELLS(capacities)>);
static_assert(copied_from_temporaries<TELLS(protection_domain)>);
static_assert(copied_from_temporaries<TELLS(send_completion_queue)>);
static_assert(copied_from_temporaries<TELLS(receive_completion_queue)>);
static_assert(copied_from_temporaries<TELLS(shared_receive_queue),
                                      queue_pair<transport::rc, init, receive_queue_kind::shared>>);
static_assert(copied_from_temporaries<TELLS(attributes), queue_pair_status>);
static_assert(copied_from_temporaries<TELLS(initial), queue_pair_status>);
#undef TELLS

// It is not possible to post to a const queue pair.
static_assert(!Receives<const rc<init>>);
static_assert(!Sends<const rc<ready_to_send>>);
static_assert(!Binds<const rc<ready_to_send>>);

}  // namespace
