// SPDX-License-Identifier: Apache-2.0
/// \file
/// The data of a queue pair in any state, and the operations on it that are not inline.
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

/// Owns or borrows an `ibv_qp`, and keeps alive the objects from which it was created.
class queue_pair_owner {
 public:
  /// \param extended the same queue pair if extended posting was requested; otherwise null
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
  /// Destroys the previous queue pair, unless it was borrowed.
  queue_pair_owner& operator=(queue_pair_owner&& other) noexcept;
  ~queue_pair_owner();

  /// Releases the queue pair without destroying it; returns null if there is none.
  [[nodiscard]] ibv_qp* release() noexcept;

  [[nodiscard]] ibv_qp* native() const noexcept { return native_; }
  [[nodiscard]] ibv_qp_ex* native_extended() const noexcept { return extended_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  [[nodiscard]] const completion_queue& send_queue() const noexcept { return send_queue_; }
  [[nodiscard]] const completion_queue& receive_queue() const noexcept { return receive_queue_; }

  [[nodiscard]] const std::optional<shared_receive_queue>& receives() const noexcept {
    return receives_;
  }

  // Joins or leaves a multicast group. The owner records the groups that it has joined, because the
  // kernel does not destroy a queue pair that is still in a group.
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

/// The parameters of the builder that are used after the queue pair has been created.
struct connection_parameters {
  port_number port{};
  verbspp::pkey_index pkey_index{};
  gid_index local_gid_index{};
  access_flags access{};          ///< RC and UC
  queue_key qkey{};               ///< UD
  std::optional<path_mtu> mtu{};  ///< by default, the smaller of the MTUs of both ends
  std::optional<packet_sequence_number> send_psn{};     ///< random by default
  std::optional<packet_sequence_number> receive_psn{};  ///< by default, the peer's send PSN
  rnr_retry_count rnr_retries = rnr_retry_count::unlimited();
  retry_count retries = 7;
  verbspp::min_rnr_timer min_rnr_timer{};
  verbspp::ack_timeout ack_timeout{};
  verbspp::service_level service_level{};
  verbspp::hop_limit hop_limit = 64;
  verbspp::traffic_class traffic_class{};
  verbspp::flow_label flow_label{};
};

/// A queue pair in any state. The state is not stored here: a `queue_pair` has it in its type, and
/// a channel stores its own. All members are empty if the queue pair was moved from.
struct queue_pair_data {
  queue_pair_data(queue_pair_owner made, const endpoint& end, const queue_pair_capacities& granted,
                  const connection_parameters& given) noexcept
      : owner(std::move(made)), local(end), capacities(granted), parameters(given) {}
  queue_pair_data(queue_pair_data&& other) noexcept;
  /// Destroys the previous queue pair, unless it was borrowed.
  queue_pair_data& operator=(queue_pair_data&& other) noexcept;
  ~queue_pair_data() = default;

  queue_pair_owner owner;
  endpoint local;
  queue_pair_capacities capacities;
  connection_parameters parameters;
};

/// Calls `ibv_modify_qp`. On success, updates the endpoint and the port in `queue_pair`.
[[nodiscard]] result<void> modify(queue_pair_data& queue_pair, queue_pair_state from,
                                  queue_pair_state to, const attribute_values& values) noexcept;

/// Modifies the queue pair with native attributes, which are checked first.
[[nodiscard]] result<void> modify_native(queue_pair_data& queue_pair, queue_pair_state from,
                                         queue_pair_state to, const ibv_qp_attr& attributes,
                                         int mask) noexcept;

/// Modifies the queue pair with attributes whose type guarantees that they are complete.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given>
  requires NoAttributeMissing<Transport, From, To, Given>
[[nodiscard]] result<void> modify(
    queue_pair_data& queue_pair,
    const queue_pair_attributes<Transport, From, To, Given>& attributes) noexcept {
  return modify(queue_pair, From, To, attributes.values());
}

/// Changes from RESET to INIT with the builder's parameters.
[[nodiscard]] result<void> bring_to_init(queue_pair_data& queue_pair) noexcept;
/// Prepares a queue pair that may have been connected before, with a new send PSN, unless the
/// builder was given one.
[[nodiscard]] result<void> prepare_again(queue_pair_data& queue_pair) noexcept;
/// Connects to the peer: changes from INIT to RTR and RTS.
[[nodiscard]] result<void> connect(queue_pair_data& queue_pair, const endpoint& remote) noexcept;
/// Connects to a peer that a connection manager has found.
[[nodiscard]] result<void> connect(queue_pair_data& queue_pair,
                                   const managed_attributes& by) noexcept;
/// Changes a UD queue pair from INIT to RTR and RTS.
[[nodiscard]] result<void> activate(queue_pair_data& queue_pair) noexcept;
/// Returns the path to the peer, with the builder's parameters. If the builder's traffic class or
/// service level is 0, the peer's value is used.
[[nodiscard]] result<path> path_to(const queue_pair_data& queue_pair,
                                   const endpoint& remote) noexcept;
/// Returns `cause`, the error that was reported by a call that had to reach the peer. Adds the
/// reason why the peer could not be reached, if that can be determined.
[[nodiscard]] error explained(const error& cause, const endpoint& local,
                              const endpoint& remote) noexcept;
[[nodiscard]] result<path> path_to_group(const queue_pair_data& queue_pair, const gid& group,
                                         lid multicast_lid) noexcept;
/// Queries the attributes of the queue pair from the device.
/// \param native null if the queue pair was moved from
[[nodiscard]] result<queue_pair_status> query(ibv_qp* native) noexcept;
void print(std::ostream& out, const queue_pair_data& queue_pair, queue_pair_state state);

}  // namespace verbspp::detail
