// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/queue_pair_number.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The operations of completed requests, with the values of `ibv_wc_opcode`.
enum class work_operation : std::uint32_t {
  send = IBV_WC_SEND,
  rdma_write = IBV_WC_RDMA_WRITE,
  rdma_read = IBV_WC_RDMA_READ,
  compare_and_swap = IBV_WC_COMP_SWAP,
  fetch_and_add = IBV_WC_FETCH_ADD,
  bind_memory_window = IBV_WC_BIND_MW,
  local_invalidate = IBV_WC_LOCAL_INV,
  flush = 8,         ///< IBV_WC_FLUSH in rdma-core 45 and newer
  atomic_write = 9,  ///< IBV_WC_ATOMIC_WRITE in rdma-core 44 and newer
  receive = IBV_WC_RECV,
  /// A receive that was consumed by the peer's RDMA write with immediate data.
  receive_of_rdma_write = IBV_WC_RECV_RDMA_WITH_IMM,
};

/// Returns the name of the operation, or "unknown operation" for a value that is not in the list.
[[nodiscard]] const char* to_string(work_operation operation) noexcept;

/// The status of a completed request, with the values of `ibv_wc_status`. A value that is not in
/// this list is kept as a number.
enum class work_status : std::uint32_t {
  success = IBV_WC_SUCCESS,
  local_length_error = IBV_WC_LOC_LEN_ERR,
  local_queue_pair_operation_error = IBV_WC_LOC_QP_OP_ERR,
  local_ee_context_operation_error = IBV_WC_LOC_EEC_OP_ERR,
  local_protection_error = IBV_WC_LOC_PROT_ERR,
  flushed = IBV_WC_WR_FLUSH_ERR,
  memory_window_bind_error = IBV_WC_MW_BIND_ERR,
  bad_response_error = IBV_WC_BAD_RESP_ERR,
  local_access_error = IBV_WC_LOC_ACCESS_ERR,
  remote_invalid_request_error = IBV_WC_REM_INV_REQ_ERR,
  remote_access_error = IBV_WC_REM_ACCESS_ERR,
  remote_operation_error = IBV_WC_REM_OP_ERR,
  retry_exceeded = IBV_WC_RETRY_EXC_ERR,
  receiver_not_ready_retry_exceeded = IBV_WC_RNR_RETRY_EXC_ERR,
  local_rdd_violation_error = IBV_WC_LOC_RDD_VIOL_ERR,
  remote_invalid_rd_request = IBV_WC_REM_INV_RD_REQ_ERR,
  remote_aborted = IBV_WC_REM_ABORT_ERR,
  invalid_ee_context_number = IBV_WC_INV_EECN_ERR,
  invalid_ee_context_state = IBV_WC_INV_EEC_STATE_ERR,
  fatal = IBV_WC_FATAL_ERR,
  response_timeout = IBV_WC_RESP_TIMEOUT_ERR,
  general_error = IBV_WC_GENERAL_ERR,
  tag_matching_error = IBV_WC_TM_ERR,
  tag_matching_rendezvous_incomplete = IBV_WC_TM_RNDV_INCOMPLETE,
};

[[nodiscard]] const char* to_string(work_status status) noexcept;

/// Says where to look for the cause of a failed request.
enum class work_error_class : std::uint8_t {
  local_programming,  ///< usually a mistake on this side, such as a wrong key, bound or length
  local_resource,     ///< the device or driver on this side
  remote,             ///< one side rejected or aborted the other's request
  transport,          ///< the packets violated the protocol
  timeout,            ///< no response, or the peer had no receive posted in time
  flushed,            ///< aborted with the queue pair; the peer may have executed the request
  fatal,              ///< the device or queue pair is unusable
  unknown,            ///< success, or a status that this library does not know
};

[[nodiscard]] const char* to_string(work_error_class kind) noexcept;

/// A failed request: its status, where to look for the cause, and the usual cause.
class work_error {
 public:
  constexpr work_error() noexcept = default;
  constexpr work_error(work_status status, std::uint32_t vendor_code, std::uint64_t wr_id,
                       std::uint32_t queue_pair_number) noexcept
      : wr_id_(wr_id),
        status_(status),
        vendor_code_(vendor_code),
        queue_pair_number_(queue_pair_number) {}

  [[nodiscard]] constexpr work_status status() const noexcept { return status_; }
  [[nodiscard]] work_error_class error_class() const noexcept;
  /// The code that the provider itself reported; 0 if it did not report any.
  [[nodiscard]] constexpr std::uint32_t vendor_code() const noexcept { return vendor_code_; }
  [[nodiscard]] constexpr std::uint64_t wr_id() const noexcept { return wr_id_; }
  [[nodiscard]] constexpr verbspp::queue_pair_number queue_pair_number() const noexcept {
    return detail::queue_pair_number_of(queue_pair_number_);
  }
  /// The operation of the request. A device does not report the operation of a failed request, so
  /// it is known only if the code that posted the request has added it with `with_operation`.
  [[nodiscard]] constexpr std::optional<work_operation> operation() const noexcept {
    return operation_;
  }
  [[nodiscard]] constexpr work_error with_operation(work_operation operation) const noexcept {
    work_error copy = *this;
    copy.operation_ = operation;
    return copy;
  }
  /// The peer's queue pair. A completion does not name it, so it is known only if the code that
  /// posted the request has added it with `with_peer`, as channels do.
  [[nodiscard]] constexpr std::optional<verbspp::queue_pair_number> peer() const noexcept {
    if (peer_ == 0) return std::nullopt;
    return detail::queue_pair_number_of(peer_);
  }
  [[nodiscard]] constexpr work_error with_peer(verbspp::queue_pair_number peer) const noexcept {
    work_error copy = *this;
    copy.peer_ = peer.value();
    return copy;
  }
  /// For the error of a flushed request: returns a copy that also contains the cause that broke the
  /// connection. `cause` is a string that lives as long as the program, or null if the cause is
  /// unknown.
  [[nodiscard]] constexpr work_error with_cause(const char* cause) const noexcept {
    work_error copy = *this;
    copy.cause_ = cause;
    return copy;
  }
  /// Converts to an `error` for the same failure, which keeps all details.
  operator error() const noexcept;
  /// Returns the work error from which `e` was converted, or nothing if `e` comes from a different
  /// kind of failure.
  [[nodiscard]] static std::optional<work_error> from(const error& e) noexcept;
  /// Explains the usual cause of this status, and what to check. For a flushed request, returns the
  /// cause that broke the connection, if it is known.
  [[nodiscard]] const char* hint() const noexcept;
  /// Writes the message to the buffer, truncated if necessary and null-terminated. Does not
  /// allocate.
  /// \returns the length of the whole message, without the terminating null
  // NOLINTNEXTLINE(modernize-use-nodiscard): a caller may know that the buffer suffices
  std::size_t format(std::span<char> buffer) const noexcept;
  /// Returns one line with the status, the vendor code, the wr_id, the number of the queue pair,
  /// the hint and, if they are known, the operation and the peer's queue pair.
  [[nodiscard]] std::string message() const;
  /// Throws the error as a `work_exception`. If the library was built without exceptions, prints
  /// the message and aborts.
  [[noreturn]] void raise() const;

 private:
  std::uint64_t wr_id_ = 0;
  work_status status_ = work_status::general_error;
  std::uint32_t vendor_code_ = 0;
  std::uint32_t queue_pair_number_ = 0;
  std::uint32_t peer_ = 0;  ///< 0 if it is unknown
  std::optional<work_operation> operation_{};
  const char* cause_ = nullptr;
};

std::ostream& operator<<(std::ostream& out, const work_error& e);

/// The exception that functions such as `work_result::value()` throw for a failed request. `what()`
/// is the error's message, cut off after 511 characters.
class VERBSPP_EXCEPTION work_exception : public std::system_error {
 public:
  explicit work_exception(const work_error& cause);
  [[nodiscard]] const work_error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  work_error error_;
  std::array<char, 512> text_{};  // system_error::what() would append the errno's text
};

/// A `Value`, or the failure of a request.
template <class Value>
using work_result = detail::outcome<Value, work_error>;

}  // namespace verbspp
