// SPDX-License-Identifier: Apache-2.0
#include <verbspp/qp/queue_pair.hpp>

#include <cerrno>
#include <ostream>

namespace verbspp::detail {

namespace {

/// The errnos by which one or another provider says that a queue is full.
bool means_full(int errnum) noexcept {
  return errnum == ENOMEM || errnum == EAGAIN || errnum == ENOBUFS || errnum == ENOSPC ||
         errnum == EOVERFLOW;
}

}  // namespace

queue_pair_owner::~queue_pair_owner() {
  if (native_ != nullptr) report_destroy(errno_of(ibv_destroy_qp(native_)), "ibv_destroy_qp");
}

error post_failure(int returned, const char* operation, std::size_t elements,
                   std::uint32_t max_elements) noexcept {
  const int errnum = errno_of(returned);
  // Some providers report too many elements by the errno that others use for a full queue.
  if (elements > max_elements)
    return error::above_limit(operation, "scatter-gather elements of one request", elements,
                              max_elements,
                              "ask the builder for more: max_send_elements, max_receive_elements");
  if (means_full(errnum))
    return error::from_errno(errnum, operation)
        .as(error_kind::would_block,
            "the queue is full: take completions first, or build the queue pair with more work "
            "requests; unsignaled requests give their place back only with a later signaled one");
  return error::from_errno(errnum, operation,
                           errnum == EINVAL ? "the device takes no such request in the queue "
                                              "pair's present state, or not at all"
                                            : nullptr);
}

error remote_too_short(const char* operation, std::uint64_t local, std::uint64_t remote) noexcept {
  return error::above_limit(operation, "bytes of the elements", local, remote,
                            "the remote memory is shorter than that");
}

result<queue_pair_state> query_state(ibv_qp* native) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const int errnum = errno_of(ibv_query_qp(native, &attributes, IBV_QP_STATE, &initial));
  if (errnum != 0) return error::from_errno(errnum, "ibv_query_qp");
  return static_cast<queue_pair_state>(attributes.qp_state);
}

void print(std::ostream& out, const queue_pair_data& queue_pair, queue_pair_state state) {
  if (queue_pair.owner.native() == nullptr) {
    out << "queue pair, moved from";
    return;
  }
  out << queue_pair.local << ", " << to_string(state) << ", device "
      << queue_pair.owner.domain().context().device_name();
}

}  // namespace verbspp::detail
