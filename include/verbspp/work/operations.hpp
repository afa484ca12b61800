// SPDX-License-Identifier: Apache-2.0
/// \file
/// The operations that requests can perform. Each is a plain value. A trait maps each operation of
/// a send queue to libibverbs. A separate tag specifies how a request is tracked.
///
/// An operation is usually written where it is posted: `post_write({.elements = part, .remote =
/// memory})`. It can also be stored and returned. However, it does not contain inline bytes or
/// *ranges* of elements, but refers to them, so they must live until the request has been posted.
///
/// The operations that coroutines can await are templates, since an awaited operation has the same
/// members, but another type for its memory. `Elements`, or `Element` of an atomic, is that type.
///
/// To add an operation, add its value, its trait and its entry in `send_operations` here; its
/// function in send_queue_operations.hpp; and its name to `work_operation` in work_error.hpp and
/// work_error.cpp.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/flags.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/remote_word.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/address_handle.hpp>
#include <verbspp/work/immediate_data.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/work_error.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp {

/// The tag that tracks a request in the send queue, such as `{.id = 7}`.
struct work_tag {
  std::uint64_t id = 0;  ///< returned as the completion's `wr_id()`
  /// Requests a completion. An unsignaled request occupies its place in the send queue until a
  /// later, signaled request has completed. A request that fails has a completion even if it is
  /// unsignaled.
  bool signaled = true;
};

/// The tag that tracks a receive. Receives are always signaled.
struct receive_tag {
  std::uint64_t id = 0;  ///< returned as the completion's `wr_id()`
};

/// Sends the bytes of the elements to the peer, where they are written to the memory of the oldest
/// receive that is posted.
template <class Elements>
struct basic_send_operation {
  Elements elements{};
  optional_immediate_data immediate = detail::no_immediate_data;
  bool solicited = false;  ///< wakes a peer that waits only for solicited events
  bool fenced = false;     ///< RC: starts when all earlier RDMA reads and atomics have finished
};
/// A `basic_send_operation` that borrows its memory.
using send_operation = basic_send_operation<gather_list>;

template <>
struct operation_traits<send_operation> : detail::unanswered_operation<send_operation> {
  static constexpr const char* name = "ibv_post_send (send)";
  static constexpr work_operation completes_as = work_operation::send;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = operation.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (operation.immediate) native.imm_data = operation.immediate->network();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    if (operation.immediate)
      ibv_wr_send_imm(to, operation.immediate->network());
    else
      ibv_wr_send(to);
  }
};

/// Sends the bytes of the elements to a UD queue pair, where they are written to the memory of the
/// oldest receive that is posted.
struct datagram_operation {
  gather_list elements{};
  datagram_destination to;
  optional_immediate_data immediate{};
  bool solicited = false;
};

template <>
struct operation_traits<datagram_operation> : detail::usual_operation<datagram_operation> {
  static constexpr const char* name = "ibv_post_send (datagram)";
  static constexpr work_operation completes_as = work_operation::send;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  [[nodiscard]] static constexpr bool carried_by(transport type) noexcept {
    return type == transport::ud;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_sound(const value& operation) noexcept {
    return operation.elements.total_length() <= operation.to.most_bytes();
  }
  [[nodiscard]] VERBSPP_DATA_PATH static error unsoundness(const value& operation) noexcept {
    return detail::datagram_too_long(name, operation.elements.total_length(),
                                     operation.to.most_bytes());
  }
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = operation.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (operation.immediate) native.imm_data = operation.immediate->network();
    native.wr.ud.ah = operation.to.handle();
    native.wr.ud.remote_qpn = operation.to.number().value();
    native.wr.ud.remote_qkey = operation.to.key().value();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    if (operation.immediate)
      ibv_wr_send_imm(to, operation.immediate->network());
    else
      ibv_wr_send(to);
    ibv_wr_set_ud_addr(to, operation.to.handle(), operation.to.number().value(),
                       operation.to.key().value());
  }
};

/// Provides memory for one message from the peer. This operation is posted to a receive queue, so
/// it has no `operation_traits`.
template <class Elements>
struct basic_receive_operation {
  Elements elements{};
};
/// A `basic_receive_operation` that borrows its memory.
using receive_operation = basic_receive_operation<scatter_list>;

/// Writes the bytes of the elements to the peer's memory. The peer is notified only if there is
/// immediate data, for which the peer must have posted a receive.
template <class Elements>
struct basic_write_operation {
  Elements elements{};
  remote_destination remote;  ///< at least as long as the elements together
  optional_immediate_data immediate = detail::no_immediate_data;
  bool solicited = false;  ///< only with immediate data
  bool fenced = false;     ///< only on RC
};
/// A `basic_write_operation` that borrows its memory.
using write_operation = basic_write_operation<gather_list>;

template <>
struct operation_traits<write_operation> : detail::unanswered_operation<write_operation> {
  static constexpr const char* name = "ibv_post_send (RDMA write)";
  static constexpr work_operation completes_as = work_operation::rdma_write;
  static constexpr std::uint64_t capability =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = operation.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    if (operation.immediate) native.imm_data = operation.immediate->network();
    native.wr.rdma.remote_addr = operation.remote.memory().address();
    native.wr.rdma.rkey = operation.remote.memory().rkey().value();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    const auto& remote = operation.remote.memory();
    if (operation.immediate)
      ibv_wr_rdma_write_imm(to, remote.rkey().value(), remote.address(),
                            operation.immediate->network());
    else
      ibv_wr_rdma_write(to, remote.rkey().value(), remote.address());
  }
};

/// Reads from the peer's memory into the elements.
template <class Elements>
struct basic_read_operation {
  Elements elements{};
  remote_source remote;  ///< at least as long as the elements together
  bool fenced = false;
};
/// A `basic_read_operation` that borrows its memory.
using read_operation = basic_read_operation<scatter_list>;

template <>
struct operation_traits<read_operation> : detail::usual_operation<read_operation> {
  static constexpr const char* name = "ibv_post_send (RDMA read)";
  static constexpr work_operation completes_as = work_operation::rdma_read;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_RDMA_READ;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_RDMA_READ;
    native.wr.rdma.remote_addr = operation.remote.memory().address();
    native.wr.rdma.rkey = operation.remote.memory().rkey().value();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_rdma_read(to, operation.remote.memory().rkey().value(),
                     operation.remote.memory().address());
  }
};

/// Replaces the remote word with `desired` if it equals `expected`. In any case, the previous value
/// of the word is written to `result`, in host byte order.
template <class Element>
struct basic_compare_and_swap_operation {
  Element result;  ///< 8 bytes
  remote_word remote;
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  bool fenced = false;
};
/// A `basic_compare_and_swap_operation` that borrows its memory.
using compare_and_swap_operation = basic_compare_and_swap_operation<scatter_element>;

template <>
struct operation_traits<compare_and_swap_operation>
    : detail::atomic_operation<compare_and_swap_operation> {
  static constexpr const char* name = "ibv_post_send (compare and swap)";
  static constexpr work_operation completes_as = work_operation::compare_and_swap;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
  static constexpr auto call = &ibv_qp_ex::wr_atomic_cmp_swp;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    native.wr.atomic = {.remote_addr = operation.remote.address(),
                        .compare_add = operation.expected,
                        .swap = operation.desired,
                        .rkey = operation.remote.rkey().value()};
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_atomic_cmp_swp(to, operation.remote.rkey().value(), operation.remote.address(),
                          operation.expected, operation.desired);
  }
};

/// Adds `addend` to the remote word. The previous value of the word is written to `result`, in host
/// byte order.
template <class Element>
struct basic_fetch_and_add_operation {
  Element result;  ///< 8 bytes
  remote_word remote;
  std::uint64_t addend = 0;
  bool fenced = false;
};
/// A `basic_fetch_and_add_operation` that borrows its memory.
using fetch_and_add_operation = basic_fetch_and_add_operation<scatter_element>;

template <>
struct operation_traits<fetch_and_add_operation>
    : detail::atomic_operation<fetch_and_add_operation> {
  static constexpr const char* name = "ibv_post_send (fetch and add)";
  static constexpr work_operation completes_as = work_operation::fetch_and_add;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  static constexpr auto call = &ibv_qp_ex::wr_atomic_fetch_add;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    native.wr.atomic = {.remote_addr = operation.remote.address(),
                        .compare_add = operation.addend,
                        .swap = 0,
                        .rkey = operation.remote.rkey().value()};
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_atomic_fetch_add(to, operation.remote.rkey().value(), operation.remote.address(),
                            operation.addend);
  }
};

/// Like `send_operation`, but also invalidates an rkey of the peer, which belongs to a memory
/// window or, on devices that can invalidate the rkeys of regions, to a region. This ends the
/// access that the peer granted with the rkey, before the peer's receive completes. The completion
/// of that receive contains the rkey.
struct send_with_invalidate_operation {
  gather_list elements{};
  remote_key rkey;  ///< the peer's key to invalidate
  bool solicited = false;
  bool fenced = false;
};

template <>
struct operation_traits<send_with_invalidate_operation>
    : detail::invalidation<send_with_invalidate_operation> {
  static constexpr const char* name = "ibv_post_send (send with invalidate)";
  static constexpr work_operation completes_as = work_operation::send;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_SEND_WITH_INV;
  static constexpr auto call = &ibv_qp_ex::wr_send_inv;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_SEND_WITH_INV;
    native.invalidate_rkey = operation.rkey.value();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_send_inv(to, operation.rkey.value());
  }
};

/// Invalidates one of this side's rkeys.
struct local_invalidate_operation {
  remote_key rkey;
  bool fenced = false;
};

template <>
struct operation_traits<local_invalidate_operation>
    : detail::invalidation<local_invalidate_operation> {
  static constexpr const char* name = "ibv_post_send (local invalidate)";
  static constexpr work_operation completes_as = work_operation::local_invalidate;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_LOCAL_INV;
  static constexpr auto call = &ibv_qp_ex::wr_local_inv;
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_LOCAL_INV;
    native.invalidate_rkey = operation.rkey.value();
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_local_inv(to, operation.rkey.value());
  }
};

namespace detail {

// Features of newer libibverbs versions are detected by looking for members of `ibv_qp_ex`, because
// the headers have no version number. Constants that older headers lack are written as numbers,
// which test/static/enumerators.cpp compares with the constants in a newer header.
template <class Native>
inline constexpr bool knows_atomic_write = requires(Native& native) { native.wr_atomic_write; };
template <class Native>
inline constexpr bool knows_flush = requires(Native& native) { native.wr_flush; };

/// Bits of `ibv_device_attr_ex::device_cap_flags_ex` for which libibverbs has no names.
inline constexpr std::uint64_t device_flushes =
    std::uint64_t{1} << 38 | std::uint64_t{1} << 39;  // globally, persistently
inline constexpr std::uint64_t device_writes_atomically = std::uint64_t{1} << 40;

}  // namespace detail

template <class Native>
concept LibibverbsWritesAtomically = detail::because(
    detail::knows_atomic_write<Native>,
    "this libibverbs has no ibv_wr_atomic_write, which needs rdma-core 44 or newer");
template <class Native>
concept LibibverbsFlushes =
    detail::because(detail::knows_flush<Native>,
                    "this libibverbs has no ibv_wr_flush, which needs rdma-core 45 or newer");

/// Writes eight bytes to the peer's memory in one step, so any reader there, including the peer's
/// processor, sees either all of the old bytes or all of the new ones.
struct atomic_write_operation {
  std::uint64_t value = 0;    ///< in the byte order of this host; copied when posted
  remote_destination remote;  ///< at least eight bytes, at an address that is a multiple of 8
  bool fenced = false;
};

template <>
struct operation_traits<atomic_write_operation> : detail::usual_operation<atomic_write_operation> {
  static constexpr const char* name = "ibv_wr_atomic_write";
  static constexpr work_operation completes_as = work_operation::atomic_write;
  static constexpr std::uint64_t capability = 1U << 12;  // IBV_QP_EX_WITH_ATOMIC_WRITE
  static constexpr bool only_extended = true;
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& device) noexcept {
    return detail::knows_atomic_write<ibv_qp_ex> &&
           (device.device_cap_flags_ex & detail::device_writes_atomically) != 0;
  }
  template <class Native>
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_call(const Native* to) noexcept {
    return to->wr_atomic_write != nullptr;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_sound(const value& operation) noexcept {
    const auto& remote = operation.remote.memory();
    return remote.length() >= sizeof operation.value &&
           remote.address() % sizeof operation.value == 0;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static error unsoundness(const value& operation) noexcept {
    const auto& remote = operation.remote.memory();
    return detail::no_remote_word(name, remote.address(), remote.length());
  }
  template <class Native>
  VERBSPP_DATA_PATH static void start(Native* to, const value& operation) noexcept {
    const auto& remote = operation.remote.memory();
    to->wr_atomic_write(to, remote.rkey().value(), remote.address(), &operation.value);
  }
};

/// The placement that written data must have reached in the peer's memory, with the values of
/// `ibv_placement_type`.
enum class flush_placement : std::uint8_t {
  global = 1U << 0,      ///< visible to all of the peer's processors and devices
  persistent = 1U << 1,  ///< survives a power loss at the peer
};

template <>
inline constexpr bool is_flag_bit<flush_placement> = true;

using flush_placements = flags<flush_placement>;

/// The extent of the memory that is flushed, with the values of `ibv_selectivity_level`.
enum class flush_scope : std::uint8_t {
  range = 0,   ///< the remote memory that the operation names
  region = 1,  ///< the whole region, or window, that the rkey belongs to
};

/// Flushes the data that this queue pair has written to the memory that `remote` and `scope`
/// select: the request completes when that data has reached the requested placement. The peer must
/// grant the corresponding rights, `access::flush_global` or `access::flush_persistent`, for the
/// region as well as for its queue pair.
struct flush_operation {
  remote_flushable remote;
  flush_placements placement = flush_placement::global;
  flush_scope scope = flush_scope::range;
  bool fenced = false;
};

template <>
struct operation_traits<flush_operation> : detail::usual_operation<flush_operation> {
  static constexpr const char* name = "ibv_wr_flush";
  static constexpr work_operation completes_as = work_operation::flush;
  static constexpr std::uint64_t capability = 1U << 11;  // IBV_QP_EX_WITH_FLUSH
  static constexpr bool only_extended = true;
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& device) noexcept {
    return detail::knows_flush<ibv_qp_ex> &&
           (device.device_cap_flags_ex & detail::device_flushes) != 0;
  }
  template <class Native>
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_call(const Native* to) noexcept {
    return to->wr_flush != nullptr;
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_sound(const value& operation) noexcept {
    return !operation.placement.empty() &&
           operation.remote.rights().contains(rights_for(operation.placement));
  }
  [[nodiscard]] VERBSPP_DATA_PATH static error unsoundness(const value& operation) noexcept {
    return detail::cannot_flush(name, operation.placement.empty());
  }
  template <class Native>
  VERBSPP_DATA_PATH static void start(Native* to, const value& operation) noexcept {
    to->wr_flush(to, operation.remote.rkey().value(), operation.remote.address(),
                 operation.remote.length(), operation.placement.bits,
                 static_cast<std::uint8_t>(operation.scope));
  }

 private:
  [[nodiscard]] VERBSPP_DATA_PATH static access_flags rights_for(
      flush_placements placement) noexcept {
    access_flags needed;
    if (placement.contains(flush_placement::global)) needed = needed | access::flush_global;
    if (placement.contains(flush_placement::persistent)) needed = needed | access::flush_persistent;
    return needed;
  }
};

/// The options for binding a memory window. The window and the part of the region are separate
/// arguments.
struct bind_options {
  bool fenced = false;  ///< only on RC
};

namespace detail {

/// A request that binds a window of type 2. The window's new key is derived from its current one.
/// The operation is created, and posted or added to a batch, within one call, so it may refer to
/// objects that live only during that call.
struct bind_operation {
  ibv_mw* window;
  std::uint32_t rkey;  ///< the key of the window after the bind
  const ibv_mw_bind_info& part;
  bool fenced;

  template <access_flags Rights>
  VERBSPP_DATA_PATH bind_operation(ibv_mw* bound,
                                   const window_part<Rights>& to VERBSPP_LIFETIMEBOUND,
                                   bind_options options) noexcept
      : bind_operation(bound, to.native(), options) {}
  VERBSPP_DATA_PATH bind_operation(ibv_mw* bound, const ibv_mw_bind_info& to VERBSPP_LIFETIMEBOUND,
                                   bind_options options) noexcept
      : window(bound), rkey(ibv_inc_rkey(bound->rkey)), part(to), fenced(options.fenced) {}
};

/// True if the window and the region of the part are in the same protection domain.
[[nodiscard]] VERBSPP_DATA_PATH bool is_of_domain(const ibv_mw* window,
                                                  const ibv_mw_bind_info& part) noexcept {
  return window->pd == part.mr->pd;
}

}  // namespace detail

template <>
struct operation_traits<detail::bind_operation>
    : detail::unanswered_operation<detail::bind_operation> {
  static constexpr const char* name = "ibv_post_send (bind memory window)";
  static constexpr work_operation completes_as = work_operation::bind_memory_window;
  static constexpr std::uint64_t capability = IBV_QP_EX_WITH_BIND_MW;
  [[nodiscard]] static bool offered_by(const ibv_device_attr_ex& device) noexcept {
    constexpr unsigned type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    return (device.orig_attr.device_cap_flags & type_2) != 0;
  }
  static constexpr auto call = &ibv_qp_ex::wr_bind_mw;
  /// A window of type 2 cannot be bound to zero bytes.
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_sound(const value& operation) noexcept {
    return operation.part.length != 0 && detail::is_of_domain(operation.window, operation.part);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static error unsoundness(const value& operation) noexcept {
    return detail::cannot_bind(name, operation.part.length == 0);
  }
  VERBSPP_DATA_PATH static void describe(ibv_send_wr& native, const value& operation) noexcept {
    native.opcode = IBV_WR_BIND_MW;
    native.imm_data = 0;  // rxe rejects other values
    native.bind_mw = {.mw = operation.window, .rkey = operation.rkey, .bind_info = operation.part};
  }
  VERBSPP_DATA_PATH static void start(ibv_qp_ex* to, const value& operation) noexcept {
    ibv_wr_bind_mw(to, operation.window, operation.rkey, &operation.part);
  }
};

namespace detail {

template <class... Operations>
struct operation_list {
  /// Returns the `ibv_qp_create_send_ops_flags` of all operations that the transport and the device
  /// support. If a queue pair is created with these flags, its extended interface has these
  /// operations.
  [[nodiscard]] static std::uint64_t capabilities(transport type,
                                                  const ibv_device_attr_ex& device) noexcept {
    return ((operation_traits<Operations>::carried_by(type) &&
                     operation_traits<Operations>::offered_by(device)
                 ? operation_traits<Operations>::capability
                 : 0) |
            ...);
  }
};

/// All operations of a send queue.
using send_operations =
    operation_list<send_operation, datagram_operation, write_operation, read_operation,
                   compare_and_swap_operation, fetch_and_add_operation,
                   send_with_invalidate_operation, local_invalidate_operation,
                   atomic_write_operation, flush_operation, bind_operation>;

}  // namespace detail

}  // namespace verbspp
