// SPDX-License-Identifier: Apache-2.0
#include "base/limits.hpp"
#include "memory/usable.hpp"
#include "qp/addressing.hpp"
#include "qp/by_transport.hpp"
#include "queue/queue_memory.hpp"
#include "quirks/rxe.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/work/operations.hpp>

#include <algorithm>
#include <array>
#include <cerrno>

namespace verbspp::detail {

namespace {

constexpr const char* building = "build queue pair";

constexpr std::uint32_t default_elements = 16;
constexpr std::uint8_t default_read_depth = 16;

/// Returns the requested value. If there is none, returns the default, limited to the device's
/// maximum.
template <class Count>
std::uint32_t or_default(const std::optional<Count>& asked, std::uint32_t preferred,
                         int limit) noexcept {
  return asked ? asked->value()
               : std::min(preferred, static_cast<std::uint32_t>(std::max(limit, 0)));
}

result<ibv_qp_cap> capacities_of(const queue_pair_settings& settings,
                                 const ibv_device_attr& device) noexcept {
  const bool own_receives = !settings.receives;
  const ibv_qp_cap capacities{
      .max_send_wr = settings.max_send_work_requests.value(),
      .max_recv_wr = own_receives ? settings.max_receive_work_requests.value() : 0,
      .max_send_sge = or_default(settings.max_send_elements, default_elements, device.max_sge),
      .max_recv_sge =
          own_receives ? or_default(settings.max_receive_elements, default_elements, device.max_sge)
                       : 0,
      .max_inline_data = settings.max_inline_data.value()};
  VERBSPP_TRYV(
      check_limit(building, "max send work requests", capacities.max_send_wr, device.max_qp_wr));
  VERBSPP_TRYV(
      check_limit(building, "max receive work requests", capacities.max_recv_wr, device.max_qp_wr));
  VERBSPP_TRYV(check_limit(building, "max send elements", capacities.max_send_sge, device.max_sge));
  VERBSPP_TRYV(
      check_limit(building, "max receive elements", capacities.max_recv_sge, device.max_sge));
  return capacities;
}

result<read_depth> read_depth_of(const char* what, const std::optional<read_depth>& asked,
                                 int limit) noexcept {
  const std::uint32_t depth = or_default(asked, default_read_depth, limit);
  VERBSPP_TRYV(check_limit(building, what, depth, limit));
  return read_depth::assume(static_cast<std::uint8_t>(depth));
}

result<port_attributes> port_of(const queue_pair_settings& settings,
                                const context& context) noexcept {
  if (!settings.port) return context.first_active_port();
  VERBSPP_TRY(port, context.query_port(*settings.port));
  switch (port.state()) {
    case port_state::active:
      return port;
    case port_state::initializing:
    case port_state::armed:
      return error(error_kind::not_found, building,
                   "the port is not active yet: try again later, and on InfiniBand check that a "
                   "subnet manager is running");
    default:
      return error(error_kind::not_found, building,
                   "the port is not active: check the cable, the switch and, on Ethernet, that the "
                   "port's network interface is up (`rdma link` shows it)");
  }
}

result<void> check_parents(const queue_pair_settings& settings) noexcept {
  VERBSPP_TRYV(check_usable(building, *settings.domain));
  if (settings.send_queue->native_handle() == nullptr ||
      settings.receive_queue->native_handle() == nullptr)
    return moved_from_queue(building);
  if (settings.receives && settings.receives->native_handle() == nullptr)
    return error(error_kind::invalid_input, building, "this shared receive queue was moved from");
  const context& parent = settings.domain->context();
  if (settings.receives &&
      settings.receives->protection_domain().below() != settings.domain->below())
    return error(
        error_kind::invalid_input, building,
        "the shared receive queue must be created in the protection domain of the queue pair");
  if (settings.send_queue->context() != parent || settings.receive_queue->context() != parent)
    return error(
        error_kind::invalid_input, building,
        "the protection domain and the completion queues must be created from the same context");
  constexpr access_flags known = access::local_write | access::any_remote;
  if (!known.contains(settings.connection.access))
    return error::out_of_range(building, "access flags", settings.connection.access.bits,
                               "a queue pair accepts only the access flags local_write, "
                               "remote_write, remote_read, remote_atomic, flush_global and "
                               "flush_persistent");
  return success();
}

error creation_failure(int errnum, const char* operation) noexcept {
  return error::from_errno(
      errnum, operation,
      errnum == EINVAL ? "usually max_inline_data, for which devices report no limit, is too "
                         "large, or the queues are too long for that many elements per request"
                       : advice_on_queue_memory(errnum));
}

struct native_queue_pair {
  ibv_qp* queue_pair;
  ibv_qp_ex* extended;  ///< null unless extended posting was requested
};

result<native_queue_pair> create_extended(ibv_qp_init_attr_ex& initial, transport type) noexcept {
  constexpr const char* operation = "ibv_create_qp_ex";
  constexpr const char* advice =
      "the device or its driver does not support this transport, at least not with extended "
      "posting: leave extended_posting out, so that batches are posted as linked lists";
  ibv_device_attr_ex device{};
  if (const int errnum = errno_of(ibv_query_device_ex(initial.pd->context, nullptr, &device));
      errnum != 0)
    return error::from_errno(errnum, "ibv_query_device_ex");
  initial.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  initial.send_ops_flags = send_operations::capabilities(type, device);
  errno = 0;
  ibv_qp* const created = ibv_create_qp_ex(initial.pd->context, &initial);
  if (created == nullptr)
    return kind_of_errno(errno) == error_kind::not_supported
               ? error::from_errno(errno, operation, advice)
               : creation_failure(errno, operation);
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(created);
  if (extended != nullptr) {
    trace(operation, created, created->qp_num);
    return native_queue_pair{created, extended};
  }
  report_release(errno_of(ibv_destroy_qp(created)), "ibv_destroy_qp");
  return error(error_kind::not_supported, operation, advice);
}

/// Creates the queue pair with the plain call, which requires no extended verbs.
result<native_queue_pair> create_standard(ibv_qp_init_attr_ex& initial) noexcept {
  ibv_qp_init_attr plain{};
  plain.send_cq = initial.send_cq;
  plain.recv_cq = initial.recv_cq;
  plain.srq = initial.srq;
  plain.cap = initial.cap;
  plain.qp_type = initial.qp_type;
  plain.sq_sig_all = initial.sq_sig_all;
  errno = 0;
  ibv_qp* const created = ibv_create_qp(initial.pd, &plain);
  if (created == nullptr) return creation_failure(errno, "ibv_create_qp");
  initial.cap = plain.cap;
  trace("ibv_create_qp", created, created->qp_num);
  return native_queue_pair{created, nullptr};
}

/// The port and addresses of a queue pair, and the parameters that are used after its creation.
struct placement {
  port_attributes port;
  port_addresses addresses;
  read_depth as_initiator;
  read_depth as_target;
  connection_parameters parameters;
};

result<placement> place(const queue_pair_settings& settings,
                        const ibv_device_attr& device) noexcept {
  const context& context = settings.domain->context();
  VERBSPP_TRY(as_initiator, read_depth_of("max reads as initiator", settings.max_reads_as_initiator,
                                          device.max_qp_init_rd_atom));
  VERBSPP_TRY(as_target, read_depth_of("max reads as target", settings.max_reads_as_target,
                                       device.max_qp_rd_atom));
  VERBSPP_TRY(port, port_of(settings, context));
  connection_parameters parameters = settings.connection;
  VERBSPP_TRYV(
      check_index(building, "pkey index", parameters.pkey_index.value(), port.pkey_table_length()));
  if (parameters.mtu && *parameters.mtu > port.active_mtu())
    return error::above_limit(building, "path MTU in bytes", parameters.mtu->bytes(),
                              port.active_mtu().bytes(), "the limit is the port's active MTU");
  if (settings.gid_index)
    VERBSPP_TRYV(
        check_index(building, "GID index", settings.gid_index->value(), port.gid_table_length()));
  VERBSPP_TRY(addresses, addresses_of(context, port, settings.gid_index, building));
  parameters.port = port.number();
  parameters.local_gid_index = addresses.index;
  if (retries_without_end(device, parameters.retries.value())) parameters.retries = 6;
  return placement{port, addresses, as_initiator, as_target, parameters};
}

queue_pair_data assembled(transport type, const native_queue_pair& native, ownership whose,
                          const ibv_qp_cap& granted, const queue_pair_settings& settings,
                          const placement& at) noexcept {
  const connection_parameters& parameters = at.parameters;
  return queue_pair_data(
      queue_pair_owner(native.queue_pair, native.extended, whose, *settings.domain,
                       *settings.send_queue, *settings.receive_queue, settings.receives),
      {.type = type,
       .number = queue_pair_number::assume(native.queue_pair->qp_num & queue_pair_number::maximum),
       .link_layer = at.port.link_layer(),
       .lid = at.port.lid(),
       .address = at.addresses.address,
       .gid_type = at.addresses.type,
       .is_address_set_by_hand = settings.gid_index.has_value(),
       .mtu = parameters.mtu.value_or(at.port.active_mtu()),
       .is_mtu_asked_for = parameters.mtu.has_value(),
       .traffic_class = parameters.traffic_class,
       .service_level = parameters.service_level,
       .send_psn = parameters.send_psn ? *parameters.send_psn : random_psn(),
       .reads_as_initiator = acknowledges(type) ? at.as_initiator : read_depth(0),
       .reads_as_target = acknowledges(type) ? at.as_target : read_depth(0),
       .qkey = parameters.qkey,
       .addresses = at.addresses.offer},
      {.max_send_work_requests = granted.max_send_wr,
       .max_receive_work_requests = granted.max_recv_wr,
       .max_send_elements = granted.max_send_sge,
       .max_receive_elements = granted.max_recv_sge,
       .max_inline_data = granted.max_inline_data},
      parameters);
}

constexpr const char* adopting = "queue pair from_native";

error not_as_said(const char* what) noexcept { return {error_kind::mismatch, adopting, what}; }

/// Checks those properties of an adopted queue pair that its `ibv_qp` contains.
result<void> check_origin(transport type, const ibv_qp& native,
                          const queue_pair_settings& settings) noexcept {
  if (native.qp_type != static_cast<ibv_qp_type>(type))
    return not_as_said(
        "this queue pair has a different transport than the builder: see its qp_type");
  if (native.pd != settings.domain->native_handle())
    return not_as_said(
        "this queue pair was created in another protection domain: give that one to the builder");
  if (native.send_cq != settings.send_queue->native_handle() ||
      native.recv_cq != settings.receive_queue->native_handle())
    return not_as_said(
        "this queue pair was created with other completion queues: give those to the builder");
  if (native.srq != (settings.receives ? settings.receives->native_handle() : nullptr))
    return not_as_said(settings.receives
                           ? "this queue pair was created without that shared receive queue: give "
                             "the builder the one that the queue pair uses, if it uses any"
                           : "this queue pair was created with a shared receive queue: give it to "
                             "the builder as well");
  return success();
}

constexpr std::array where_it_is{
    "this queue pair is in RESET, not in the state that from_native names",
    "this queue pair is in INIT, not in the state that from_native names",
    "this queue pair is in RTR, not in the state that from_native names",
    "this queue pair is in RTS, not in the state that from_native names",
    "this queue pair is in SQD, not in the state that from_native names",
    "this queue pair is in SQE, not in the state that from_native names",
    "this queue pair is in ERR, not in the state that from_native names",
};
static_assert(where_it_is.size() == IBV_QPS_ERR + 1);

}  // namespace

result<queue_pair_data> create(transport type, const queue_pair_settings& settings) noexcept {
  VERBSPP_TRYV(check_parents(settings));
  VERBSPP_TRY(device, settings.domain->context().query_device());
  VERBSPP_TRY(capacities, capacities_of(settings, device));
  VERBSPP_TRY(at, place(settings, device));

  ibv_qp_init_attr_ex initial{};
  initial.qp_type = static_cast<ibv_qp_type>(type);
  initial.send_cq = settings.send_queue->native_handle();
  initial.recv_cq = settings.receive_queue->native_handle();
  initial.srq = settings.receives ? settings.receives->native_handle() : nullptr;
  initial.sq_sig_all = settings.signal_all_sends ? 1 : 0;
  initial.cap = capacities;
  initial.comp_mask = IBV_QP_INIT_ATTR_PD;
  initial.pd = settings.domain->native_handle();
  VERBSPP_TRY(native, settings.extended_posting ? create_extended(initial, type)
                                                : create_standard(initial));
  return assembled(type, native, ownership::taken, initial.cap, settings, at);
}

result<queue_pair_data> adopt(transport type, queue_pair_state state, ibv_qp* native,
                              ownership whose, const queue_pair_settings& settings,
                              queue_pair_parameter_set given) noexcept {
  if (native == nullptr)
    return error(error_kind::invalid_input, adopting,
                 "there is no queue pair to adopt: the pointer is null");
  VERBSPP_TRYV(check_parents(settings));
  VERBSPP_TRYV(check_origin(type, *native, settings));
  VERBSPP_TRY(status, query(native));
  const ibv_qp_attr& attributes = status.attributes();
  if (status.state() != state) {
    const std::uint32_t index = number_of(attributes.qp_state);
    return not_as_said(index < where_it_is.size()
                           ? where_it_is[index]
                           : "this queue pair is in a state that the library does not know");
  }
  ibv_qp_ex* const extended = settings.extended_posting ? ibv_qp_to_qp_ex(native) : nullptr;
  if (settings.extended_posting && extended == nullptr)
    return error(error_kind::not_supported, adopting,
                 "this queue pair was created without the extended posting interface "
                 "(ibv_create_qp_ex with send_ops_flags): leave extended_posting out");

  // In states other than RESET, the device normally reports the port, the rights and the queue key
  // of the queue pair.
  queue_pair_settings known = settings;
  if (state != queue_pair_state::reset && attributes.port_num != 0) {
    const auto port = port_number::assume(attributes.port_num);
    if (settings.port && *settings.port != port)
      return not_as_said(
          "this queue pair uses a different port than the one that was given to the builder: leave "
          "out .port(...), or pass the queue pair's port");
    known.port = port;
    if (!given.contains(queue_pair_parameter::pkey_index))
      known.connection.pkey_index = pkey_index::assume(attributes.pkey_index);
  }
  VERBSPP_TRY(device, settings.domain->context().query_device());
  VERBSPP_TRY(at, place(known, device));
  if (state != queue_pair_state::reset) {
    if (!given.contains(queue_pair_parameter::access)) at.parameters.access = status.access();
    if (!given.contains(queue_pair_parameter::qkey)) at.parameters.qkey = status.qkey();
  }
  queue_pair_data adopted =
      assembled(type, {native, extended}, whose, status.initial().cap, known, at);
  if (state != queue_pair_state::reset && sends_datagrams(type)) adopted.local.qkey = status.qkey();
  if (state == queue_pair_state::ready_to_send || state == queue_pair_state::send_queue_drained)
    adopted.local.send_psn = status.send_psn();
  return adopted;
}

result<queue_pair_data> create_prepared(transport type,
                                        const queue_pair_settings& settings) noexcept {
  VERBSPP_TRY(queue_pair, create(type, settings));
  VERBSPP_TRYV(bring_to_init(queue_pair));
  return queue_pair;
}

}  // namespace verbspp::detail
