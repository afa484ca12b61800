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

/// The number of bytes that are reserved for the global route header at the beginning of each
/// receive of a UD queue pair. They are reserved whether or not the datagram has such a header.
inline constexpr std::size_t datagram_header_size = sizeof(ibv_grh);

/// A received datagram: its payload and its sender.
///
/// This is a view of the receive's memory, so it must not outlive that memory.
class received_datagram {
 public:
  /// Returns a view of the datagram that a receive of a UD queue pair has placed in memory.
  /// \param completion the completion of the receive
  /// \param memory the memory that was posted with the receive; if it has several elements, only
  /// the first one
  /// \errors the failure of the receive, if it has failed
  [[nodiscard]] static work_result<received_datagram> from(const work_completion& completion,
                                                           std::span<std::byte> memory
                                                               VERBSPP_LIFETIMEBOUND) noexcept;

  /// The sender's data, or the part of it that is in the memory that was passed to `from`.
  [[nodiscard]] std::span<std::byte> payload() const noexcept;
  [[nodiscard]] queue_pair_number source() const noexcept {
    return queue_pair_number::assume(native_.src_qp & queue_pair_number::maximum);
  }
  /// The sender's LID, which has no meaning on Ethernet.
  [[nodiscard]] lid source_lid() const noexcept { return lid::assume(native_.slid); }
  [[nodiscard]] verbspp::service_level service_level() const noexcept {
    return verbspp::service_level::assume(native_.sl & verbspp::service_level::maximum);
  }
  [[nodiscard]] std::optional<immediate_data> immediate() const noexcept {
    return completed_work(native_).immediate();
  }
  /// True if the datagram has a global route header, and the memory contains this header. On
  /// Ethernet, every datagram has one.
  [[nodiscard]] bool has_global_route() const noexcept {
    return (native_.wc_flags & IBV_WC_GRH) != 0 && memory_.size() >= datagram_header_size;
  }
  /// The GIDs in the global route header: the GID of the sender, and the GID of the receiver or of
  /// the multicast group. Empty if there is no such header.
  [[nodiscard]] std::optional<gid> source_address() const noexcept;
  [[nodiscard]] std::optional<gid> destination_address() const noexcept;

  [[nodiscard]] const ibv_wc& native() const noexcept { return native_; }
  /// The 40 bytes for the global route header, as they arrived, or fewer if the memory is shorter.
  /// Their content is undefined if the datagram has no such header. With RoCE v2 over IPv4, the
  /// last 20 bytes are the IP header.
  [[nodiscard]] std::span<std::byte> header() const noexcept;

 private:
  received_datagram(const ibv_wc& native, std::span<std::byte> memory) noexcept;

  ibv_wc native_;
  std::span<std::byte> memory_;
};

}  // namespace verbspp
