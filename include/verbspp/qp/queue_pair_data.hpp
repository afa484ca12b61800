// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a queue pair holds whatever its state, and what is done to it out of line.
#pragma once

#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/modification.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/qp/status.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

namespace verbspp::detail {

/// A multicast group that a queue pair has joined.
struct multicast_group {
  gid address;
  lid multicast_lid;
  owned<multicast_group> next;
};

/// Owns or borrows an `ibv_qp` and keeps alive what it was made from.
class queue_pair_owner {
 public:
  /// \param extended the same queue pair, if it has the extended posting interface, else null
  queue_pair_owner(ibv_qp* native, ibv_qp_ex* extended, ownership whose, protection_domain domain,
                   completion_queue send_queue, completion_queue receive_queue,
                   std::optional<shared_receive_queue> receives) noexcept
      : native_(native),
        extended_(extended),
        whose_(whose),
        domain_(std::move(domain)),
        send_queue_(std::move(send_queue)),
        receive_queue_(std::move(receive_queue)),
        receives_(std::move(receives)) {}
  queue_pair_owner(const queue_pair_owner&) = delete;
  queue_pair_owner(queue_pair_owner&& other) noexcept;
  queue_pair_owner& operator=(const queue_pair_owner&) = delete;
  /// Destroys the queue pair that was there.
  queue_pair_owner& operator=(queue_pair_owner&& other) noexcept;
  ~queue_pair_owner();

  /// Gives the queue pair up as it is; null if there is none.
  [[nodiscard]] ibv_qp* release() noexcept;

  [[nodiscard]] ibv_qp* native() const noexcept { return native_; }
  [[nodiscard]] ibv_qp_ex* native_extended() const noexcept { return extended_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  [[nodiscard]] const completion_queue& send_queue() const noexcept { return send_queue_; }
  [[nodiscard]] const completion_queue& receive_queue() const noexcept { return receive_queue_; }

  [[nodiscard]] const std::optional<shared_receive_queue>& receives() const noexcept {
    return receives_;
  }

  // The kernel does not destroy a queue pair that is in a multicast group.
  [[nodiscard]] result<void> join(const gid& group, lid multicast_lid) noexcept;
  [[nodiscard]] result<void> leave(const gid& group, lid multicast_lid) noexcept;

 private:
  ibv_qp* native_;
  ibv_qp_ex* extended_;
  ownership whose_;
  protection_domain domain_;
  completion_queue send_queue_;
  completion_queue receive_queue_;
  std::optional<shared_receive_queue> receives_;
  owned<multicast_group> groups_{};
};

/// What the builder was given for the time after the creation.
struct connection_parameters {
  port_number port{};
  verbspp::pkey_index pkey_index{};
  gid_index local_gid_index{};
  access_flags access{};          ///< RC and UC
  queue_key qkey{};               ///< UD
  std::optional<path_mtu> mtu{};  ///< as the user asked; else the smaller of both ends'
  std::optional<packet_sequence_number> send_psn{};     ///< else random
  std::optional<packet_sequence_number> receive_psn{};  ///< else the peer's send PSN
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
  retry_count retries = 7;
  verbspp::min_rnr_timer min_rnr_timer{};
  verbspp::ack_timeout ack_timeout{};
  verbspp::service_level service_level{};
  verbspp::hop_limit hop_limit = 64;
  verbspp::traffic_class traffic_class{};
  verbspp::flow_label flow_label{};
};

/// A queue pair whatever its state, which only the types around it know. One that was moved from is
/// empty in every member.
struct queue_pair_data {
  queue_pair_data(queue_pair_owner made, const endpoint& end, const queue_pair_capacities& granted,
                  const connection_parameters& given) noexcept
      : owner(std::move(made)), local(end), capacities(granted), parameters(given) {}
  queue_pair_data(queue_pair_data&& other) noexcept;
  /// Destroys the queue pair that was there.
  queue_pair_data& operator=(queue_pair_data&& other) noexcept;
  ~queue_pair_data() = default;

  queue_pair_owner owner;
  endpoint local;
  queue_pair_capacities capacities;
  connection_parameters parameters;
};

/// One `ibv_modify_qp`; what it changed is then in `queue_pair` as well.
[[nodiscard]] result<void> modify(queue_pair_data& queue_pair, queue_pair_state from,
                                  queue_pair_state to, const attribute_values& values) noexcept;

/// The same of attributes that may be any, checked first.
[[nodiscard]] result<void> modify_native(queue_pair_data& queue_pair, queue_pair_state from,
                                         queue_pair_state to, const ibv_qp_attr& attributes,
                                         int mask) noexcept;

/// The same of attributes whose type shows that they are complete.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given>
  requires NoAttributeMissing<Transport, From, To, Given>
[[nodiscard]] result<void> modify(
    queue_pair_data& queue_pair,
    const queue_pair_attributes<Transport, From, To, Given>& attributes) noexcept {
  return modify(queue_pair, From, To, attributes.values());
}

/// RESET -> INIT with what the builder was given.
[[nodiscard]] result<void> bring_to_init(queue_pair_data& queue_pair) noexcept;
/// The same of a queue pair that may have been connected before.
[[nodiscard]] result<void> prepare_again(queue_pair_data& queue_pair) noexcept;
/// INIT -> RTR -> RTS, to the peer.
[[nodiscard]] result<void> connect(queue_pair_data& queue_pair, const endpoint& remote) noexcept;
/// The same to the peer that a connection manager has found.
[[nodiscard]] result<void> connect(queue_pair_data& queue_pair,
                                   const managed_attributes& by) noexcept;
/// INIT -> RTR -> RTS of a UD queue pair.
[[nodiscard]] result<void> activate(queue_pair_data& queue_pair) noexcept;
/// The way to the peer, with the builder's parameters.
[[nodiscard]] result<path> path_to(const queue_pair_data& queue_pair,
                                   const endpoint& remote) noexcept;
/// The failure of a call that has to reach the peer, with the reason, where one can be told.
[[nodiscard]] error explained(const error& cause, const endpoint& local,
                              const endpoint& remote) noexcept;
[[nodiscard]] result<path> path_to_group(const queue_pair_data& queue_pair, const gid& group,
                                         lid multicast_lid) noexcept;
/// Null is one that was moved from.
[[nodiscard]] result<queue_pair_status> query(ibv_qp* native) noexcept;
void print(std::ostream& out, const queue_pair_data& queue_pair, queue_pair_state state);

}  // namespace verbspp::detail
