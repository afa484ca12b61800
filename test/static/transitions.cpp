// SPDX-License-Identifier: Apache-2.0

// Checks every transport, every pair of states and every attribute except the rate limit. A setter
// must exist if and only if the table contains the attribute, and a queue pair must accept the
// attributes if and only if no required one is missing.

#include <verbspp/qp/queue_pair.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace {

using namespace verbspp;

/// Sets an attribute. Does not compile if there is no such setter.
template <queue_pair_attribute Which>
struct setter;

#define SETTER(name, ...)                                                                \
  template <>                                                                            \
  struct setter<queue_pair_attribute::name> {                                            \
    template <class Attributes>                                                          \
    auto operator()(const Attributes& given) const -> decltype(given.name(__VA_ARGS__)); \
  }
SETTER(current_state);
SETTER(notify_when_drained);
SETTER(access, access_flags{});
SETTER(pkey_index, pkey_index{});
SETTER(port, port_number{});
SETTER(qkey, queue_key{});
SETTER(path, roce_path{});
SETTER(path_mtu, path_mtu{});
SETTER(ack_timeout, ack_timeout{});
SETTER(ack_retry_count, retry_count{});
SETTER(rnr_retry_count, rnr_retry_count{});
SETTER(receive_psn, packet_sequence_number{});
SETTER(max_reads_as_initiator, read_depth{});
SETTER(alternate_path, std::declval<const alternate_path&>());
SETTER(min_rnr_timer, min_rnr_timer{});
SETTER(send_psn, packet_sequence_number{});
SETTER(max_reads_as_target, read_depth{});
SETTER(path_migration, path_migration_state::armed);
SETTER(destination, queue_pair_number{});
#undef SETTER

template <class Attributes, queue_pair_attribute Which>
concept Sets = requires(const Attributes& given, const setter<Which>& set) { set(given); };

template <class QueuePair, class Attributes>
concept Transits = requires(QueuePair queue_pair, const Attributes& attributes) {
  std::move(queue_pair).modify(attributes);
};
template <class QueuePair, class Attributes>
concept Modifies = requires(QueuePair& queue_pair, const Attributes& attributes) {
  queue_pair.modify(attributes);
};

/// True if the setter exists exactly when the table contains the attribute, and cannot be called
/// twice.
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

/// If the transition exists, its required attributes must be sufficient, and each of them must be
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

// Only an attribute that is optional for the transition can be given as a std::optional.
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
