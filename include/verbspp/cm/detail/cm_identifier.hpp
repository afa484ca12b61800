// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_event.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/modification.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

struct rdma_cm_id;
struct rdma_conn_param;
struct rdma_event_channel;

namespace verbspp::detail {

/// An event of the connection manager, copied and acknowledged.
struct cm_event_data {
  cm_event event{};
  int status = 0;  ///< 0, a negative errno, or the positive code with which the peer refused
  /// The identifier of a connection request or lookup, which the receiver of this event owns; null
  /// for other events.
  rdma_cm_id* request = nullptr;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  ibv_ah_attr path{};  ///< `path`, `queue_pair` and `qkey` are set only for datagrams
  std::uint32_t queue_pair = 0;
  std::uint32_t qkey = 0;
  std::uint8_t size = 0;
  std::array<std::byte, 255> data{};

  [[nodiscard]] std::span<const std::byte> private_data() const noexcept {
    return std::span(data).first(size);
  }
};

/// The kind of service for which an identifier is used.
enum class cm_service : std::uint8_t { connections, datagrams };

/// An `rdma_cm_id` with its own event channel. Each identifier therefore has its own descriptor and
/// receives only its own events, so no thread has to pass events to other threads. Only
/// `wait_event` and `wait_readable` wait for events.
///
/// A move-only owner. A moved-from identifier is empty.
class cm_identifier {
 public:
  cm_identifier() noexcept = default;
  cm_identifier(const cm_identifier&) = delete;
  cm_identifier& operator=(const cm_identifier&) = delete;
  cm_identifier(cm_identifier&& other) noexcept
      : channel_(std::exchange(other.channel_, nullptr)), id_(std::exchange(other.id_, nullptr)) {}
  cm_identifier& operator=(cm_identifier&& other) noexcept {
    if (this != &other) {
      destroy();
      channel_ = std::exchange(other.channel_, nullptr);
      id_ = std::exchange(other.id_, nullptr);
    }
    return *this;
  }
  ~cm_identifier() { destroy(); }

  /// Creates an identifier and its event channel.
  /// \errors `not_supported` if the kernel has no connection manager; `permission`;
  /// `resource_exhausted`
  [[nodiscard]] static result<cm_identifier> create(cm_service service) noexcept;
  /// Takes ownership of a request's identifier. On failure, the identifier is destroyed.
  [[nodiscard]] static result<cm_identifier> adopt(rdma_cm_id* request) noexcept;
  /// Destroys the identifier, which ends its connection, if any, and notifies the peer.
  void destroy() noexcept;

  [[nodiscard]] result<void> set_reuse_address() noexcept;
  [[nodiscard]] result<void> set_only_ipv6() noexcept;
  [[nodiscard]] result<void> set_type_of_service(std::uint8_t type) noexcept;
  [[nodiscard]] result<void> bind(const cm_address& address) noexcept;
  [[nodiscard]] result<void> listen(int backlog) noexcept;
  [[nodiscard]] result<void> resolve_address(const cm_address& source,
                                             const cm_address& destination,
                                             const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> resolve_route(const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> connect(rdma_conn_param& parameters) noexcept;
  [[nodiscard]] result<void> accept(rdma_conn_param& parameters) noexcept;
  [[nodiscard]] result<void> establish() noexcept;
  [[nodiscard]] result<void> reject(std::span<const std::byte> data) noexcept;
  [[nodiscard]] result<void> disconnect() noexcept;
  [[nodiscard]] result<void> join(const cm_address& group) noexcept;
  [[nodiscard]] result<void> leave(const cm_address& group) noexcept;
  /// The attributes that bring a queue pair to RTS.
  [[nodiscard]] result<managed_attributes> attributes() noexcept;

  /// Returns the next event, or nothing if none is available.
  /// \errors `invalid_input` if this is empty; `driver` if the kernel's connection manager no
  /// longer exists; `resource_exhausted`
  [[nodiscard]] result<std::optional<cm_event_data>> next_event() noexcept;
  /// Waits for the next event. Returns nothing if none arrives within the limit.
  [[nodiscard]] result<std::optional<cm_event_data>> wait_event(const wait_limit& limit) noexcept;
  [[nodiscard]] result<bool> wait_readable(const wait_limit& limit) const noexcept;

  /// The descriptor of the event channel; -1 if this is empty.
  [[nodiscard]] int file_descriptor() const noexcept;
  [[nodiscard]] bool is_empty() const noexcept { return id_ == nullptr; }
  [[nodiscard]] rdma_cm_id* native() const noexcept { return id_; }
  /// The device's context; null if this is empty, or the device has not been determined yet.
  [[nodiscard]] ibv_context* native_context() const noexcept;
  [[nodiscard]] result<context> device_context() const noexcept;
  [[nodiscard]] port_number port() const noexcept;
  [[nodiscard]] cm_address local_address() const noexcept;
  [[nodiscard]] cm_address remote_address() const noexcept;

 private:
  cm_identifier(rdma_event_channel* channel, rdma_cm_id* id) noexcept
      : channel_(channel), id_(id) {}

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

/// Returns the error for an event which reports that a step failed.
/// \param step the call that started the step: "rdma_connect" and so on
[[nodiscard]] error cm_failure(const cm_event_data& event, const char* step) noexcept;
/// Returns the error for a call with an object that was moved from, or that has completed its work
/// or failed.
[[nodiscard]] error cm_moved_from(const char* operation) noexcept;

}  // namespace verbspp::detail
