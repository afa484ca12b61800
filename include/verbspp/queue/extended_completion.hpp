// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/queue/completion_feature.hpp>
#include <verbspp/work/immediate_data.hpp>
#include <verbspp/work/work_completion.hpp>
#include <verbspp/work/work_error.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace verbspp {

/// A request that succeeded, with the fields `Fields` of its completion. A plain value with copies
/// of these fields, except the queue pair number, which only `extended_completion` returns.
template <completion_features Fields>
class extended_completed_work {
 public:
  /// Used by the library only: reads the queue's current completion.
  VERBSPP_DATA_PATH explicit extended_completed_work(ibv_cq_ex* queue) noexcept
      : opcode_(detail::number_of(ibv_wc_read_opcode(queue))) {
    if constexpr (Fields.contains(completion_feature::byte_count))
      byte_count_ = ibv_wc_read_byte_len(queue);
    if constexpr (Fields.contains(completion_feature::immediate)) {
      flags_ = ibv_wc_read_wc_flags(queue);
      if ((flags_ & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != 0)
        immediate_ = ibv_wc_read_imm_data(queue);
    }
    if constexpr (Fields.contains(completion_feature::source))
      source_ = ibv_wc_read_src_qp(queue) & queue_pair_number::maximum;
    if constexpr (Fields.contains(completion_feature::source_lid))
      source_lid_ = static_cast<std::uint16_t>(ibv_wc_read_slid(queue));
    if constexpr (Fields.contains(completion_feature::service_level))
      service_level_ = ibv_wc_read_sl(queue) & verbspp::service_level::maximum;
    if constexpr (Fields.contains(completion_feature::timestamp))
      timestamp_ = ibv_wc_read_completion_ts(queue);
    if constexpr (Fields.contains(completion_feature::wall_clock))
      wall_clock_ = ibv_wc_read_completion_wallclock_ns(queue);
  }

  [[nodiscard]] work_operation operation() const noexcept {
    return static_cast<work_operation>(opcode_);
  }
  [[nodiscard]] bool is_receive() const noexcept { return (opcode_ & IBV_WC_RECV) != 0; }
  /// The number of bytes that a receive or an RDMA read has delivered. Empty for other requests.
  [[nodiscard]] std::optional<std::uint32_t> byte_count() const noexcept
    requires HasCompletionFields<Fields, completion_feature::byte_count>
  {
    if (!is_receive() && opcode_ != IBV_WC_RDMA_READ) return std::nullopt;
    return byte_count_;
  }
  /// The peer's immediate data; empty if the message had none.
  [[nodiscard]] std::optional<immediate_data> immediate() const noexcept
    requires HasCompletionFields<Fields, completion_feature::immediate>
  {
    if ((flags_ & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return immediate_data::from_network(immediate_);
  }
  /// This side's rkey that the peer's send invalidated; empty if the send invalidated none.
  [[nodiscard]] std::optional<remote_key> invalidated_rkey() const noexcept
    requires HasCompletionFields<Fields, completion_feature::immediate>
  {
    if ((flags_ & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return remote_key(immediate_);
  }
  /// The queue pair that sent the datagram. Undefined if the request did not receive a datagram.
  [[nodiscard]] queue_pair_number source() const noexcept
    requires HasCompletionFields<Fields, completion_feature::source>
  {
    return queue_pair_number::assume(source_);
  }
  [[nodiscard]] lid source_lid() const noexcept
    requires HasCompletionFields<Fields, completion_feature::source_lid>
  {
    return lid::assume(source_lid_);
  }
  [[nodiscard]] verbspp::service_level service_level() const noexcept
    requires HasCompletionFields<Fields, completion_feature::service_level>
  {
    return verbspp::service_level::assume(service_level_);
  }
  /// The time of completion, in ticks of the device's clock, whose frequency is
  /// `context::device_clock_khz`.
  [[nodiscard]] std::uint64_t timestamp() const noexcept
    requires HasCompletionFields<Fields, completion_feature::timestamp>
  {
    return timestamp_;
  }
  /// The time of completion, in nanoseconds since 1970.
  [[nodiscard]] std::uint64_t wall_clock() const noexcept
    requires HasCompletionFields<Fields, completion_feature::wall_clock>
  {
    return wall_clock_;
  }

 private:
  std::uint32_t opcode_;
  std::uint32_t byte_count_ = 0;
  unsigned flags_ = 0;
  __be32 immediate_ = 0;  // or the invalidated rkey, which is in host byte order
  std::uint32_t source_ = 0;
  std::uint16_t source_lid_ = 0;
  std::uint8_t service_level_ = 0;
  std::uint64_t timestamp_ = 0;
  std::uint64_t wall_clock_ = 0;
};

/// The current completion of a polling session: success or error.
///
/// This object is valid only during the call to which it is passed, and can't be copied. The value
/// that `get` returns can be copied, and remains valid.
template <completion_features Features>
class extended_completion {
 public:
  /// Used by the library only.
  VERBSPP_DATA_PATH explicit extended_completion(ibv_cq_ex* queue) noexcept : queue_(queue) {}
  extended_completion(const extended_completion&) = delete;
  extended_completion& operator=(const extended_completion&) = delete;

  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t wr_id() const noexcept { return queue_->wr_id; }
  /// The queue pair of the request, for programs in which several queue pairs share the completion
  /// queue.
  [[nodiscard]] VERBSPP_DATA_PATH verbspp::queue_pair_number queue_pair_number() const noexcept
    requires HasCompletionFields<Features, completion_feature::queue_pair_number>
  {
    return detail::queue_pair_number_of(ibv_wc_read_qp_num(queue_));
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_success() const noexcept {
    return detail::number_of(queue_->status) == IBV_WC_SUCCESS;
  }
  VERBSPP_DATA_PATH explicit operator bool() const noexcept { return is_success(); }
  /// Returns the details of the request, or of its failure.
  ///
  /// By default, calls the driver for the operation, and for the fields in `Features`, except the
  /// queue pair number. If only some fields are needed, name them:
  /// `get<completion_feature::timestamp>()`, or `get<completion_features{}>()` for none.
  template <completion_features Fields = Features & detail::all_completion_fields>
    requires HasCompletionFields<Features, Fields>
  [[nodiscard]] VERBSPP_DATA_PATH work_result<extended_completed_work<Fields>> get()
      const noexcept {
    if (!is_success()) [[unlikely]]
      return failure();
    return extended_completed_work<Fields>(queue_);
  }

 private:
  // Inline, so that neither the completion nor the result has to be stored in memory.
  [[nodiscard]] VERBSPP_DATA_PATH work_error failure() const noexcept {
    std::uint32_t number = 0;
    if constexpr (Features.contains(completion_feature::queue_pair_number))
      number = ibv_wc_read_qp_num(queue_);
    return {static_cast<work_status>(detail::number_of(queue_->status)),
            ibv_wc_read_vendor_err(queue_), queue_->wr_id, number};
  }

  ibv_cq_ex* queue_;
};

}  // namespace verbspp
