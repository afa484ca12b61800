// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <optional>
#include <span>

namespace verbspp {

/// The bytes at the front of each receive of a UD queue pair that belong to the global route
/// header, whether the datagram had one or not.
inline constexpr std::size_t datagram_header_size = sizeof(ibv_grh);

/// A datagram that arrived: the payload, and who sent it.
///
/// It views the memory of the receive, and so lives no longer than that.
class received_datagram {
 public:
  /// `memory` is that of the receive (its first element, if it had several), and `completion` is
  /// the receive's, of a UD queue pair.
  /// \errors the request's own failure
  [[nodiscard]] static work_result<received_datagram> from(const work_completion& completion,
                                                           std::span<std::byte> memory
                                                               VERBSPP_LIFETIMEBOUND) noexcept;

  /// What the sender sent, as far as it lies in the memory given.
  [[nodiscard]] std::span<std::byte> payload() const noexcept;
  [[nodiscard]] queue_pair_number source() const noexcept {
    return queue_pair_number::assume(native_.src_qp & queue_pair_number::maximum);
  }
  /// The sender's LID; 0 on Ethernet.
  [[nodiscard]] lid source_lid() const noexcept { return lid::assume(native_.slid); }
  [[nodiscard]] verbspp::service_level service_level() const noexcept {
    return verbspp::service_level::assume(native_.sl & verbspp::service_level::maximum);
  }
  [[nodiscard]] std::optional<immediate_data> immediate() const noexcept {
    return completed_work(native_).immediate();
  }
  /// True if the datagram came with a global route header: always on Ethernet.
  [[nodiscard]] bool has_global_route() const noexcept {
    return (native_.wc_flags & IBV_WC_GRH) != 0 && memory_.size() >= datagram_header_size;
  }
  /// The sender's and the receiver's (or the group's) GID from the header; empty without one.
  [[nodiscard]] std::optional<gid> source_address() const noexcept;
  [[nodiscard]] std::optional<gid> destination_address() const noexcept;

  [[nodiscard]] const ibv_wc& native() const noexcept { return native_; }
  /// The 40 bytes as they arrived; undefined without a global route header. RoCE v2 over IPv4 has
  /// its IP header in the last 20 of them.
  [[nodiscard]] std::span<std::byte> header() const noexcept;

 private:
  received_datagram(const ibv_wc& native, std::span<std::byte> memory) noexcept;

  ibv_wc native_;
  std::span<std::byte> memory_;
};

}  // namespace verbspp
