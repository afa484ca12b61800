// SPDX-License-Identifier: Apache-2.0
/// \file
/// Converts operations to requests, posts them, and creates the errors for calls that fail.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/trust_driver.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/work/capacities.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbspp::detail {

/// The names in errors of `ibv_bind_mw` and `ibv_post_recv`, which have no `operation_traits`.
inline constexpr const char* binding_at_once = "ibv_bind_mw";
inline constexpr const char* posting_receive = "ibv_post_recv";

// These functions return the errors for failed calls and refused requests. They are out of line,
// because failures are rare; only the overload for receives, which calls another one, is inline.
[[nodiscard]] error post_failure(int returned, const char* operation, std::size_t elements,
                                 std::uint32_t max_elements) noexcept VERBSPP_NONBLOCKING;
/// Returns the error for a failed call. `refused` is the request as it was passed to the driver.
[[nodiscard]] error post_failure(int returned, const char* operation, const ibv_send_wr& refused,
                                 const queue_pair_capacities& granted) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] inline error post_failure(int returned, const char* operation,
                                        const ibv_recv_wr& refused,
                                        std::uint32_t max_elements) noexcept {
  return post_failure(returned, operation, static_cast<std::size_t>(refused.num_sge), max_elements);
}
[[nodiscard]] error inline_too_long(const char* operation, std::uint64_t length,
                                    std::uint32_t limit) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_room_for_header(std::uint64_t length) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_such_operation(const char* operation) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_fence(const char* operation) noexcept VERBSPP_NONBLOCKING;

/// The queue pair for which this thread is building its innermost batch. Only assertions use this
/// variable. It is always null if assertions are disabled.
inline constinit thread_local const ibv_qp* queue_pair_in_batch = nullptr;

/// Asserts that this thread's innermost batch is not for this queue pair. Drivers such as mlx5 hold
/// the send queue's lock from `ibv_wr_start` to `ibv_wr_complete`, so posting would deadlock.
VERBSPP_DATA_PATH void assert_not_in_batch([[maybe_unused]] const ibv_qp* queue_pair) noexcept {
  assert(queue_pair_in_batch != queue_pair &&
         "a request or another batch was posted to the queue pair from the function that its "
         "post_batch calls: add the requests to the batch, or post them after post_batch has "
         "returned");
}

/// While this object marks the thread's innermost batch, an assertion fails if the thread posts to
/// the send queue of the queue pair other than through the batch.
class batch_mark {
 public:
#ifdef NDEBUG
  VERBSPP_DATA_PATH explicit batch_mark(const ibv_qp* /*queue_pair*/) noexcept {}
#else
  explicit batch_mark(const ibv_qp* queue_pair) noexcept {
    assert_not_in_batch(queue_pair);
    outer_ = std::exchange(queue_pair_in_batch, queue_pair);
  }
  batch_mark(const batch_mark&) = delete;
  batch_mark& operator=(const batch_mark&) = delete;
  ~batch_mark() { queue_pair_in_batch = outer_; }

 private:
  const ibv_qp* outer_ = nullptr;
#endif
};

/// The flags of a request (`ibv_send_flags`).
template <class Operation>
[[nodiscard]] VERBSPP_DATA_PATH unsigned flags_of(const Operation& operation,
                                                  work_tag tag) noexcept {
  using traits = operation_traits<Operation>;
  return flag_if(tag.signaled, IBV_SEND_SIGNALED) | traits::flags(operation) |
         flag_if(traits::elements(operation).is_inline, IBV_SEND_INLINE);
}

/// True if the values of the operation permit posting it to a queue pair of this transport.
template <transport Transport, class Operation>
[[nodiscard]] VERBSPP_DATA_PATH bool is_sound(const Operation& operation) noexcept {
  using traits = operation_traits<Operation>;
  // These are separate `if` statements, because clang would merge the operands of "||" into one
  // condition, which takes more instructions.
  if constexpr (Transport != transport::rc)
    if ((traits::flags(operation) & IBV_SEND_FENCE) != 0) [[unlikely]]
      return false;
  return traits::is_sound(operation);
}
/// Returns the error for an operation for which `is_sound` returns false. This function is inline,
/// too. Otherwise, the operation would be passed by reference, and the compiler would have to build
/// it in memory instead of registers.
template <transport Transport, class Operation>
[[nodiscard]] VERBSPP_DATA_PATH error unsoundness(const Operation& operation) noexcept {
  using traits = operation_traits<Operation>;
  if constexpr (Transport != transport::rc)
    if ((traits::flags(operation) & IBV_SEND_FENCE) != 0) return no_fence(traits::name);
  return traits::unsoundness(operation);
}

/// Fills in a native request, except for its elements and the pointer to the next request. Most
/// members that the opcode does not use are left uninitialized, because drivers ignore them.
template <class Operation>
VERBSPP_DATA_PATH void fill(ibv_send_wr& native, const Operation& operation,
                            work_tag tag) noexcept {
  native.wr_id = tag.id;
  native.send_flags = flags_of(operation, tag);
  operation_traits<Operation>::describe(native, operation);
}

/// Posts one request (`ibv_post_send`).
template <transport Transport, class Operation>
[[nodiscard]] VERBSPP_DATA_PATH result<void> post_one(ibv_qp* queue_pair,
                                                      const queue_pair_capacities& granted,
                                                      const Operation& operation,
                                                      work_tag tag) noexcept {
  using traits = operation_traits<Operation>;
  if (!is_sound<Transport>(operation)) [[unlikely]]
    return unsoundness<Transport>(operation);
  ibv_send_wr native;
  fill(native, operation, tag);
  const native_elements elements = traits::elements(operation);
  ibv_sge single;
  native.sg_list = elements.at(single);
  native.num_sge = static_cast<int>(elements.size);
  native.next = nullptr;
  ibv_send_wr* rejected;
  assert_not_in_batch(queue_pair);
  const int returned = trust_driver([&]() __attribute__((always_inline)) {
    return ibv_post_send(queue_pair, &native, &rejected);
  });
  if (returned != 0) [[unlikely]]
    return post_failure(returned, traits::name, native, granted);
  return success();
}

/// Posts one receive by calling `post`, which posts to a queue pair or to a shared receive queue.
template <class Post>
[[nodiscard]] VERBSPP_DATA_PATH result<void> post_one_receive(const receive_operation& operation,
                                                              receive_tag tag, const char* name,
                                                              const std::uint32_t& max_elements,
                                                              Post post) noexcept {
  ibv_recv_wr native;
  const native_elements elements = native_of(operation.elements);
  ibv_sge single;
  native.wr_id = tag.id;
  native.sg_list = elements.at(single);
  native.num_sge = static_cast<int>(elements.size);
  native.next = nullptr;
  ibv_recv_wr* rejected;
  const int returned =
      trust_driver([&]() __attribute__((always_inline)) { return post(&native, &rejected); });
  if (returned != 0) [[unlikely]]
    return post_failure(returned, name, elements.size, max_elements);
  return success();
}

}  // namespace verbspp::detail
