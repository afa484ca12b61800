// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/work/immediate_data.hpp>
#include <verbspp/work/work_error.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace verbspp {

namespace detail {
struct pool_place;
}  // namespace detail

/// The details of a request that succeeded.
class completed_work {
 public:
  explicit completed_work(const ibv_wc& native) noexcept
      : opcode_(detail::number_of(native.opcode)),
        byte_count_(native.byte_len),
        flags_(native.wc_flags),
        immediate_(native.imm_data) {}
  /// Used by the library only. The parameters are the only members of a successful completion that
  /// this class keeps.
  completed_work(std::uint32_t opcode, std::uint32_t byte_count, unsigned flags,
                 __be32 immediate) noexcept
      : opcode_(opcode), byte_count_(byte_count), flags_(flags), immediate_(immediate) {}

  [[nodiscard]] work_operation operation() const noexcept {
    return static_cast<work_operation>(opcode_);
  }
  [[nodiscard]] bool is_receive() const noexcept { return (opcode_ & IBV_WC_RECV) != 0; }
  /// The number of bytes that a receive or an RDMA read has received. On UD, it includes the 40
  /// bytes that are reserved for the global route header. Empty for other requests.
  [[nodiscard]] std::optional<std::uint32_t> byte_count() const noexcept {
    if (!is_receive() && opcode_ != IBV_WC_RDMA_READ) return std::nullopt;
    return byte_count_;
  }
  /// Used by the library only: the number of bytes that were written to the memory of a receive or
  /// a read; for other requests, `otherwise`. An RDMA write with immediate data consumes a receive,
  /// but does not write to its memory.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t bytes_filled(
      std::uint32_t otherwise) const noexcept {
    if (opcode_ == IBV_WC_RECV || opcode_ == IBV_WC_RDMA_READ) [[likely]]
      return byte_count_;
    return is_receive() ? 0 : otherwise;
  }
  /// The peer's immediate data; empty if the message had none.
  [[nodiscard]] std::optional<immediate_data> immediate() const noexcept {
    if ((flags_ & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return immediate_data::from_network(immediate_);
  }
  /// The rkey on this side that the peer's send has invalidated. Empty if the send did not
  /// invalidate any.
  [[nodiscard]] std::optional<remote_key> invalidated_rkey() const noexcept {
    if ((flags_ & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return remote_key(immediate_);
  }

 private:
  friend detail::pool_place;

  std::uint32_t opcode_;
  std::uint32_t byte_count_;
  unsigned flags_;
  __be32 immediate_;  // or the invalidated rkey, which is in host byte order
};

/// A slot for one completion, successful or not, which `completion_queue::poll` fills.
///
/// A slot has the layout of `ibv_wc`. For a failed request, only `wr_id`, the queue pair and the
/// failure can be read, since verbs leave the other members undefined.
class work_completion {
 public:
  work_completion() noexcept = default;
  explicit work_completion(const ibv_wc& native) noexcept : native_(native) {}

  [[nodiscard]] std::uint64_t wr_id() const noexcept { return native_.wr_id; }
  /// The number of the queue pair that processed the request. It is needed if several queue pairs
  /// share the completion queue.
  [[nodiscard]] verbspp::queue_pair_number queue_pair_number() const noexcept {
    return detail::queue_pair_number_of(native_.qp_num);
  }
  [[nodiscard]] bool is_success() const noexcept {
    return detail::number_of(native_.status) == IBV_WC_SUCCESS;
  }
  explicit operator bool() const noexcept { return is_success(); }
  /// Returns the details of the request, or of its failure.
  [[nodiscard]] work_result<completed_work> get() const noexcept {
    if (is_success()) return completed_work(native_);
    return work_error(static_cast<work_status>(detail::number_of(native_.status)),
                      native_.vendor_err, native_.wr_id, native_.qp_num);
  }
  [[nodiscard]] const ibv_wc& native() const noexcept { return native_; }

 private:
  ibv_wc native_;
};

static_assert(sizeof(work_completion) == sizeof(ibv_wc) &&
              std::is_standard_layout_v<work_completion> &&
              std::is_trivially_copyable_v<work_completion>);

}  // namespace verbspp
