// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/capacities.hpp>
#include <verbspp/work/posting.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbspp {

namespace {

/// True for the errnos with which providers may report a full queue.
bool means_full(int errnum) noexcept {
  return errnum == ENOMEM || errnum == EAGAIN || errnum == ENOBUFS || errnum == ENOSPC ||
         errnum == EOVERFLOW;
}

bool posts_receives(std::string_view operation) noexcept { return operation.ends_with("recv"); }

const char* advice_on_full(const char* operation) noexcept {
  if (posts_receives(operation))
    return "the queue is full: poll completions first, or create the queue with room for more "
           "receives";
  return "the queue is full: poll completions first, or create the queue with room for more work "
         "requests; unsignaled requests occupy it until a later signaled one has completed";
}

/// The usual cause of EINVAL. Null for a shared receive queue, for which there is no usual cause.
const char* cause_of_refusal(std::string_view operation) noexcept {
  if (operation == detail::posting_receive)
    return "usually the queue pair's current state does not permit receives";
  if (posts_receives(operation)) return nullptr;
  return "usually the device does not support such a request, or does not accept it in the queue "
         "pair's current state";
}

}  // namespace

error detail::post_failure(int returned, const char* operation, std::size_t elements,
                           std::uint32_t max_elements) noexcept VERBSPP_NONBLOCKING {
  const int errnum = errno_of(returned);
  // Some providers report too many elements with the errno that others use for a full queue.
  if (elements > max_elements)
    return error::above_limit(
        operation, "scatter-gather elements of one request", elements, max_elements,
        "create the queue with more elements per request: max_send_elements or "
        "max_receive_elements of the builder, or max_elements of a shared receive queue");
  if (means_full(errnum))
    return error::from_errno(errnum, operation)
        .as(error_kind::would_block, advice_on_full(operation));
  return error::from_errno(errnum, operation,
                           errnum == EINVAL ? cause_of_refusal(operation) : nullptr);
}

error detail::post_failure(int returned, const char* operation, const ibv_send_wr& refused,
                           const queue_pair_capacities& granted) noexcept VERBSPP_NONBLOCKING {
  const auto elements = static_cast<std::size_t>(refused.num_sge);
  if ((refused.send_flags & IBV_SEND_INLINE) != 0) {
    // Checked before the errno, because some providers report too many inline bytes with the errno
    // that others use for a full queue.
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < elements; ++i) length += refused.sg_list[i].length;
    if (length > granted.max_inline_data)
      return inline_too_long(operation, length, granted.max_inline_data);
  }
  return post_failure(returned, operation, elements, granted.max_send_elements);
}

error detail::inline_too_long(const char* operation, std::uint64_t length,
                              std::uint32_t limit) noexcept VERBSPP_NONBLOCKING {
  return error::above_limit(
      operation, "bytes of inline data", length, limit,
      "request a larger max_inline_data from the builder, or send from registered memory");
}

error detail::datagram_too_long(const char* operation, std::uint64_t length,
                                std::uint32_t most) noexcept VERBSPP_NONBLOCKING {
  return error::above_limit(
      operation, "bytes of a datagram", length, most,
      "the destination has this limit, which is usually the smaller MTU of the two ports: send "
      "several datagrams, or configure a larger MTU for both ports");
}

error detail::remote_too_short(const char* operation, std::uint64_t local,
                               std::uint64_t remote) noexcept VERBSPP_NONBLOCKING {
  return error::above_limit(operation, "bytes of the elements", local, remote,
                            "the limit is the length of the remote memory in bytes");
}

error detail::no_room_for_header(std::uint64_t length) noexcept VERBSPP_NONBLOCKING {
  return error::out_of_range(posting_receive, "bytes of the elements (40 or more)", length,
                             "on UD the first 40 bytes of a receive are for the global route "
                             "header");
}

error detail::no_word(const char* operation, std::uint32_t length) noexcept VERBSPP_NONBLOCKING {
  return error::out_of_range(operation, "bytes for the result (8)", length,
                             "atomic operations work on 8 bytes");
}

error detail::no_remote_word(const char* operation, std::uint64_t address,
                             std::uint64_t length) noexcept VERBSPP_NONBLOCKING {
  if (length < sizeof(std::uint64_t))
    return error::out_of_range(operation, "bytes of the remote memory (8 or more)", length,
                               "an atomic write writes 8 bytes");
  return error::out_of_range(operation, "remote address (a multiple of 8)", address,
                             "an atomic write needs remote memory that is aligned to 8 bytes");
}

error detail::cannot_flush(const char* operation, bool nowhere) noexcept VERBSPP_NONBLOCKING {
  if (nowhere)
    return {error_kind::invalid_input, operation,
            "the flush has no placement: specify flush_placement::global, "
            "flush_placement::persistent, or both"};
  return {error_kind::permission, operation,
          "this handle to remote memory lacks a right that the placement needs: "
          "access::flush_global for flush_placement::global, access::flush_persistent for "
          "flush_placement::persistent; the owner of the memory has to grant it, and the type of "
          "the handle has to contain it"};
}

error detail::no_such_operation(const char* operation) noexcept VERBSPP_NONBLOCKING {
  return {error_kind::not_supported, operation,
          "this queue pair does not support this operation: the device lacks it, or the queue pair "
          "was created without it"};
}

error detail::no_fence(const char* operation) noexcept VERBSPP_NONBLOCKING {
  return {error_kind::invalid_input, operation,
          "only RC supports fences, because UC and UD have no reads for a request to wait for: "
          "leave out .fenced"};
}

error detail::cannot_bind(const char* operation, bool to_no_bytes) noexcept VERBSPP_NONBLOCKING {
  return {error_kind::invalid_input, operation,
          to_no_bytes ? "a memory window of type 2 cannot be bound to zero bytes: unbind it "
                        "by invalidating its rkey"
                      : "the memory window and the region belong to different protection domains: "
                        "register the memory in the domain of the window or channel"};
}

}  // namespace verbspp
