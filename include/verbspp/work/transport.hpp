// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// The services of queue pairs, with the values of `ibv_qp_type`.
enum class transport : std::uint8_t {
  rc = IBV_QPT_RC,  ///< reliable connection
  uc = IBV_QPT_UC,  ///< unreliable connection
  ud = IBV_QPT_UD,  ///< unreliable datagram
};

[[nodiscard]] const char* to_string(transport type) noexcept;

/// Transports whose queue pairs are connected to a single peer.
template <transport Transport>
concept Connects =
    detail::because(Transport == transport::rc || Transport == transport::uc,
                    "a UD queue pair is not connected to a peer: the handshake, the access flags, "
                    "the path MTU and the receive PSN are for RC and UC; on UD, call activate(), "
                    "and give each datagram an address handle");

template <transport Transport>
concept SendsDatagrams =
    detail::because(Transport == transport::ud,
                    "only UD sends datagrams: the queue key, activate() and multicast groups do "
                    "not exist on RC and UC");

/// Transports with acknowledgements, and thus with retries and with requests that have a response.
template <transport Transport>
concept Acknowledges = detail::because(Transport == transport::rc,
                                       "only RC has acknowledgements: UC and UD have no timeouts, "
                                       "no retries and no outstanding reads to set");

template <transport Transport>
concept CarriesWrites = detail::because(Transport == transport::rc || Transport == transport::uc,
                                        "UD carries only sends: an RDMA write needs RC or UC");

template <transport Transport>
concept CarriesReads =
    detail::because(Transport != transport::ud, "UD carries only sends: an RDMA read needs RC") &&
    detail::because(Transport != transport::uc,
                    "UC carries no RDMA reads, because it has no responses: an RDMA read needs "
                    "RC");

template <transport Transport>
concept CarriesAtomics =
    detail::because(Transport != transport::ud,
                    "UD carries only sends: atomic operations need RC") &&
    detail::because(Transport != transport::uc,
                    "UC carries no atomic operations, because it has no responses: atomic "
                    "operations need RC");

template <transport Transport>
concept CarriesAcknowledgedWrites = detail::because(
    Transport == transport::rc, "atomic writes and flushes have responses, which only RC carries");

template <transport Transport>
concept CarriesInvalidation =
    detail::because(Transport == transport::rc, "verbspp invalidates rkeys only on RC");

template <transport Transport>
concept BindsWindows = detail::because(Transport != transport::ud,
                                       "UD carries only sends, so no peer could access memory "
                                       "through a window: binding one needs RC or UC");

}  // namespace verbspp
