// SPDX-License-Identifier: Apache-2.0
#include "qp/addressing.hpp"

#include <sys/random.h>

#include <algorithm>
#include <ctime>

namespace verbspp::detail {

namespace {

/// How good an address is on Ethernet; larger is better, and 0 is none.
int rank(const gid_entry& entry) noexcept {
  if (entry.address.is_zero() || entry.type == gid_type::infiniband) return 0;
  const int by_address = entry.address.is_ipv4_mapped()   ? 3
                         : !entry.address.is_link_local() ? 2
                                                          : 1;
  return (entry.type == gid_type::roce_v2 ? 3 : 0) + by_address;
}

}  // namespace

result<gid_entry> best_gid(const context& context, const port_attributes& port,
                           const char* operation) noexcept {
  // The first GID of an InfiniBand port is its own, made from its GUID.
  if (port.link_layer() == link_layer::infiniband) return context.query_gid(port.number(), 0);
  VERBSPP_TRY(table, context.query_gid_table(port.number()));
  const gid_entry* const best = std::ranges::max_element(table, {}, rank);
  if (best == table.end() || rank(*best) == 0)
    return error(
        error_kind::not_found, operation,
        "the port has no RoCE GID, and on Ethernet a queue pair is addressed by GID: bring "
        "the network interface up and give it an IP address");
  return *best;
}

std::uint32_t random_number() noexcept {
  std::uint32_t bits = 0;
  // Before the kernel's generator is seeded there is nothing better than the clock.
  if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    bits = static_cast<std::uint32_t>(now.tv_nsec);
  }
  return bits;
}

packet_sequence_number random_psn() noexcept {
  return packet_sequence_number::assume(random_number() & packet_sequence_number::maximum);
}

}  // namespace verbspp::detail
