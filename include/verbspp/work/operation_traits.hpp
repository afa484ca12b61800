// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/work/transport.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp {

/// Maps an operation of a send queue to libibverbs. For each one, operations.hpp has a
/// specialization with these members, some of which it inherits from `detail::usual_operation`:
///
/// - `name`: the name that errors contain for the call and the operation;
/// - `completes_as`: the operation that its completion reports, unless the request failed;
/// - `carried_by(transport)`: whether queue pairs of this transport accept it;
/// - `capability`: the bits of `ibv_qp_create_send_ops_flags` that the extended interface needs;
/// - `offered_by(device)`: whether a device supports it;
/// - `only_extended`: whether `ibv_post_send` lacks it;
/// - `has_call(queue_pair)`: whether the queue pair's extended interface has it; by default,
///   whether the function pointer `call` is not null, or true if the trait has no `call`;
/// - `has_elements`, `elements(operation)`: whether it uses memory on this side, and that memory;
/// - `flags(operation)`: its `ibv_send_flags`, except signaled and inline;
/// - `is_sound(operation)`, `unsoundness(operation)`: whether its values are consistent (regardless
///   of the queue pair), and the error if they are not;
/// - `describe(native, operation)`, unless `only_extended`: fills the members of an `ibv_send_wr`
///   that depend on the operation;
/// - `start(queue_pair, operation)`: makes its call to the extended interface.
template <class Operation>
struct operation_traits;

namespace detail {

/// The memory of a request: nothing, a range of `ibv_sge`, a single one, or the bytes that are sent
/// inline. A single element is stored by value, so this does not refer to the operation, and the
/// compiler can keep the operation in registers.
struct native_elements {
  ibv_sge single{};
  ibv_sge* range = nullptr;
  std::size_t size = 0;
  bool is_inline = false;

  /// Returns the address of the range. If there is none, copies `single` to `copy` and returns the
  /// address of `copy`.
  [[nodiscard]] VERBSPP_DATA_PATH ibv_sge* at(ibv_sge& copy) const noexcept {
    if (range != nullptr) return range;
    copy.addr = single.addr;
    copy.length = single.length;
    copy.lkey = single.lkey;
    return &copy;
  }
};

/// Returns the memory of a request with one element. The element is copied member by member,
/// because copying the whole structure is slower (see the constructor of `gather_element`).
[[nodiscard]] VERBSPP_DATA_PATH native_elements native_of(const ibv_sge& single,
                                                          bool is_inline) noexcept {
  return {.single = {single.addr, single.length, single.lkey}, .size = 1, .is_inline = is_inline};
}

template <class Element>
[[nodiscard]] VERBSPP_DATA_PATH native_elements
native_of(const element_list<Element>& elements) noexcept {
  if (elements.is_range()) return {.range = elements.native(), .size = elements.size()};
  return native_of(elements.single().native(), elements.is_inline());
}
[[nodiscard]] VERBSPP_DATA_PATH native_elements native_of(const scatter_element& single) noexcept {
  return native_of(single.native(), false);
}

[[nodiscard]] VERBSPP_DATA_PATH unsigned flag_if(bool asked, ibv_send_flags flag) noexcept {
  return asked ? unsigned{flag} : 0U;
}

// These functions return the errors for inconsistent values in an operation. They are not inline,
// because these errors are rare.
[[nodiscard]] error remote_too_short(const char* operation, std::uint64_t local,
                                     std::uint64_t remote) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error datagram_too_long(const char* operation, std::uint64_t length,
                                      std::uint32_t most) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_word(const char* operation,
                            std::uint32_t length) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error no_remote_word(const char* operation, std::uint64_t address,
                                   std::uint64_t length) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error cannot_bind(const char* operation,
                                bool to_no_bytes) noexcept VERBSPP_NONBLOCKING;
[[nodiscard]] error cannot_flush(const char* operation, bool nowhere) noexcept VERBSPP_NONBLOCKING;

/// The base class of the traits, which derives the memory and the flags from the operation's
/// members. All functions are inline, even the ones that return errors. Otherwise, an operation
/// would be passed to them by reference, and the compiler would have to build it in memory instead
/// of registers.
template <class Operation>
struct usual_operation {
  using value = Operation;
  static constexpr bool only_extended = false;
  static constexpr bool has_result = requires(Operation& each) { each.result; };
  static constexpr bool has_elements = has_result || requires(Operation& each) { each.elements; };
  /// True if the remote memory must be at least as long as all elements together.
  static constexpr bool is_bounded = requires(Operation& each) {
    each.elements;
    each.remote.memory();
  };

  [[nodiscard]] static constexpr bool carried_by(transport type) noexcept {
    return type == transport::rc;
  }
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& /*device*/) noexcept {
    return true;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_call(
      [[maybe_unused]] const ibv_qp_ex* to) noexcept {
    if constexpr (requires { operation_traits<Operation>::call; })
      return to->*operation_traits<Operation>::call != nullptr;
    else
      return true;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static native_elements elements(
      [[maybe_unused]] const Operation& operation) noexcept {
    if constexpr (has_result)
      return native_of(operation.result);
    else if constexpr (has_elements)
      return native_of(operation.elements);
    else
      return {};
  }
  [[nodiscard]] VERBSPP_DATA_PATH static unsigned flags(
      [[maybe_unused]] const Operation& operation) noexcept {
    unsigned asked = 0;
    if constexpr (requires { operation.solicited; })
      asked |= flag_if(operation.solicited, IBV_SEND_SOLICITED);
    if constexpr (requires { operation.fenced; })
      asked |= flag_if(operation.fenced, IBV_SEND_FENCE);
    return asked;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_sound(
      [[maybe_unused]] const Operation& operation) noexcept {
    if constexpr (is_bounded)
      return operation.elements.total_length() <= operation.remote.memory().length();
    else if constexpr (has_result)
      return operation.result.length() == sizeof(std::uint64_t);
    else
      return true;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static error unsoundness(
      [[maybe_unused]] const Operation& operation) noexcept {
    [[maybe_unused]] constexpr const char* name = operation_traits<Operation>::name;
    if constexpr (is_bounded)
      return remote_too_short(name, operation.elements.total_length(),
                              operation.remote.memory().length());
    else if constexpr (has_result)
      return no_word(name, operation.result.length());
    else
      return {};
  }
};

/// An operation without a response. UC can carry such operations, too.
template <class Operation>
struct unanswered_operation : usual_operation<Operation> {
  [[nodiscard]] static constexpr bool carried_by(transport type) noexcept {
    return type == transport::rc || type == transport::uc;
  }
};

/// An atomic operation, whose result is an 8-byte word.
template <class Operation>
struct atomic_operation : usual_operation<Operation> {
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& device) noexcept {
    return device.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
  }
};

/// An operation that invalidates a key; offered only by devices that support it.
template <class Operation>
struct invalidation : usual_operation<Operation> {
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& device) noexcept {
    return (device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  }
};

}  // namespace detail

}  // namespace verbspp
