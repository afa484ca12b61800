// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transitions that `build`, `prepare`, `handshake` and `activate` make, and paths to peers and
/// groups.
#include "qp/addressing.hpp"
#include "qp/by_transport.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/device/route.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace verbspp::detail {

namespace {

template <transport Transport>
result<void> initialize(queue_pair_data& queue_pair) noexcept {
  using enum queue_pair_state;
  const connection_parameters& given = queue_pair.parameters;
  const auto attributes =
      attributes_for<Transport, reset, init>().pkey_index(given.pkey_index).port(given.port);
  if constexpr (SendsDatagrams<Transport>)
    return modify(queue_pair, attributes.qkey(given.qkey));
  else
    return modify(queue_pair, attributes.access(given.access));
}

/// On Ethernet, selects the pair of addresses that fits best. Both ends arrive at the same pair.
result<void> settle_addresses(queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  if (queue_pair.local.link_layer != link_layer::ethernet) return success();
  VERBSPP_TRY(pair, choose_addresses(queue_pair.local, remote));
  queue_pair.local.address = pair.local.address;
  queue_pair.local.gid_type = pair.local.type;
  queue_pair.parameters.local_gid_index = pair.local.index;
  return success();
}

/// Returns the reason why the kernel's routing table does not lead from this end's addresses to the
/// peer. Null if it does, or if the table cannot be queried.
const char* wrong_with_route(const endpoint& local, const gid& remote) noexcept {
  const auto way = find_route(remote);
  if (!way.has_value())
    return way.assume_error() == error_kind::not_found
               ? "the peer's address does not resolve: the kernel has no route to it (check `ip "
                 "route get`); give this port an address in the peer's network, or add a route"
               : nullptr;
  const gid& source = way.assume_value().source;
  const bool is_own = source == local.address ||
                      std::ranges::any_of(local.addresses, [&](const offered_address& each) {
                        return each.address == source;
                      });
  return is_own ? nullptr
                : "the peer's address does not resolve: the kernel's route to it has a source "
                  "address that this end does not offer (check `ip route get`); use the device, "
                  "port and GID index that open_device_towards finds";
}

const char* printed(const gid& address, std::array<char, INET6_ADDRSTRLEN>& into) noexcept {
  return ::inet_ntop(AF_INET6, address.bytes.data(), into.data(), INET6_ADDRSTRLEN);
}

/// Adds to the error the two addresses, and the probable reason why they cannot reach each other.
error in_doubt(const error& cause, const address_pair& pair) noexcept {
  std::array<char, INET6_ADDRSTRLEN> local{};
  std::array<char, INET6_ADDRSTRLEN> remote{};
  return error_access::with_errno(
      error_in_words_of(cause.kind(), cause.operation(),
                        "%s cannot be reached from %s: the only matching addresses of the two ends "
                        "are link-local ones, which are not routed, and there is probably a router "
                        "between the ends: give both ports addresses of the same RoCE version, "
                        "family and scope that are not link-local",
                        printed(pair.remote.address, remote), printed(pair.local.address, local)),
      cause.native_errno());
}

template <transport Transport>
result<void> connect_as(queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  using enum queue_pair_state;
  const connection_parameters& given = queue_pair.parameters;
  const endpoint& local = queue_pair.local;
  VERBSPP_TRY(way, path_to(queue_pair, remote));
  VERBSPP_TRYV(settle_addresses(queue_pair, remote));
  const path_mtu mtu = std::min(local.mtu, remote.mtu);
  const auto receiving = attributes_for<Transport, init, ready_to_receive>()
                             .path(way)
                             .path_mtu(mtu)
                             .destination(remote.number)
                             .receive_psn(given.receive_psn.value_or(remote.send_psn));
  const auto sending =
      attributes_for<Transport, ready_to_receive, ready_to_send>().send_psn(local.send_psn);
  const auto receives = [&](const auto& attributes) -> result<void> {
    const result<void> done = modify(queue_pair, attributes);
    if (!done.has_value()) return explained(done.assume_error(), local, remote);
    return done;
  };
  if constexpr (Acknowledges<Transport>) {
    VERBSPP_TRYV(receives(
        receiving.max_reads_as_target(std::min(local.reads_as_target, remote.reads_as_initiator))
            .min_rnr_timer(given.min_rnr_timer)));
    return modify(queue_pair, sending.ack_timeout(given.ack_timeout)
                                  .ack_retry_count(given.retries)
                                  .rnr_retry_count(given.rnr_retries)
                                  .max_reads_as_initiator(
                                      std::min(local.reads_as_initiator, remote.reads_as_target)));
  } else {
    VERBSPP_TRYV(receives(receiving));
    return modify(queue_pair, sending);
  }
}

}  // namespace

// If the peer could not be reached, adds the probable reason, if one is found: the only matching
// addresses are link-local, or the kernel has no route to the peer from this port.
error explained(const error& cause, const endpoint& local, const endpoint& remote) noexcept {
  const int errnum = cause.native_errno();
  if (local.link_layer != link_layer::ethernet ||
      (errnum != ETIMEDOUT && errnum != EHOSTUNREACH && errnum != ENETUNREACH))
    return cause;
  const auto pair = choose_addresses(local, remote);
  if (!pair.has_value()) return cause;
  if (pair.assume_value().is_doubtful) return in_doubt(cause, pair.assume_value());
  // If the subnet of the local address is unknown, no network interface is known to have the
  // address, so the kernel's routes say nothing about it.
  const bool is_routed = pair.assume_value().reach == address_reach::routed &&
                         pair.assume_value().local.prefix_length != offered_address::unknown_prefix;
  const char* const wrong =
      is_routed ? wrong_with_route(local, pair.assume_value().remote.address) : nullptr;
  return wrong != nullptr ? cause.as(cause.kind(), wrong) : cause;
}

result<void> bring_to_init(queue_pair_data& queue_pair) noexcept {
  return by_transport(queue_pair.local.type, [&queue_pair]<transport Transport> {
    return initialize<Transport>(queue_pair);
  });
}

result<void> prepare_again(queue_pair_data& queue_pair) noexcept {
  VERBSPP_TRYV(bring_to_init(queue_pair));
  if (!queue_pair.parameters.send_psn) queue_pair.local.send_psn = random_psn();
  return success();
}

result<void> connect(queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  if (queue_pair.owner.native() == nullptr)
    return error(
        error_kind::invalid_input, "handshake",
        "this queue pair was moved from, or consumed by an earlier call, such as a handshake");
  return by_transport(queue_pair.local.type, [&]<transport Transport>() -> result<void> {
    if constexpr (Connects<Transport>)
      return connect_as<Transport>(queue_pair, remote);
    else
      __builtin_unreachable();  // this type has no handshake
  });
}

namespace {

/// Bits that older kernels set in the attribute masks for RoCE, for their own use. They must not be
/// passed back to the kernel.
constexpr int internal_of_kernel = 0xf << 21;

managed_attributes::step without_internal(const managed_attributes::step& given) noexcept {
  return {.attributes = given.attributes, .mask = given.mask & ~internal_of_kernel};
}

/// Adopts the connection manager's port and partition, if they differ from the builder's.
result<void> follow_manager(queue_pair_data& queue_pair,
                            const managed_attributes::step& given) noexcept {
  using enum queue_pair_state;
  constexpr int where = IBV_QP_PORT | IBV_QP_PKEY_INDEX;
  if ((given.mask & where) != where) return success();
  const auto port = port_number::assume(given.attributes.port_num);
  const auto pkey = pkey_index::assume(given.attributes.pkey_index);
  if (port == queue_pair.parameters.port && pkey == queue_pair.parameters.pkey_index)
    return success();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = given.attributes.port_num;
  attributes.pkey_index = given.attributes.pkey_index;
  VERBSPP_TRYV(modify_native(queue_pair, init, init, attributes, where));
  queue_pair.parameters.pkey_index = pkey;
  return success();
}

/// Adopts the local address that the connection manager has chosen.
void follow_address(queue_pair_data& queue_pair, const ibv_ah_attr& path) noexcept {
  if (path.is_global == 0) return;
  const auto index = gid_index::assume(path.grh.sgid_index);
  const auto entry =
      queue_pair.owner.domain().context().query_gid(queue_pair.parameters.port, index);
  if (!entry.has_value()) return;
  queue_pair.parameters.local_gid_index = index;
  queue_pair.local.address = entry.assume_value().address;
  queue_pair.local.gid_type = entry.assume_value().type;
}

}  // namespace

result<void> connect(queue_pair_data& queue_pair, const managed_attributes& by) noexcept {
  if (queue_pair.owner.native() == nullptr)
    return error(
        error_kind::invalid_input, "handshake",
        "this queue pair was moved from, or consumed by an earlier call, such as a handshake");
  const connection_parameters& given = queue_pair.parameters;
  const endpoint& local = queue_pair.local;
  auto receiving = without_internal(by.ready_to_receive);
  auto sending = without_internal(by.ready_to_send);
  if ((receiving.mask & IBV_QP_PATH_MTU) != 0) {
    // The number may be none of the enumerators, so it is not read as an `ibv_mtu`.
    unsigned code = 0;
    std::memcpy(&code, &receiving.attributes.path_mtu, sizeof code);
    const auto mtu = path_mtu::from_code(code);
    if (!mtu.has_value())
      return error::out_of_range("handshake", "path MTU code of the connection manager", code,
                                 "the codes are 1 (256 bytes) to 5 (4096 bytes)");
    if (given.mtu && given.mtu->bytes() != mtu.assume_value().bytes())
      return error_in_words_of(error_kind::mismatch, "compare with the connection manager",
                               "the builder has a path MTU of %u bytes, but the connection manager "
                               "uses %u, the MTU of the route: leave out path_mtu",
                               given.mtu->bytes(), mtu.assume_value().bytes());
  }
  if (acknowledges(local.type)) {
    receiving.attributes.max_dest_rd_atomic =
        std::min(receiving.attributes.max_dest_rd_atomic, local.reads_as_target.value());
    receiving.attributes.min_rnr_timer = given.min_rnr_timer.code();
    sending.attributes.max_rd_atomic =
        std::min(sending.attributes.max_rd_atomic, local.reads_as_initiator.value());
    sending.attributes.timeout = given.ack_timeout.code();
    sending.attributes.retry_cnt = given.retries.value();
    sending.attributes.rnr_retry = given.rnr_retries.code();
  }
  // The builder determines the rights.
  receiving.mask &= ~IBV_QP_ACCESS_FLAGS;
  VERBSPP_TRYV(follow_manager(queue_pair, by.init));
  VERBSPP_TRYV(modify_native(queue_pair, queue_pair_state::init, queue_pair_state::ready_to_receive,
                             receiving.attributes, receiving.mask));
  follow_address(queue_pair, receiving.attributes.ah_attr);
  return modify_native(queue_pair, queue_pair_state::ready_to_receive,
                       queue_pair_state::ready_to_send, sending.attributes, sending.mask);
}

result<void> activate(queue_pair_data& queue_pair) noexcept {
  using enum queue_pair_state;
  VERBSPP_TRYV(modify(queue_pair, attributes_for<transport::ud, init, ready_to_receive>()));
  return modify(queue_pair,
                attributes_for<transport::ud, ready_to_receive, ready_to_send>().send_psn(
                    queue_pair.local.send_psn));
}

namespace {

/// Returns this end's value, or the peer's value if this end's is 0.
template <class Value>
Value agreed(Value local, Value remote) noexcept {
  return local.value() != 0 ? local : remote;
}

/// Returns a route with these values, and the builder's hop limit and flow label.
global_route route_to(const queue_pair_data& queue_pair, const gid& address, gid_index source,
                      traffic_class of_packets) noexcept {
  const connection_parameters& given = queue_pair.parameters;
  return {.destination = address,
          .source = source,
          .hop_limit = given.hop_limit,
          .traffic_class = of_packets,
          .flow_label = given.flow_label};
}

constexpr const char* finding_group = "path to the multicast group";

error no_way_from_moved(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this queue pair was moved from"};
}

}  // namespace

result<path> path_to(const queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  if (queue_pair.owner.native() == nullptr) return no_way_from_moved("path to the peer");
  VERBSPP_TRYV(check_compatible(queue_pair.local, remote));
  const connection_parameters& given = queue_pair.parameters;
  const service_level level = agreed(given.service_level, remote.service_level);
  const traffic_class of_packets = agreed(given.traffic_class, remote.traffic_class);
  if (remote.link_layer == link_layer::ethernet) {
    VERBSPP_TRY(pair, choose_addresses(queue_pair.local, remote));
    return path(
        roce_path{.route = route_to(queue_pair, pair.remote.address, pair.local.index, of_packets),
                  .service_level = level});
  }
  infiniband_path way{.destination = remote.lid, .service_level = level};
  const bool other_subnet =
      queue_pair.local.address.subnet_prefix() != remote.address.subnet_prefix();
  if (other_subnet)
    way.route = route_to(queue_pair, remote.address, given.local_gid_index, of_packets);
  return path(way);
}

result<path> path_to_group(const queue_pair_data& queue_pair, const gid& group,
                           lid multicast_lid) noexcept {
  if (queue_pair.owner.native() == nullptr) return no_way_from_moved(finding_group);
  if (!group.is_multicast())
    return error(error_kind::invalid_input, finding_group,
                 "this GID is not that of a multicast group: such a GID begins with ff, or is a "
                 "mapped IPv4 multicast address such as ::ffff:239.1.2.3");
  const global_route route = route_to(queue_pair, group, queue_pair.parameters.local_gid_index,
                                      queue_pair.parameters.traffic_class);
  const service_level level = queue_pair.parameters.service_level;
  if (queue_pair.local.link_layer == link_layer::ethernet)
    return path(roce_path{.route = route, .service_level = level});
  return path(
      infiniband_path{.destination = multicast_lid, .service_level = level, .route = route});
}

}  // namespace verbspp::detail
