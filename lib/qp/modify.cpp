// SPDX-License-Identifier: Apache-2.0
#include "qp/addressing.hpp"
#include <verbspp/qp/queue_pair.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>

namespace verbspp::detail {

namespace {

constexpr std::size_t states = IBV_QPS_ERR + 1;

constexpr std::string_view name_of(std::size_t state) noexcept {
  return to_string(static_cast<queue_pair_state>(state));
}

/// "modify INIT -> RTR" and so on, for every two states.
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

const char* name_of(queue_pair_state from, queue_pair_state to) noexcept {
  return names_of_transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)].data();
}

const char* usual_cause(int errnum, queue_pair_state to, queue_pair_attribute_set given) noexcept {
  switch (errnum) {
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "the peer's GID or LID does not resolve: check that its address is reachable from "
             "this port (ping the IP address behind the GID), and that it is the peer's present "
             "one";
    case EPERM:
      return given.contains(queue_pair_attribute::qkey)
                 ? "a queue key with its highest bit set needs CAP_NET_RAW"
                 : nullptr;
    case EINVAL:
      if (to == queue_pair_state::ready_to_receive && given.contains(queue_pair_attribute::path))
        return "usually the GID index, the path MTU (above a port's active MTU) or the port number";
      if (given.contains(queue_pair_attribute::alternate_path))
        return "Linux takes alternate paths on InfiniBand ports only";
      if (given.contains(queue_pair_attribute::ack_timeout))
        return "usually a timeout, retry count or read depth that the device does not take";
      return "usually the queue pair is in another state than its type says: a failure moves it to "
             "ERR or SQE by itself, which query_state() tells";
    default:
      return nullptr;
  }
}

/// What `local` becomes at another port.
result<void> move_to_port(endpoint& local, connection_parameters& parameters,
                          const context& context, port_number number,
                          const char* operation) noexcept {
  VERBSPP_TRY(port, context.query_port(number));
  VERBSPP_TRY(gid, best_gid(context, port, operation));
  parameters.port = number;
  parameters.local_gid_index = gid.index;
  local.link_layer = port.link_layer();
  local.lid = port.lid();
  local.address = gid.address;
  local.gid_type = gid.type;
  local.mtu = parameters.mtu ? std::min(*parameters.mtu, port.active_mtu()) : port.active_mtu();
  return success();
}

}  // namespace

result<void> modify(queue_pair_data& queue_pair, queue_pair_state from, queue_pair_state to,
                    const attribute_values& values) noexcept {
  const queue_pair_attribute_set given = values.given;
  const char* const operation = name_of(from, to);
  ibv_qp* const native = queue_pair.owner.native();
  if (native == nullptr)
    return error(error_kind::invalid_input, operation,
                 "this queue pair was moved from, or consumed by a transition");
  endpoint local = queue_pair.local;
  connection_parameters parameters = queue_pair.parameters;
  ibv_qp_attr attributes = values.native;
  attributes.qp_state = static_cast<ibv_qp_state>(to);
  const context& context = queue_pair.owner.domain().context();
  if (given.contains(queue_pair_attribute::port)) {
    const auto number = port_number::assume(attributes.port_num);
    if (number != parameters.port)
      VERBSPP_TRYV(move_to_port(local, parameters, context, number, operation));
  }
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
  const int errnum = errno_of(ibv_modify_qp(native, &attributes, given.bits | IBV_QP_STATE));
  if (errnum != 0) return error::from_errno(errnum, operation, usual_cause(errnum, to, given));

  if (given.contains(queue_pair_attribute::send_psn))
    local.send_psn = packet_sequence_number::assume(attributes.sq_psn);
  if (given.contains(queue_pair_attribute::qkey)) local.qkey = queue_key::assume(attributes.qkey);
  queue_pair.local = local;
  queue_pair.parameters = parameters;
  return success();
}

}  // namespace verbspp::detail
