// SPDX-License-Identifier: Apache-2.0

// For every transport, every two states and every attribute: the setter exists where the table has
// the attribute, and the queue pair takes the attributes exactly when none is missing.

#include <verbspp/qp/queue_pair.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace {

using namespace verbspp;

template <class Attributes, queue_pair_attribute Which>
concept Sets = requires(const Attributes& attributes) {
  requires(Which == queue_pair_attribute::current_state &&
           requires { attributes.current_state(); }) ||
              (Which == queue_pair_attribute::notify_when_drained &&
               requires { attributes.notify_when_drained(); }) ||
              (Which == queue_pair_attribute::access &&
               requires { attributes.access(access_flags{}); }) ||
              (Which == queue_pair_attribute::pkey_index &&
               requires { attributes.pkey_index(pkey_index{}); }) ||
              (Which == queue_pair_attribute::port &&
               requires { attributes.port(port_number{}); }) ||
              (Which == queue_pair_attribute::qkey && requires { attributes.qkey(queue_key{}); }) ||
              (Which == queue_pair_attribute::path && requires { attributes.path(roce_path{}); }) ||
              (Which == queue_pair_attribute::path_mtu &&
               requires { attributes.path_mtu(path_mtu{}); }) ||
              (Which == queue_pair_attribute::ack_timeout &&
               requires { attributes.ack_timeout(ack_timeout{}); }) ||
              (Which == queue_pair_attribute::ack_retry_count &&
               requires { attributes.ack_retry_count(retry_count{}); }) ||
              (Which == queue_pair_attribute::rnr_retry_count &&
               requires { attributes.rnr_retry_count(rnr_retry_count{}); }) ||
              (Which == queue_pair_attribute::receive_psn &&
               requires { attributes.receive_psn(packet_sequence_number{}); }) ||
              (Which == queue_pair_attribute::max_reads_as_initiator &&
               requires { attributes.max_reads_as_initiator(read_depth{}); }) ||
              (Which == queue_pair_attribute::alternate_path &&
               requires(const alternate_path& other) { attributes.alternate_path(other); }) ||
              (Which == queue_pair_attribute::min_rnr_timer && requires {
                attributes.min_rnr_timer(min_rnr_timer{});
              }) || (Which == queue_pair_attribute::send_psn && requires {
                attributes.send_psn(packet_sequence_number{});
              }) || (Which == queue_pair_attribute::max_reads_as_target && requires {
                attributes.max_reads_as_target(read_depth{});
              }) || (Which == queue_pair_attribute::path_migration && requires {
                attributes.path_migration(path_migration_state::armed);
              }) || (Which == queue_pair_attribute::destination && requires {
                attributes.destination(queue_pair_number{});
              });
};

template <class QueuePair, class Attributes>
concept Transits = requires(QueuePair queue_pair, const Attributes& attributes) {
  std::move(queue_pair).modify(attributes);
};
template <class QueuePair, class Attributes>
concept Modifies = requires(QueuePair& queue_pair, const Attributes& attributes) {
  queue_pair.modify(attributes);
};

/// The setter exists if and only if the table has the attribute, and only once.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute Which>
constexpr bool setter_follows_table() {
  constexpr auto taken = transition(static_cast<ibv_qp_type>(Transport),
                                    static_cast<ibv_qp_state>(From), static_cast<ibv_qp_state>(To));
  constexpr int mask = taken ? taken->required | taken->optional : 0;
  constexpr bool expected = (mask & static_cast<int>(Which)) != 0;
  return Sets<queue_pair_attributes<Transport, From, To>, Which> == expected &&
         !Sets<queue_pair_attributes<Transport, From, To, queue_pair_attribute_set(Which)>, Which>;
}

/// Where there is a transition, what is required suffices, and each single attribute of that is
/// necessary.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute Which>
constexpr bool requirement_follows_table() {
  constexpr auto taken = transition(static_cast<ibv_qp_type>(Transport),
                                    static_cast<ibv_qp_state>(From), static_cast<ibv_qp_state>(To));
  constexpr int required = taken ? taken->required : 0;
  constexpr auto all = queue_pair_attribute_set::from_bits(required);
  constexpr auto others = all - queue_pair_attribute_set(Which);
  using complete = queue_pair_attributes<Transport, From, To, all>;
  using incomplete = queue_pair_attributes<Transport, From, To, others>;
  using queue_pair = verbspp::queue_pair<Transport, From>;
  constexpr bool needed = (required & static_cast<int>(Which)) != 0;
  if constexpr (!taken)
    return !Transits<queue_pair, complete> && !Modifies<queue_pair, complete>;
  else if constexpr (From == To)
    return Modifies<queue_pair, complete> && Modifies<queue_pair, incomplete> == !needed &&
           !Transits<queue_pair, complete>;
  else
    return Transits<queue_pair, complete> && Transits<queue_pair, incomplete> == !needed &&
           !Modifies<queue_pair, complete>;
}

constexpr queue_pair_attribute attributes[] = {queue_pair_attribute::current_state,
                                               queue_pair_attribute::notify_when_drained,
                                               queue_pair_attribute::access,
                                               queue_pair_attribute::pkey_index,
                                               queue_pair_attribute::port,
                                               queue_pair_attribute::qkey,
                                               queue_pair_attribute::path,
                                               queue_pair_attribute::path_mtu,
                                               queue_pair_attribute::ack_timeout,
                                               queue_pair_attribute::ack_retry_count,
                                               queue_pair_attribute::rnr_retry_count,
                                               queue_pair_attribute::receive_psn,
                                               queue_pair_attribute::max_reads_as_initiator,
                                               queue_pair_attribute::alternate_path,
                                               queue_pair_attribute::min_rnr_timer,
                                               queue_pair_attribute::send_psn,
                                               queue_pair_attribute::max_reads_as_target,
                                               queue_pair_attribute::path_migration,
                                               queue_pair_attribute::destination};
constexpr std::size_t attribute_count = std::size(attributes);
constexpr std::size_t state_count = 7;

template <transport Transport, queue_pair_state From, queue_pair_state To, std::size_t... Attribute>
constexpr bool transition_follows_table(std::index_sequence<Attribute...>) {
  return (setter_follows_table<Transport, From, To, attributes[Attribute]>() && ...) &&
         (requirement_follows_table<Transport, From, To, attributes[Attribute]>() && ...);
}

template <transport Transport, std::size_t... Pair>
constexpr bool transport_follows_table(std::index_sequence<Pair...>) {
  return (transition_follows_table<Transport, queue_pair_state(Pair / state_count),
                                   queue_pair_state(Pair % state_count)>(
              std::make_index_sequence<attribute_count>()) &&
          ...);
}

// An optional is for attributes that the transition can do without.
template <class Attributes>
concept TakesOptionalPort =
    requires(const Attributes& attributes, const std::optional<port_number>& number) {
      attributes.port(number);
    };
template <class Attributes>
concept TakesOptionalAccess =
    requires(const Attributes& attributes, const std::optional<access_flags>& rights) {
      attributes.access(rights);
    };
template <class Attributes>
concept TakesOptionalPath = requires(const Attributes& attributes, const std::optional<path>& way) {
  attributes.path(way);
};
using queue_pair_state::init;
using queue_pair_state::ready_to_receive;
using queue_pair_state::reset;
using queue_pair_state::send_queue_drained;
template <queue_pair_state From, queue_pair_state To>
using of_rc = queue_pair_attributes<transport::rc, From, To>;
static_assert(!TakesOptionalPort<of_rc<reset, init>> && !TakesOptionalAccess<of_rc<reset, init>>);
static_assert(TakesOptionalPort<of_rc<init, init>> && TakesOptionalAccess<of_rc<init, init>>);
static_assert(!TakesOptionalPath<of_rc<init, ready_to_receive>> &&
              TakesOptionalAccess<of_rc<init, ready_to_receive>>);
static_assert(TakesOptionalPath<of_rc<send_queue_drained, send_queue_drained>>);

using all_pairs = std::make_index_sequence<state_count * state_count>;
static_assert(transport_follows_table<transport::rc>(all_pairs()));
static_assert(transport_follows_table<transport::uc>(all_pairs()));
static_assert(transport_follows_table<transport::ud>(all_pairs()));

}  // namespace
