// SPDX-License-Identifier: Apache-2.0
#include "qp/modification.hpp"
#include <verbspp/qp/builder.hpp>

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace verbspp::detail {

namespace {

constexpr const char* building = "build queue pair";

constexpr std::uint32_t default_elements = 16;
constexpr std::uint8_t default_read_depth = 16;

result<void> check_limit(const char* what, std::uint64_t value, int limit) noexcept {
  if (value > static_cast<std::uint64_t>(std::max(limit, 0)))
    return error::above_limit(building, what, value, static_cast<std::uint64_t>(limit),
                              "the limit is the device's");
  return success();
}

result<void> check_index(const char* what, std::uint64_t index, std::uint64_t length) noexcept {
  if (index < length) return success();
  return error::above_limit(building, what, index, length == 0 ? 0 : length - 1,
                            "the limit is the last entry of the port's table");
}

/// What was asked for, or the default as far as the device allows it.
template <class Count>
std::uint32_t or_default(const std::optional<Count>& asked, std::uint32_t preferred,
                         int limit) noexcept {
  return asked ? asked->value()
               : std::min(preferred, static_cast<std::uint32_t>(std::max(limit, 0)));
}

result<ibv_qp_cap> capacities_of(const queue_pair_settings& settings,
                                 const ibv_device_attr& device) noexcept {
  const ibv_qp_cap capacities{
      .max_send_wr = settings.max_send_work_requests.value(),
      .max_recv_wr = settings.max_receive_work_requests.value(),
      .max_send_sge = or_default(settings.max_send_elements, default_elements, device.max_sge),
      .max_recv_sge = or_default(settings.max_receive_elements, default_elements, device.max_sge),
      .max_inline_data = settings.max_inline_data.value()};
  VERBSPP_TRYV(check_limit("max send work requests", capacities.max_send_wr, device.max_qp_wr));
  VERBSPP_TRYV(check_limit("max receive work requests", capacities.max_recv_wr, device.max_qp_wr));
  VERBSPP_TRYV(check_limit("max send elements", capacities.max_send_sge, device.max_sge));
  VERBSPP_TRYV(check_limit("max receive elements", capacities.max_recv_sge, device.max_sge));
  return capacities;
}

result<read_depth> read_depth_of(const char* what, const std::optional<read_depth>& asked,
                                 int limit) noexcept {
  const std::uint32_t depth = or_default(asked, default_read_depth, limit);
  VERBSPP_TRYV(check_limit(what, depth, limit));
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
                   "the port is not active yet: on InfiniBand it waits for a subnet manager");
    default:
      return error(error_kind::not_found, building,
                   "the port is not active: check the cable, the switch and that the network "
                   "interface is up");
  }
}

/// How good an address is on Ethernet; larger is better, and 0 is none.
int rank(const gid_entry& entry) noexcept {
  if (entry.address.is_zero() || entry.type == gid_type::infiniband) return 0;
  const int by_address = entry.address.is_ipv4_mapped()   ? 3
                         : !entry.address.is_link_local() ? 2
                                                          : 1;
  return (entry.type == gid_type::roce_v2 ? 3 : 0) + by_address;
}

result<gid_entry> gid_of(const queue_pair_settings& settings, const context& context,
                         const port_attributes& port) noexcept {
  if (settings.gid_index) {
    VERBSPP_TRYV(check_index("GID index", settings.gid_index->value(), port.gid_table_length()));
    return context.query_gid(port.number(), *settings.gid_index);
  }
  // The first GID of an InfiniBand port is its own, made from its GUID.
  if (port.link_layer() == link_layer::infiniband) return context.query_gid(port.number(), 0);
  VERBSPP_TRY(table, context.query_gid_table(port.number()));
  const gid_entry* const best = std::ranges::max_element(table, {}, rank);
  if (best == table.end() || rank(*best) == 0)
    return error(
        error_kind::not_found, building,
        "the port has no RoCE GID, and on Ethernet a queue pair is addressed by GID: bring "
        "the network interface up and give it an IP address");
  return *best;
}

packet_sequence_number random_psn() noexcept {
  std::uint32_t bits = 0;
  // Before the kernel's generator is seeded there is nothing better than the clock.
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    bits = static_cast<std::uint32_t>(now.tv_nsec);
  }
  return packet_sequence_number::assume(bits & packet_sequence_number::maximum);
}

result<void> check_parents(const queue_pair_settings& settings) noexcept {
  const context& parent = settings.domain->context();
  if (settings.send_queue->context() != parent || settings.receive_queue->context() != parent)
    return error(error_kind::invalid_input, building,
                 "protection domain and completion queues have to be made from one context");
  constexpr access_flags known = access::local_write | access::all_remote;
  if (!known.contains(settings.access))
    return error::out_of_range(building, "access flags", settings.access.bits,
                               "a queue pair knows local write, remote write, read and atomic");
  return success();
}

}  // namespace

result<queue_pair_data> prepare(transport type, const queue_pair_settings& settings) noexcept {
  VERBSPP_TRYV(check_parents(settings));
  const context& context = settings.domain->context();
  VERBSPP_TRY(device, context.query_device());
  VERBSPP_TRY(capacities, capacities_of(settings, device));
  VERBSPP_TRY(as_initiator, read_depth_of("max reads as initiator", settings.max_reads_as_initiator,
                                          device.max_qp_init_rd_atom));
  VERBSPP_TRY(as_target, read_depth_of("max reads as target", settings.max_reads_as_target,
                                       device.max_qp_rd_atom));
  VERBSPP_TRY(port, port_of(settings, context));
  VERBSPP_TRYV(check_index("pkey index", settings.pkey_index.value(), port.pkey_table_length()));
  connection_parameters parameters = settings.connection;
  if (parameters.mtu && *parameters.mtu > port.active_mtu())
    return error::above_limit(building, "path MTU, bytes", parameters.mtu->bytes(),
                              port.active_mtu().bytes(), "the limit is the port's active MTU");
  VERBSPP_TRY(gid, gid_of(settings, context, port));
  parameters.port = port.number();
  parameters.local_gid_index = gid.index;

  ibv_qp_init_attr initial{};
  initial.qp_type = static_cast<ibv_qp_type>(type);
  initial.send_cq = settings.send_queue->native_handle();
  initial.recv_cq = settings.receive_queue->native_handle();
  initial.sq_sig_all = settings.signal_all_sends ? 1 : 0;
  initial.cap = capacities;
  errno = 0;
  ibv_qp* const native = ibv_create_qp(settings.domain->native_handle(), &initial);
  if (native == nullptr)
    return error::from_errno(
        errno, "ibv_create_qp",
        errno == EINVAL
            ? "every limit that the device reports is kept; so usually max inline data, "
              "or queue length and elements are too much together"
            : nullptr);
  queue_pair_data queue_pair{
      .owner =
          queue_pair_owner(native, *settings.domain, *settings.send_queue, *settings.receive_queue),
      .local = {.type = type,
                .number = queue_pair_number::assume(native->qp_num & queue_pair_number::maximum),
                .link_layer = port.link_layer(),
                .lid = port.lid(),
                .address = gid.address,
                .gid_type = gid.type,
                .mtu = parameters.mtu.value_or(port.active_mtu()),
                .send_psn = settings.send_psn ? *settings.send_psn : random_psn(),
                .reads_as_initiator = as_initiator,
                .reads_as_target = as_target},
      .capacities = {.max_send_work_requests = initial.cap.max_send_wr,
                     .max_receive_work_requests = initial.cap.max_recv_wr,
                     .max_send_elements = initial.cap.max_send_sge,
                     .max_receive_elements = initial.cap.max_recv_sge,
                     .max_inline_data = initial.cap.max_inline_data},
      .parameters = parameters};

  const int errnum =
      modification(queue_pair_state::reset, queue_pair_state::init)
          .set(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index, settings.pkey_index.value())
          .set(IBV_QP_PORT, &ibv_qp_attr::port_num, port.number().value())
          .set(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags, settings.access.bits)
          .apply(native);
  if (errnum != 0) return error::from_errno(errnum, "modify RESET -> INIT");
  return queue_pair;
}

}  // namespace verbspp::detail
