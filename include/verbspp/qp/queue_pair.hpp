// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/config.hpp>
#include <verbspp/detail/because.hpp>
#include <verbspp/error.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/verbs/access.hpp>
#include <verbspp/verbs/completion_queue.hpp>
#include <verbspp/verbs/protection_domain.hpp>
#include <verbspp/verbs/work_request.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

namespace verbspp {

namespace detail {

/// Owns an `ibv_qp` and keeps alive what it was made from.
class queue_pair_owner {
 public:
  queue_pair_owner(ibv_qp* native, protection_domain domain, completion_queue send_queue,
                   completion_queue receive_queue) noexcept
      : native_(native),
        domain_(std::move(domain)),
        send_queue_(std::move(send_queue)),
        receive_queue_(std::move(receive_queue)) {}
  queue_pair_owner(queue_pair_owner&& other) noexcept
      : native_(std::exchange(other.native_, nullptr)),
        domain_(std::move(other.domain_)),
        send_queue_(std::move(other.send_queue_)),
        receive_queue_(std::move(other.receive_queue_)) {}
  queue_pair_owner& operator=(queue_pair_owner&& other) noexcept {
    std::swap(native_, other.native_);
    std::swap(domain_, other.domain_);
    std::swap(send_queue_, other.send_queue_);
    std::swap(receive_queue_, other.receive_queue_);
    return *this;
  }
  ~queue_pair_owner();

  [[nodiscard]] ibv_qp* native() const noexcept { return native_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  [[nodiscard]] const completion_queue& send_queue() const noexcept { return send_queue_; }
  [[nodiscard]] const completion_queue& receive_queue() const noexcept { return receive_queue_; }

 private:
  ibv_qp* native_;
  protection_domain domain_;
  completion_queue send_queue_;
  completion_queue receive_queue_;
};

/// What the handshake needs beside the two endpoints.
struct connection_parameters {
  port_number port;
  gid_index local_gid_index;
  std::optional<path_mtu> mtu;  ///< as the user asked; else the smaller of both ends'
  std::optional<packet_sequence_number> receive_psn;  ///< else the peer's send PSN
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
  retry_count retries = 7;
  verbspp::min_rnr_timer min_rnr_timer;
  verbspp::ack_timeout ack_timeout;
  verbspp::service_level service_level;
  verbspp::hop_limit hop_limit = 64;
  verbspp::traffic_class traffic_class;
};

/// A queue pair whatever its state, which only the types around it know.
struct queue_pair_data {
  queue_pair_owner owner;
  endpoint local;
  queue_pair_capacities capacities;
  connection_parameters parameters;
};

/// Drives INIT -> RTR -> RTS.
[[nodiscard]] result<void> connect(const queue_pair_data& queue_pair,
                                   const endpoint& remote) noexcept;
[[nodiscard]] result<queue_pair_state> query_state(ibv_qp* native) noexcept;
void print(std::ostream& out, const queue_pair_data& queue_pair, queue_pair_state state);

/// What the failure of a post means, from the answer of the driver; out of line since it is rare.
[[nodiscard]] error post_failure(int returned, const char* operation, std::size_t elements,
                                 std::uint32_t max_elements) noexcept;
[[nodiscard]] error remote_too_short(const char* operation, std::uint64_t local,
                                     std::uint64_t remote) noexcept;

}  // namespace detail

/// A queue pair of one transport, in a state that its type names.
///
/// `queue_pair_builder` makes a *prepared* one (INIT): it has an endpoint to give to the peer, and
/// takes receives. Its handshake makes the *connected* one (RTS), which sends as well. The type
/// tells what the program did; a failure moves the device's queue pair to ERR by itself, which
/// `query_state` tells, and every completion from then on.
///
/// A move-only owner: destroying it destroys the queue pair and gives up the work that is
/// outstanding, without completions. It keeps its protection domain and completion queues alive,
/// not the memory of outstanding work. Thread rule: as `ibv_qp`: posting is safe from several
/// threads; moving, handshake and destruction need exclusive access.
template <transport Transport, queue_pair_state State>
class VERBSPP_CONSUMABLE queue_pair {
 public:
  static constexpr transport type = Transport;
  static constexpr queue_pair_state state = State;

  /// For the library: takes over a queue pair that is in this state.
  explicit queue_pair(detail::queue_pair_data data) noexcept : data_(std::move(data)) {}
  queue_pair(queue_pair&&) noexcept = default;
  queue_pair& operator=(queue_pair&&) noexcept = default;
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;
  ~queue_pair() = default;

  /// What the peer needs in order to connect.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const struct endpoint& endpoint() const noexcept
      VERBSPP_LIFETIMEBOUND {
    return data_.local;
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED queue_pair_number number() const noexcept {
    return data_.local.number;
  }
  /// What the device granted.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const queue_pair_capacities& capacities() const noexcept
      VERBSPP_LIFETIMEBOUND {
    return data_.capacities;
  }

  /// Connects to the peer: RTR, then RTS (`ibv_modify_qp`). The receives that are posted stay.
  ///
  /// It consumes the queue pair: on success it lives on in the result, on failure it is destroyed,
  /// with the receives posted to it, before this returns. To try again, build a new one.
  /// \errors `mismatch` if the two ends do not fit (before the device is asked); `invalid_input`,
  /// `timed_out` (the peer's address does not resolve) and others from the device, with the
  /// transition's name; `invalid_input` if this queue pair was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES
      result<queue_pair<Transport, queue_pair_state::ready_to_send>>
      handshake(struct endpoint remote) && noexcept
    requires Prepared<State>
  {
    detail::queue_pair_data taken = std::move(data_);
    VERBSPP_TRYV(detail::connect(taken, remote));
    return queue_pair<Transport, queue_pair_state::ready_to_send>(std::move(taken));
  }
  result<queue_pair<Transport, queue_pair_state::ready_to_send>> handshake(struct endpoint) &
      VERBSPP_DETAIL_REFUSED(State == queue_pair_state::init,
                             "the handshake consumes the queue pair: write "
                             "std::move(queue_pair).handshake(remote_endpoint)") = delete;

  /// Provides memory for a message of the peer's (`ibv_post_recv`). The memory belongs to the
  /// device until the completion.
  /// \errors `would_block` if the receive queue is full, `invalid_input` for too many elements,
  /// `driver`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> post_receive(
      const receive_request& request) noexcept
    requires AcceptsReceives<State>
  {
    ibv_recv_wr native;
    native.wr_id = request.id;
    native.next = nullptr;
    native.sg_list = request.elements.native();
    native.num_sge = static_cast<int>(request.elements.size());
    ibv_recv_wr* rejected;
    const int returned = ibv_post_recv(native_qp(), &native, &rejected);
    if (returned != 0) [[unlikely]]
      return detail::post_failure(returned, "ibv_post_recv", request.elements.size(),
                                  data_.capacities.max_receive_elements);
    return success();
  }

  /// Sends a message into the receive that the peer posted first (`ibv_post_send`). The memory must
  /// stay as it is until the completion.
  /// \errors `would_block` if the send queue is full, `invalid_input` for too many elements,
  /// `driver`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> post_send(
      const send_request& request) noexcept
    requires Connected<State>
  {
    ibv_send_wr native;
    native.opcode = request.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (request.immediate) native.imm_data = request.immediate->network();
    return post(native, request, request.solicited, "ibv_post_send (send)");
  }

  /// Writes to the peer's memory (`ibv_post_send`). The memory here must stay as it is until the
  /// completion.
  /// \errors as `post_send`, and `invalid_input` if the remote memory is shorter than the elements
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> post_write(
      const write_request& request) noexcept
    requires Connected<State>
  {
    constexpr const char* operation = "ibv_post_send (RDMA write)";
    ibv_send_wr native;
    native.opcode = request.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    if (request.immediate) native.imm_data = request.immediate->network();
    const auto& remote = request.remote.memory();
    if (request.elements.total_length() > remote.length()) [[unlikely]]
      return detail::remote_too_short(operation, request.elements.total_length(), remote.length());
    native.wr.rdma.remote_addr = remote.address();
    native.wr.rdma.rkey = remote.rkey();
    return post(native, request, request.solicited, operation);
  }

  /// Reads from the peer's memory (`ibv_post_send`). The memory here belongs to the device until
  /// the completion.
  /// \errors as `post_write`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<void> post_read(
      const read_request& request) noexcept
    requires Connected<State>
  {
    constexpr const char* operation = "ibv_post_send (RDMA read)";
    ibv_send_wr native;
    native.opcode = IBV_WR_RDMA_READ;
    const auto& remote = request.remote.memory();
    if (request.elements.total_length() > remote.length()) [[unlikely]]
      return detail::remote_too_short(operation, request.elements.total_length(), remote.length());
    native.wr.rdma.remote_addr = remote.address();
    native.wr.rdma.rkey = remote.rkey();
    return post(native, request, false, operation);
  }

  /// The state that the device reports (`ibv_query_qp`), which may have moved to ERR by itself.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<queue_pair_state> query_state() const noexcept {
    return detail::query_state(native_qp());
  }

  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const class protection_domain& protection_domain()
      const noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.domain();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const completion_queue& send_completion_queue()
      const noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.send_queue();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const completion_queue& receive_completion_queue()
      const noexcept VERBSPP_LIFETIMEBOUND {
    return data_.owner.receive_queue();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED ibv_qp* native_handle() const noexcept {
    return data_.owner.native();
  }

  friend std::ostream& operator<<(std::ostream& out, const queue_pair& queue_pair) {
    detail::print(out, queue_pair.data_, State);
    return out;
  }

 private:
  [[nodiscard]] ibv_qp* native_qp() const noexcept {
    assert(data_.owner.native() != nullptr && "this queue pair was moved from");
    return data_.owner.native();
  }

  /// Posts what all requests of the send queue have in common.
  template <class Request>
  result<void> post(ibv_send_wr& native, const Request& request, bool solicited,
                    const char* operation) noexcept {
    native.wr_id = request.id;
    native.next = nullptr;
    native.sg_list = request.elements.native();
    native.num_sge = static_cast<int>(request.elements.size());
    native.send_flags = (request.signaled ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                        (solicited ? unsigned{IBV_SEND_SOLICITED} : 0U) |
                        (request.fenced ? unsigned{IBV_SEND_FENCE} : 0U);
    ibv_send_wr* rejected;
    const int returned = ibv_post_send(native_qp(), &native, &rejected);
    if (returned != 0) [[unlikely]]
      return detail::post_failure(returned, operation, request.elements.size(),
                                  data_.capacities.max_send_elements);
    return success();
  }

  detail::queue_pair_data data_;
};

/// A queue pair between build and handshake.
template <transport Transport>
using prepared_queue_pair = queue_pair<Transport, queue_pair_state::init>;
/// A queue pair after its handshake.
template <transport Transport>
using connected_queue_pair = queue_pair<Transport, queue_pair_state::ready_to_send>;

}  // namespace verbspp
