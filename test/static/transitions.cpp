// SPDX-License-Identifier: Apache-2.0

// For every transport, every two states and every attribute: the setter exists where the table has
// the attribute, and the queue pair takes the attributes exactly when none is missing.

#include <verbspp/qp/queue_pair.hpp>

#include <cstddef>
#include <utility>

namespace {

using namespace verbspp;

template <class Attributes, attribute Which>
concept Sets = requires(const Attributes& attributes) {
  requires(Which == attribute::current_state && requires { attributes.current_state(); }) ||
              (Which == attribute::notify_when_drained &&
               requires { attributes.notify_when_drained(); }) ||
              (Which == attribute::access && requires { attributes.access(access_flags{}); }) ||
              (Which == attribute::pkey_index &&
               requires { attributes.pkey_index(pkey_index{}); }) ||
              (Which == attribute::port && requires { attributes.port(port_number{}); }) ||
              (Which == attribute::qkey && requires { attributes.qkey(queue_key{}); }) ||
              (Which == attribute::path && requires { attributes.path(roce_path{}); }) ||
              (Which == attribute::path_mtu && requires { attributes.path_mtu(path_mtu{}); }) ||
              (Which == attribute::ack_timeout && requires {
                attributes.ack_timeout(ack_timeout{});
              }) || (Which == attribute::ack_retry_count && requires {
                attributes.ack_retry_count(retry_count{});
              }) || (Which == attribute::rnr_retry_count && requires {
                attributes.rnr_retry_count(rnr_retry_count{});
              }) || (Which == attribute::receive_psn && requires {
                attributes.receive_psn(packet_sequence_number{});
              }) || (Which == attribute::max_reads_as_initiator && requires {
                attributes.max_reads_as_initiator(read_depth{});
              }) || (Which == attribute::alternate_path && requires(const alternate_path& other) {
                attributes.alternate_path(other);
              }) || (Which == attribute::min_rnr_timer && requires {
                attributes.min_rnr_timer(min_rnr_timer{});
              }) || (Which == attribute::send_psn && requires {
                attributes.send_psn(packet_sequence_number{});
              }) || (Which == attribute::max_reads_as_target && requires {
                attributes.max_reads_as_target(read_depth{});
              }) || (Which == attribute::path_migration && requires {
                attributes.path_migration(path_migration_state::armed);
              }) || (Which == attribute::destination && requires {
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
template <transport Transport, queue_pair_state From, queue_pair_state To, attribute Which>
constexpr bool setter_follows_table() {
  constexpr auto taken = transition(static_cast<ibv_qp_type>(Transport),
                                    static_cast<ibv_qp_state>(From), static_cast<ibv_qp_state>(To));
  constexpr int mask = taken ? taken->required | taken->optional : 0;
  constexpr bool expected = (mask & static_cast<int>(Which)) != 0;
  return Sets<queue_pair_attributes<Transport, From, To>, Which> == expected &&
         !Sets<queue_pair_attributes<Transport, From, To, attribute_set(Which)>, Which>;
}

/// Where there is a transition, what is required suffices, and each single attribute of that is
/// necessary.
template <transport Transport, queue_pair_state From, queue_pair_state To, attribute Which>
constexpr bool requirement_follows_table() {
  constexpr auto taken = transition(static_cast<ibv_qp_type>(Transport),
                                    static_cast<ibv_qp_state>(From), static_cast<ibv_qp_state>(To));
  constexpr int required = taken ? taken->required : 0;
  constexpr auto all = attribute_set::from_bits(required);
  constexpr auto others = all - attribute_set(Which);
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

constexpr attribute attributes[] = {attribute::current_state,
                                    attribute::notify_when_drained,
                                    attribute::access,
                                    attribute::pkey_index,
                                    attribute::port,
                                    attribute::qkey,
                                    attribute::path,
                                    attribute::path_mtu,
                                    attribute::ack_timeout,
                                    attribute::ack_retry_count,
                                    attribute::rnr_retry_count,
                                    attribute::receive_psn,
                                    attribute::max_reads_as_initiator,
                                    attribute::alternate_path,
                                    attribute::min_rnr_timer,
                                    attribute::send_psn,
                                    attribute::max_reads_as_target,
                                    attribute::path_migration,
                                    attribute::destination};
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

using all_pairs = std::make_index_sequence<state_count * state_count>;
static_assert(transport_follows_table<transport::rc>(all_pairs()));
static_assert(transport_follows_table<transport::uc>(all_pairs()));
static_assert(transport_follows_table<transport::ud>(all_pairs()));

}  // namespace
