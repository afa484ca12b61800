// SPDX-License-Identifier: Apache-2.0
// The entry points that list, open, close and query devices.
#include "device/device.hpp"

#include "base/newer_verbs.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "machine/receive_hash.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/next_library.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#undef ibv_query_port
#undef ibv_get_device_list

using namespace softverbs;

namespace {

/// The frequency of the device's clock in kHz. The clock counts nanoseconds.
constexpr std::uint64_t core_clock = 1'000'000;

std::uint32_t verbs_type(network type) noexcept {
  switch (type) {
    case network::roce_v1:
      return IBV_GID_TYPE_ROCE_V1;
    case network::roce_v2:
      return IBV_GID_TYPE_ROCE_V2;
    default:
      return IBV_GID_TYPE_IB;
  }
}

ibv_gid_entry verbs_entry(const gid_entry& entry, std::uint32_t port,
                          std::uint32_t index) noexcept {
  ibv_gid_entry result{};
  result.gid = entry.gid;
  result.gid_index = index;
  result.port_num = port;
  result.gid_type = verbs_type(entry.type);
  result.ndev_ifindex = entry.interface;
  return result;
}

}  // namespace

SOFTVERBS_EXPORT ibv_device** ibv_get_device_list(int* count) {
  const bool known = faults::read_environment();
  unsigned ours_count = 0;
  // If libibverbs makes this call, faults don't apply, because the program has not made it.
  if (!without_soft_devices::is_so()) {
    if (known) ours_count = device_count();
    SOFTVERBS_FAULT(ibv_get_device_list, nullptr);
  }
  int theirs_count = 0;
  ibv_device** theirs = nullptr;
  if (auto* function = SOFTVERBS_NEXT(ibv_get_device_list)) theirs = function(&theirs_count);
  if (theirs == nullptr) theirs_count = 0;

  // Some programs release the list with free(), so it is a single block from malloc, like the list
  // of libibverbs.
  const std::size_t total = ours_count + static_cast<std::size_t>(theirs_count);
  auto** list = static_cast<ibv_device**>(
      std::realloc(static_cast<void*>(theirs), (total + 1) * sizeof(ibv_device*)));
  if (list == nullptr) {
    if (theirs != nullptr) SOFTVERBS_NEXT(ibv_free_device_list)(theirs);
    if (count != nullptr) *count = 0;
    errno = ENOMEM;
    return nullptr;
  }
  // Real devices come first, so that a program that takes the first device behaves the same with
  // this library.
  for (unsigned number = 0; number < ours_count; ++number)
    list[static_cast<std::size_t>(theirs_count) + number] = &device_at(number).verbs;
  list[total] = nullptr;
  if (count != nullptr) *count = static_cast<int>(total);
  return list;
}

SOFTVERBS_EXPORT void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  // libibverbs counts the references to its devices, so they must be returned to it.
  ibv_device** theirs = list;
  for (ibv_device** each = list; *each != nullptr; ++each)
    if (soft_device_of(*each) == nullptr) *theirs++ = *each;
  *theirs = nullptr;
  if (theirs != list)
    SOFTVERBS_NEXT(ibv_free_device_list)(list);
  else
    std::free(static_cast<void*>(list));
}

SOFTVERBS_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  if (soft_device_of(device) == nullptr) return SOFTVERBS_NEXT(ibv_get_device_name)(device);
  SOFTVERBS_FAULT(ibv_get_device_name, nullptr);
  return device->name;
}

SOFTVERBS_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  const soft_device* soft = soft_device_of(device);
  if (soft == nullptr) return SOFTVERBS_NEXT(ibv_get_device_guid)(device);
  return htobe64(soft->guid());
}

SOFTVERBS_EXPORT int ibv_get_device_index(ibv_device* device) {
  if (soft_device_of(device) == nullptr) return SOFTVERBS_NEXT(ibv_get_device_index)(device);
  SOFTVERBS_FAULT(ibv_get_device_index, nullptr);
  return -1;  // the kernel numbers only its own devices
}

SOFTVERBS_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  const soft_device* soft = soft_device_of(device);
  if (soft == nullptr) return SOFTVERBS_NEXT(ibv_open_device)(device);
  SOFTVERBS_FAULT(ibv_open_device, nullptr);
  device_context* opened = device_context::open(*soft);
  return opened == nullptr ? nullptr : &opened->verbs();
}

SOFTVERBS_EXPORT int ibv_close_device(ibv_context* verbs) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_close_device)(verbs);
  SOFTVERBS_FAULT(ibv_close_device, nullptr);
  device_context::close(&device_context::of(verbs));
  return 0;
}

SOFTVERBS_EXPORT int ibv_query_device(ibv_context* verbs, ibv_device_attr* attributes) {
  const soft_device* soft = soft_device_of(verbs);
  if (soft == nullptr) return SOFTVERBS_NEXT(ibv_query_device)(verbs, attributes);
  SOFTVERBS_FAULT(ibv_query_device, verbs);
  describe_device(*soft, *attributes);
  return 0;
}

int inline_calls::query_device_ex(ibv_context* verbs, const ibv_query_device_ex_input* input,
                                  ibv_device_attr_ex* attributes, std::size_t size) {
  SOFTVERBS_FAULT(ibv_query_device_ex, verbs);
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(attributes->orig_attr)) return EINVAL;
  ibv_device_attr_ex full{};
  const soft_device& soft = *soft_device_of(verbs);
  describe_device(soft, full.orig_attr);
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags | newer::device_flush;
  if (soft.description().has_atomics) full.device_cap_flags_ex |= newer::device_atomic_write;
  full.phys_port_cnt_ex = soft.description().port_count;
  full.max_dm_size = soft.most().device_memory;
  if (soft.has_ethernet()) {
    full.rss_caps = {1U << IBV_QPT_RAW_PACKET, soft.most().indirection_tables,
                     1U << limits::indirection_bits, receive_hash::known_fields,
                     IBV_RX_HASH_FUNC_TOEPLITZ};
    full.max_wq_type_rq = soft.most().receive_work_queues;
  }
  constexpr std::uint32_t by_datagrams =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  std::uint32_t reliably = by_datagrams | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                           IBV_ODP_SUPPORT_ATOMIC | newer::odp_flush;
  if (soft.description().has_atomics) reliably |= newer::odp_atomic_write;
  full.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  full.odp_caps.per_transport_caps.rc_odp_caps = reliably;
  full.odp_caps.per_transport_caps.uc_odp_caps = by_datagrams | IBV_ODP_SUPPORT_WRITE;
  full.odp_caps.per_transport_caps.ud_odp_caps = by_datagrams;
  full.xrc_odp_caps = reliably;
  full.completion_timestamp_mask = ~std::uint64_t{0};
  full.hca_core_clock = core_clock;
  std::memset(static_cast<void*>(attributes), 0, size);
  std::memcpy(static_cast<void*>(attributes), &full, std::min(size, sizeof(full)));
  return 0;
}

int inline_calls::query_rt_values(ibv_context* verbs, ibv_values_ex* values) {
  SOFTVERBS_FAULT(ibv_query_rt_values_ex, verbs);
  if ((values->comp_mask & ~std::uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  // As with hardware, the value is a number of ticks. Programs convert it with the frequency of the
  // clock.
  if (values->comp_mask != 0) values->raw_clock = {0, now()};
  return 0;
}

int inline_calls::query_port(ibv_context* verbs, std::uint8_t port, ibv_port_attr* attributes,
                             std::size_t size) {
  SOFTVERBS_FAULT(ibv_query_port, verbs);
  const soft_device& device = *soft_device_of(verbs);
  if (!device.has_port(port)) return EINVAL;
  ibv_port_attr full;
  describe_port(device, port, full);
  if (faults::port_is_down(station_of(device.number, port))) {
    full.state = IBV_PORT_DOWN;
    full.phys_state = faults::port_disabled;
  }
  std::memset(static_cast<void*>(attributes), 0, size);
  std::memcpy(static_cast<void*>(attributes), &full, std::min(size, sizeof(full)));
  const std::uint32_t speed = full.active_speed;
  if (size >= newer::port_speed_offset + sizeof(speed))
    std::memcpy(reinterpret_cast<std::byte*>(attributes) + newer::port_speed_offset, &speed,
                sizeof(speed));
  return 0;
}

// In current headers, this name is a macro that calls the extended operation. The function is for
// programs built with older headers, whose structure ends before port_cap_flags2.
SOFTVERBS_EXPORT int ibv_query_port(ibv_context* verbs, std::uint8_t port,
                                    _compat_ibv_port_attr* attributes) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_query_port)(verbs, port, attributes);
  constexpr std::size_t old_size = offsetof(ibv_port_attr, flags) + sizeof(ibv_port_attr::flags);
  return inline_calls::query_port(verbs, port, reinterpret_cast<ibv_port_attr*>(attributes),
                                  old_size);
}

SOFTVERBS_EXPORT int _ibv_query_gid_ex(ibv_context* verbs, std::uint32_t port, std::uint32_t index,
                                       ibv_gid_entry* entry, std::uint32_t flags,
                                       std::size_t size) {
  const soft_device* soft = soft_device_of(verbs);
  if (soft == nullptr)
    return SOFTVERBS_NEXT(_ibv_query_gid_ex)(verbs, port, index, entry, flags, size);
  SOFTVERBS_FAULT(ibv_query_gid_ex, verbs);
  if (flags != 0 || !soft->has_port(port) || index >= limits::gid_entries) return EINVAL;
  const auto found = gid_at(soft->number, port, index);
  if (!found) return ENODATA;
  const ibv_gid_entry full = verbs_entry(*found, port, index);
  std::memcpy(entry, &full, std::min(size, sizeof(full)));
  return 0;
}

SOFTVERBS_EXPORT ssize_t _ibv_query_gid_table(ibv_context* verbs, ibv_gid_entry* entries,
                                              std::size_t most, std::uint32_t flags,
                                              std::size_t size) {
  const soft_device* soft = soft_device_of(verbs);
  if (soft == nullptr)
    return SOFTVERBS_NEXT(_ibv_query_gid_table)(verbs, entries, most, flags, size);
  SOFTVERBS_FAULT(ibv_query_gid_table, verbs);
  if (flags != 0) return -EINVAL;
  std::size_t count = 0;
  auto* to = reinterpret_cast<std::byte*>(entries);
  for (std::uint32_t port = 1; soft->has_port(port); ++port)
    for (std::uint32_t index = 0; index < limits::gid_entries; ++index) {
      const auto found = gid_at(soft->number, port, index);
      if (!found) continue;
      if (count == most) return -EINVAL;
      const ibv_gid_entry full = verbs_entry(*found, port, index);
      std::memcpy(to + count++ * size, &full, std::min(size, sizeof(full)));
    }
  return static_cast<ssize_t>(count);
}

SOFTVERBS_EXPORT int ibv_query_gid(ibv_context* verbs, std::uint8_t port, int index, ibv_gid* gid) {
  const soft_device* soft = soft_device_of(verbs);
  if (soft == nullptr) return SOFTVERBS_NEXT(ibv_query_gid)(verbs, port, index, gid);
  SOFTVERBS_FAULT(ibv_query_gid, verbs);
  if (!soft->has_port(port) || index < 0 || static_cast<unsigned>(index) >= limits::gid_entries) {
    errno = EINVAL;
    return -1;
  }
  // An empty entry reads as zeros.
  const auto found = gid_at(soft->number, port, static_cast<unsigned>(index));
  *gid = found ? found->gid : ibv_gid{};
  return 0;
}

// This function is not public, but rdma-core's own programs use it. It returns the types of sysfs,
// which don't distinguish InfiniBand from RoCE v1.
SOFTVERBS_EXPORT int ibv_query_gid_type(ibv_context* verbs, std::uint8_t port, unsigned index,
                                        int* type);
int ibv_query_gid_type(ibv_context* verbs, std::uint8_t port, unsigned index, int* type) {
  const soft_device* soft = soft_device_of(verbs);
  if (soft == nullptr) return SOFTVERBS_NEXT(ibv_query_gid_type)(verbs, port, index, type);
  SOFTVERBS_FAULT(ibv_query_gid_type, verbs);
  if (!soft->has_port(port) || index >= limits::gid_entries) {
    errno = EINVAL;
    return -1;
  }
  const auto found = gid_at(soft->number, port, index);
  *type = found && found->type == network::roce_v2 ? 1 : 0;
  return 0;
}

SOFTVERBS_EXPORT int ibv_query_pkey(ibv_context* verbs, std::uint8_t port, int index,
                                    __be16* pkey) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_query_pkey)(verbs, port, index, pkey);
  SOFTVERBS_FAULT(ibv_query_pkey, verbs);
  if (!soft_device_of(verbs)->has_port(port) || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htobe16(default_pkey);
  return 0;
}

SOFTVERBS_EXPORT int ibv_get_pkey_index(ibv_context* verbs, std::uint8_t port, __be16 pkey) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_get_pkey_index)(verbs, port, pkey);
  SOFTVERBS_FAULT(ibv_get_pkey_index, verbs);
  if (!soft_device_of(verbs)->has_port(port) || pkey != htobe16(default_pkey)) {
    errno = EINVAL;
    return -1;
  }
  return 0;
}
