// SPDX-License-Identifier: Apache-2.0
#include "qp/addressing.hpp"
#include "qp/attribute_name.hpp"
#include <verbspp/qp/modification.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbspp::detail {

namespace {

constexpr std::size_t states = IBV_QPS_ERR + 1;

constexpr std::string_view name_of(std::size_t state) noexcept {
  return to_string(static_cast<queue_pair_state>(state));
}

/// "modify INIT -> RTR" and so on, for every pair of states.
constexpr auto names_of_transitions = [] {
  using namespace std::string_view_literals;
  constexpr std::size_t longest = "modify RESET -> RESET"sv.size() + 1;
  std::array<std::array<std::array<char, longest>, states>, states> names{};
  for (std::size_t from = 0; from < states; ++from)
    for (std::size_t to = 0; to < states; ++to) {
      char* end = names[from][to].data();
      for (const std::string_view part : {"modify "sv, name_of(from), " -> "sv, name_of(to)})
        for (const char each : part) *end++ = each;
    }
  return names;
}();

const char* transition_name(queue_pair_state from, queue_pair_state to) noexcept {
  return names_of_transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)].data();
}

const char* usual_cause(int errnum, queue_pair_state to, queue_pair_attribute_set given) noexcept {
  switch (errnum) {
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return given.contains(queue_pair_attribute::path)
                 ? "on RoCE, usually the peer's GID does not resolve: check that its address is "
                   "reachable from this port (ping the IP address behind the GID), and that it is "
                   "the peer's current one"
                 : nullptr;
    case EPERM:
      return given.contains(queue_pair_attribute::qkey)
                 ? "usually the queue key has its highest bit set, which needs CAP_NET_RAW"
                 : nullptr;
    case EINVAL:
      if (given.contains(queue_pair_attribute::alternate_path))
        return "usually the alternate path is wrong or not supported: Linux supports alternate "
               "paths only on InfiniBand ports";
      if (to == queue_pair_state::ready_to_receive && given.contains(queue_pair_attribute::path))
        return "usually the GID index or the port number is wrong, or the path MTU is above the "
               "port's active MTU";
      if (given.contains(queue_pair_attribute::port))
        return given.contains(queue_pair_attribute::access)
                   ? "usually the device does not have the port or the pkey index, or does not "
                     "support the access flags"
                   : "usually the device does not have the port or the pkey index";
      if (given.contains(queue_pair_attribute::ack_timeout))
        return "usually the device does not support the timeout, a retry count or the read depth";
      return "usually the queue pair is not in the state in which this transition begins (after a "
             "failure, the device itself moves it to ERR or SQE, as query_state() and ibv_query_qp "
             "report), or the device does not support one of the attributes";
    default:
      return nullptr;
  }
}

/// Adapts the endpoint and the parameters to a different port.
result<void> move_to_port(endpoint& local, connection_parameters& parameters,
                          const context& context, port_number number,
                          const char* operation) noexcept {
  VERBSPP_TRY(port, context.query_port(number));
  VERBSPP_TRY(addresses, addresses_of(context, port, std::nullopt, operation));
  parameters.port = number;
  parameters.local_gid_index = addresses.index;
  local.link_layer = port.link_layer();
  local.lid = port.lid();
  local.address = addresses.address;
  local.gid_type = addresses.type;
  local.addresses = addresses.offer;
  local.is_address_set_by_hand = false;  // a GID index belongs to its port
  local.mtu = parameters.mtu ? std::min(*parameters.mtu, port.active_mtu()) : port.active_mtu();
  return success();
}

error no_queue_pair(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "this queue pair was moved from, or consumed by an earlier call"};
}

/// Makes the transition with these attributes, to which it adds only the state. On success, stores
/// `local` and `parameters` in the queue pair.
result<void> apply(queue_pair_data& queue_pair, queue_pair_state from, queue_pair_state to,
                   ibv_qp_attr attributes, queue_pair_attribute_set given, const endpoint& local,
                   const connection_parameters& parameters) noexcept {
  attributes.qp_state = static_cast<ibv_qp_state>(to);
  const int errnum =
      errno_of(ibv_modify_qp(queue_pair.owner.native(), &attributes, given.bits | IBV_QP_STATE));
  if (errnum != 0)
    return error::from_errno(errnum, transition_name(from, to), usual_cause(errnum, to, given));
  queue_pair.local = local;
  queue_pair.parameters = parameters;
  if (given.contains(queue_pair_attribute::send_psn))
    queue_pair.local.send_psn = packet_sequence_number::assume(attributes.sq_psn);
  if (given.contains(queue_pair_attribute::qkey))
    queue_pair.local.qkey = queue_key::assume(attributes.qkey);
  return success();
}

/// If the attributes move the queue pair to a different port, adopts the addresses of that port.
result<void> follow_port(endpoint& local, connection_parameters& parameters, const context& context,
                         const ibv_qp_attr& attributes, queue_pair_attribute_set given,
                         const char* operation) noexcept {
  if (!given.contains(queue_pair_attribute::port)) return success();
  const auto number = port_number::assume(attributes.port_num);
  if (number == parameters.port) return success();
  return move_to_port(local, parameters, context, number, operation);
}

constexpr int bits_of_a_mask = 32;

/// One sentence for each attribute, indexed by the attribute's bit.
template <std::size_t Prefix>
constexpr auto sentences(const char (&prefix)[Prefix]) noexcept {
  constexpr std::size_t longest_name = 24;
  std::array<std::array<char, Prefix + longest_name>, bits_of_a_mask> made{};
  for (int bit = 0; bit < bits_of_a_mask; ++bit) {
    char* end = made[static_cast<std::size_t>(bit)].data();
    for (const char each : std::string_view(prefix)) *end++ = each;
    const auto attribute = static_cast<queue_pair_attribute>(1U << static_cast<unsigned>(bit));
    for (const char each : std::string_view(attribute_name(attribute))) *end++ = each;
  }
  return made;
}
constexpr auto missing_attribute =
    sentences("this transition requires an attribute that is missing: ");
constexpr auto strange_attribute =
    sentences("this transition does not accept an attribute in the mask: ");

error wrong_attribute(const char* operation, const auto& sentence, int attributes) noexcept {
  const int first = std::countr_zero(static_cast<unsigned>(attributes));
  return {error_kind::invalid_input, operation, sentence[static_cast<std::size_t>(first)].data()};
}

}  // namespace

result<void> modify(queue_pair_data& queue_pair, queue_pair_state from, queue_pair_state to,
                    const attribute_values& values) noexcept {
  const char* const operation = transition_name(from, to);
  if (queue_pair.owner.native() == nullptr) return no_queue_pair(operation);
  endpoint local = queue_pair.local;
  connection_parameters parameters = queue_pair.parameters;
  ibv_qp_attr attributes = values.native;
  const context& context = queue_pair.owner.domain().context();
  VERBSPP_TRYV(follow_port(local, parameters, context, attributes, values.given, operation));
  if (values.way) {
    VERBSPP_TRYV(check_path(*values.way, local.link_layer, operation));
    attributes.ah_attr = values.way->native(parameters.port);
  }
  if (values.alternate) {
    const auto number = port_number::assume(attributes.alt_port_num);
    VERBSPP_TRY(port, context.query_port(number));
    VERBSPP_TRYV(check_path(*values.alternate, port.link_layer(), operation));
    attributes.alt_ah_attr = values.alternate->native(number);
  }
  return apply(queue_pair, from, to, attributes, values.given, local, parameters);
}

result<void> modify_native(queue_pair_data& queue_pair, queue_pair_state from, queue_pair_state to,
                           const ibv_qp_attr& attributes, int mask) noexcept {
  const char* const operation = transition_name(from, to);
  if (queue_pair.owner.native() == nullptr) return no_queue_pair(operation);
  if ((mask & IBV_QP_STATE) != 0 &&
      number_of(attributes.qp_state) != static_cast<std::uint32_t>(to))
    return error(error_kind::invalid_input, operation,
                 "the attributes are for a transition to another state: see their qp_state");
  VERBSPP_TRYV(check_modification(static_cast<ibv_qp_type>(queue_pair.local.type),
                                  static_cast<ibv_qp_state>(from), static_cast<ibv_qp_state>(to),
                                  mask));
  endpoint local = queue_pair.local;
  connection_parameters parameters = queue_pair.parameters;
  const auto given = queue_pair_attribute_set::from_bits(mask & ~IBV_QP_STATE);
  VERBSPP_TRYV(follow_port(local, parameters, queue_pair.owner.domain().context(), attributes,
                           given, operation));
  return apply(queue_pair, from, to, attributes, given, local, parameters);
}

}  // namespace verbspp::detail

namespace verbspp {

result<void> check_modification(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                int attr_mask) noexcept {
  const std::uint32_t before = detail::number_of(from);
  const std::uint32_t after = detail::number_of(to);
  if (before >= detail::states || after >= detail::states)
    return error::out_of_range("ibv_modify_qp", "queue pair state (0..6)",
                               before >= detail::states ? before : after);
  const char* const operation = detail::transition_name(static_cast<queue_pair_state>(before),
                                                        static_cast<queue_pair_state>(after));
  const auto taken = transition(type, from, to);
  if (!taken)
    return error(error_kind::invalid_input, operation,
                 "the library does not know this transition for this type of queue pair: see the "
                 "state diagram in docs/queue_pair_states.md");
  if (const int missing = taken->required & ~attr_mask; missing != 0)
    return detail::wrong_attribute(operation, detail::missing_attribute, missing);
  if (const int strange = attr_mask & ~(taken->required | taken->optional | IBV_QP_STATE);
      strange != 0)
    return detail::wrong_attribute(operation, detail::strange_attribute, strange);
  return success();
}

result<void> modify_native(ibv_qp* queue_pair, const ibv_qp_attr& attributes,
                           int attr_mask) noexcept {
  if (queue_pair == nullptr)
    return error(error_kind::invalid_input, "ibv_modify_qp",
                 "there is no queue pair to modify: the pointer is null");
  ibv_qp_state from = attributes.cur_qp_state;
  if ((attr_mask & IBV_QP_CUR_STATE) == 0) {
    VERBSPP_TRY(status, detail::query(queue_pair));
    from = static_cast<ibv_qp_state>(status.state());
  }
  ibv_qp_attr complete = attributes;
  if ((attr_mask & IBV_QP_STATE) == 0) complete.qp_state = from;
  VERBSPP_TRYV(check_modification(queue_pair->qp_type, from, complete.qp_state, attr_mask));
  const int errnum =
      detail::errno_of(ibv_modify_qp(queue_pair, &complete, attr_mask | IBV_QP_STATE));
  if (errnum == 0) return success();
  const auto to = static_cast<queue_pair_state>(complete.qp_state);
  return error::from_errno(
      errnum, detail::transition_name(static_cast<queue_pair_state>(from), to),
      detail::usual_cause(errnum, to, queue_pair_attribute_set::from_bits(attr_mask)));
}

}  // namespace verbspp
