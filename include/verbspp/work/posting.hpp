// SPDX-License-Identifier: Apache-2.0
/// \file
/// How a request becomes what libibverbs takes: a structure for `ibv_post_send`, or calls of the
/// extended interface.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/work_request.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace verbspp {

struct queue_pair_capacities;

namespace detail {

/// A bind as a request of the device: of a window of type 2, whose next key the program chooses.
struct window_binding {
  std::uint64_t id;
  ibv_mw* window;
  std::uint32_t rkey;  ///< that the window has as soon as it is bound
  const ibv_mw_bind_info& part;
  bool signaled;
  bool fenced;

  template <access_flags Rights>
  VERBSPP_DATA_PATH window_binding(ibv_mw* bound, const window_part<Rights>& to,
                                   const bind_request& request) noexcept
      : id(request.id),
        window(bound),
        rkey(ibv_inc_rkey(bound->rkey)),
        part(to.native()),
        signaled(request.signaled),
        fenced(request.fenced) {}
};

/// The names of the operations, as errors have them.
inline constexpr const char* posting_send = "ibv_post_send (send)";
inline constexpr const char* posting_datagram = "ibv_post_send (datagram)";
inline constexpr const char* posting_write = "ibv_post_send (RDMA write)";
inline constexpr const char* posting_read = "ibv_post_send (RDMA read)";
inline constexpr const char* posting_compare_and_swap = "ibv_post_send (compare and swap)";
inline constexpr const char* posting_fetch_and_add = "ibv_post_send (fetch and add)";
inline constexpr const char* posting_send_with_invalidate = "ibv_post_send (send with invalidate)";
inline constexpr const char* posting_local_invalidate = "ibv_post_send (local invalidate)";
inline constexpr const char* posting_bind = "ibv_post_send (bind memory window)";
inline constexpr const char* binding_at_once = "ibv_bind_mw";
inline constexpr const char* posting_receive = "ibv_post_recv";

[[nodiscard]] constexpr const char* name_of(const send_request&) { return posting_send; }
[[nodiscard]] constexpr const char* name_of(const datagram_request&) { return posting_datagram; }
[[nodiscard]] constexpr const char* name_of(const write_request&) { return posting_write; }
[[nodiscard]] constexpr const char* name_of(const read_request&) { return posting_read; }
[[nodiscard]] constexpr const char* name_of(const compare_and_swap_request&) {
  return posting_compare_and_swap;
}
[[nodiscard]] constexpr const char* name_of(const fetch_and_add_request&) {
  return posting_fetch_and_add;
}
[[nodiscard]] constexpr const char* name_of(const send_with_invalidate_request&) {
  return posting_send_with_invalidate;
}
[[nodiscard]] constexpr const char* name_of(const local_invalidate_request&) {
  return posting_local_invalidate;
}
[[nodiscard]] constexpr const char* name_of(const window_binding&) { return posting_bind; }

// What a failure means; out of line since it is rare.
[[nodiscard]] error post_failure(int returned, const char* operation, std::size_t elements,
                                 std::uint32_t max_elements) noexcept;
/// The same of a request as the driver was given it.
[[nodiscard]] error post_failure(int returned, const char* operation, const ibv_send_wr& refused,
                                 const queue_pair_capacities& granted) noexcept;
[[nodiscard]] inline error post_failure(int returned, const char* operation,
                                        const ibv_recv_wr& refused,
                                        std::uint32_t max_elements) noexcept {
  return post_failure(returned, operation, static_cast<std::size_t>(refused.num_sge), max_elements);
}
[[nodiscard]] error inline_too_long(const char* operation, std::uint64_t length,
                                    std::uint32_t limit) noexcept;
[[nodiscard]] error remote_too_short(const char* operation, std::uint64_t local,
                                     std::uint64_t remote) noexcept;
[[nodiscard]] error no_room_for_header(std::uint64_t length) noexcept;
[[nodiscard]] error no_word(const char* operation, std::uint32_t length) noexcept;
[[nodiscard]] error no_such_operation(const char* operation) noexcept;
[[nodiscard]] error cannot_bind(const char* operation, bool to_no_bytes) noexcept;

/// The flags of a request; those that a kind of request does not have are not asked for.
template <class Request>
[[nodiscard]] VERBSPP_DATA_PATH unsigned flags_of(const Request& request) noexcept {
  unsigned flags = request.signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
  if constexpr (requires { request.solicited; })
    flags |= request.solicited ? unsigned{IBV_SEND_SOLICITED} : 0U;
  if constexpr (requires { request.fenced; })
    flags |= request.fenced ? unsigned{IBV_SEND_FENCE} : 0U;
  if constexpr (requires { request.elements.is_inline(); })
    flags |= request.elements.is_inline() ? unsigned{IBV_SEND_INLINE} : 0U;
  return flags;
}

/// The memory of a request as a range of `ibv_sge`.
struct native_elements {
  ibv_sge* first;
  std::size_t size;
};
template <class Request>
[[nodiscard]] VERBSPP_DATA_PATH native_elements elements_of(const Request& request) noexcept {
  if constexpr (requires { request.elements; })
    return {request.elements.native(), request.elements.size()};
  else if constexpr (requires { request.result; })
    return {const_cast<ibv_sge*>(&request.result.native()), 1};
  else
    return {nullptr, 0};
}

/// What can be wrong with a request whatever the queue pair's state: null if nothing is.
template <class Request>
[[nodiscard]] VERBSPP_DATA_PATH bool is_sound(const Request& request) noexcept {
  if constexpr (requires { request.remote.memory(); })
    return request.elements.total_length() <= request.remote.memory().length();
  else if constexpr (requires { request.result; })
    return request.result.length() == sizeof(std::uint64_t);
  else
    return true;
}
/// Inline as well: a request whose address is given away has to be built in memory first.
template <class Request>
[[nodiscard]] VERBSPP_DATA_PATH error unsoundness(const Request& request) noexcept {
  if constexpr (requires { request.remote.memory(); })
    return remote_too_short(name_of(request), request.elements.total_length(),
                            request.remote.memory().length());
  else if constexpr (requires { request.result; })
    return no_word(name_of(request), request.result.length());
  else
    return {};
}

// A window and what it shows are of one protection domain, and no bytes are for type 1.
[[nodiscard]] VERBSPP_DATA_PATH bool is_of_domain(const ibv_mw* window,
                                                  const ibv_mw_bind_info& part) noexcept {
  return window->pd == part.mr->pd;
}
[[nodiscard]] VERBSPP_DATA_PATH bool is_sound(const window_binding& request) noexcept {
  return request.part.length != 0 && is_of_domain(request.window, request.part);
}
[[nodiscard]] VERBSPP_DATA_PATH error unsoundness(const window_binding& request) noexcept {
  return cannot_bind(name_of(request), request.part.length == 0);
}

// The opcode of a request, and what belongs to it alone.

VERBSPP_DATA_PATH void describe(ibv_send_wr& native, const send_request& request) noexcept {
  native.opcode = request.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  if (request.immediate) native.imm_data = request.immediate->network();
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native, const datagram_request& request) noexcept {
  native.opcode = request.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  if (request.immediate) native.imm_data = request.immediate->network();
  native.wr.ud.ah = request.to.handle();
  native.wr.ud.remote_qpn = request.to.number().value();
  native.wr.ud.remote_qkey = request.to.key().value();
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native, const write_request& request) noexcept {
  native.opcode = request.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (request.immediate) native.imm_data = request.immediate->network();
  native.wr.rdma.remote_addr = request.remote.memory().address();
  native.wr.rdma.rkey = request.remote.memory().rkey();
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native, const read_request& request) noexcept {
  native.opcode = IBV_WR_RDMA_READ;
  native.wr.rdma.remote_addr = request.remote.memory().address();
  native.wr.rdma.rkey = request.remote.memory().rkey();
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native,
                                const compare_and_swap_request& request) noexcept {
  native.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  native.wr.atomic = {.remote_addr = request.remote.address(),
                      .compare_add = request.expected,
                      .swap = request.desired,
                      .rkey = request.remote.rkey()};
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native,
                                const fetch_and_add_request& request) noexcept {
  native.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  native.wr.atomic = {.remote_addr = request.remote.address(),
                      .compare_add = request.addend,
                      .swap = 0,
                      .rkey = request.remote.rkey()};
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native,
                                const send_with_invalidate_request& request) noexcept {
  native.opcode = IBV_WR_SEND_WITH_INV;
  native.invalidate_rkey = request.rkey;
}
VERBSPP_DATA_PATH void describe(ibv_send_wr& native,
                                const local_invalidate_request& request) noexcept {
  native.opcode = IBV_WR_LOCAL_INV;
  native.invalidate_rkey = request.rkey;
}

VERBSPP_DATA_PATH void describe(ibv_send_wr& native, const window_binding& request) noexcept {
  native.opcode = IBV_WR_BIND_MW;
  native.imm_data = 0;  // rxe refuses another one
  native.bind_mw = {.mw = request.window, .rkey = request.rkey, .bind_info = request.part};
}

/// Fills a native request but for its elements and its successor. Nothing else is written: the
/// driver looks only at what the opcode has.
template <class Request>
VERBSPP_DATA_PATH void fill(ibv_send_wr& native, const Request& request) noexcept {
  native.wr_id = request.id;
  native.send_flags = flags_of(request);
  describe(native, request);
}

// The same as calls of the extended interface.

VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const send_request& request) noexcept {
  if (request.immediate)
    ibv_wr_send_imm(to, request.immediate->network());
  else
    ibv_wr_send(to);
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const datagram_request& request) noexcept {
  if (request.immediate)
    ibv_wr_send_imm(to, request.immediate->network());
  else
    ibv_wr_send(to);
  ibv_wr_set_ud_addr(to, request.to.handle(), request.to.number().value(),
                     request.to.key().value());
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const write_request& request) noexcept {
  const auto& remote = request.remote.memory();
  if (request.immediate)
    ibv_wr_rdma_write_imm(to, remote.rkey(), remote.address(), request.immediate->network());
  else
    ibv_wr_rdma_write(to, remote.rkey(), remote.address());
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const read_request& request) noexcept {
  ibv_wr_rdma_read(to, request.remote.memory().rkey(), request.remote.memory().address());
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const compare_and_swap_request& request) noexcept {
  ibv_wr_atomic_cmp_swp(to, request.remote.rkey(), request.remote.address(), request.expected,
                        request.desired);
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const fetch_and_add_request& request) noexcept {
  ibv_wr_atomic_fetch_add(to, request.remote.rkey(), request.remote.address(), request.addend);
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const send_with_invalidate_request& request) noexcept {
  ibv_wr_send_inv(to, request.rkey);
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const local_invalidate_request& request) noexcept {
  ibv_wr_local_inv(to, request.rkey);
}
VERBSPP_DATA_PATH void start(ibv_qp_ex* to, const window_binding& request) noexcept {
  ibv_wr_bind_mw(to, request.window, request.rkey, &request.part);
}

// What not every device has is asked for only where it does: elsewhere there is no such call.
template <class Request>
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(const ibv_qp_ex* /*to*/,
                                              const Request& /*request*/) noexcept {
  return true;
}
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(
    const ibv_qp_ex* to, const compare_and_swap_request& /*request*/) noexcept {
  return to->wr_atomic_cmp_swp != nullptr;
}
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(const ibv_qp_ex* to,
                                              const fetch_and_add_request& /*request*/) noexcept {
  return to->wr_atomic_fetch_add != nullptr;
}
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(
    const ibv_qp_ex* to, const send_with_invalidate_request& /*request*/) noexcept {
  return to->wr_send_inv != nullptr;
}
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(
    const ibv_qp_ex* to, const local_invalidate_request& /*request*/) noexcept {
  return to->wr_local_inv != nullptr;
}
[[nodiscard]] VERBSPP_DATA_PATH bool has_call(const ibv_qp_ex* to,
                                              const window_binding& /*request*/) noexcept {
  return to->wr_bind_mw != nullptr;
}

/// Fills a native receive but for its elements and its successor.
VERBSPP_DATA_PATH void fill(ibv_recv_wr& native, const receive_request& request) noexcept {
  native.wr_id = request.id;
}

/// Posts one receive by `post`, which is that of a queue pair or of a shared receive queue.
template <class Post>
[[nodiscard]] VERBSPP_DATA_PATH result<void> post_one_receive(const receive_request& request,
                                                              const char* operation,
                                                              const std::uint32_t& max_elements,
                                                              Post post) noexcept {
  ibv_recv_wr native;
  fill(native, request);
  native.sg_list = request.elements.native();
  native.num_sge = static_cast<int>(request.elements.size());
  native.next = nullptr;
  ibv_recv_wr* rejected;
  const int returned = post(&native, &rejected);
  if (returned != 0) [[unlikely]]
    return post_failure(returned, operation, request.elements.size(), max_elements);
  return success();
}

}  // namespace detail

}  // namespace verbspp
