// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/event_channel.hpp"
#include "connections/message.hpp"
#include "connections/place.hpp"
#include "connections/reservation.hpp"

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace softverbs {

/// An identifier as the program sees it. librdmacm stores private data directly after rdma_cm_id.
/// If the program passes this identifier to librdmacm's functions, they find zeros there.
struct public_identifier : rdma_cm_id {
  public_identifier() noexcept : rdma_cm_id{} {}
  std::array<void*, 32> nothing_of_librdmacm{};
};

/// The state of an identifier.
enum class stage : std::uint8_t {
  idle,
  bound,
  resolved,  ///< its device and the peer's address are known
  routed,
  listening,
  asking,     ///< has sent a request, or tries to
  asked,      ///< represents a request that has been neither accepted nor rejected
  answered,   ///< has accepted a request
  answering,  ///< its request was accepted; the program has to establish the connection
  connected,
  leaving,  ///< has disconnected; the peer has not confirmed it
  ended,
};

struct identifier_options {
  std::uint8_t type_of_service = 0;
  std::uint8_t acknowledgement_timeout = 0;
  bool has_acknowledgement_timeout = false;
  reservation_options reserved;
};

/// An identifier, as created by rdma_create_id: one end of a connection, or a listener. The
/// functions that change it require the lock of connections.
class identifier final : public channel_member, public public_identifier {
 public:
  static identifier& of(rdma_cm_id* id) noexcept { return *static_cast<identifier*>(id); }

  identifier(event_channel& channel, void* context, rdma_port_space space, ibv_qp_type type);
  identifier(const identifier&) = delete;
  identifier& operator=(const identifier&) = delete;
  ~identifier();

  /// Ends all activity of the identifier; no further events are posted for it.
  void silence();
  /// Drops the events that the program has not received. Connection requests among them are
  /// rejected.
  void drop_events();
  /// Destroys an identifier. The program must have acknowledged all of its events.
  void destroy();

  bool is_datagram() const noexcept { return qp_type == IBV_QPT_UD; }
  bool is_synchronous() const noexcept { return own_channel != nullptr; }
  event_channel& events() noexcept { return event_channel::of(channel); }

  // In the next functions, an `int` result is 0 or an errno value.
  int bind(const sockaddr* address);
  int resolve(const sockaddr* source, const sockaddr* target);
  int resolve_route();
  int listen(int backlog);
  /// Called when the program has received the event for a connection request. The listener then
  /// accepts the next client.
  void take_next_request();
  int connect(const rdma_conn_param* parameters);
  int accept(const rdma_conn_param* parameters);
  int establish();
  int reject(std::span<const std::uint8_t> data, std::uint8_t reason);
  int disconnect();
  int notify(ibv_event_type event);
  int set_option(int level, int name, const void* value, std::size_t length);
  /// Sets the attributes, and their mask, with which InfiniBand's connection manager would move a
  /// queue pair to the state `attributes.qp_state`.
  int queue_pair_attributes(ibv_qp_attr& attributes, int& mask);

  void on_ready() override;
  void on_time() override;

  /// Moves the identifier to another channel, with its events, and with the requests that the
  /// program has not received.
  void move_to(event_channel& other);

  std::unique_ptr<connection_event> make_event(rdma_cm_event_type type, int status = 0);
  void post(rdma_cm_event_type type, int status = 0);

  std::unique_ptr<event_channel> own_channel;  ///< null if the program provides the channel
  std::optional<ibv_qp_init_attr> endpoint_attributes;
  std::vector<std::uint8_t> connect_data;
  ibv_ece local_vendor{};
  ibv_ece remote_vendor{};
  std::list<std::unique_ptr<multicast_membership>> memberships;
  const std::optional<place>& here() const noexcept { return here_; }
  const identifier_options& options() const noexcept { return options_; }

  /// The number of events that the program has received, and of those that it has acknowledged.
  int reported = 0;
  int acknowledged = 0;
  std::condition_variable all_acknowledged;

  /// If the device has broken, ends all activity of the identifier. Also posts an event, unless the
  /// identifier represents a request that was not accepted. Further calls then do nothing.
  void look_at_device();
  bool is_removed() const noexcept { return is_removed_; }

  /// Called in a forked child.
  void abandon() noexcept;

 private:
  /// A client that has connected to a listener, but has not sent its request yet.
  class caller final : public channel_member {
   public:
    caller(identifier& listener, int socket) noexcept : listener_(listener), socket_(socket) {}
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    ~caller();

    void move_to(event_channel& other);
    void abandon() noexcept;
    void on_ready() override;
    void on_time() override { listener_.forget(*this); }

   private:
    identifier& listener_;
    int socket_;
  };

  /// The parameters with which a queue pair is set up.
  struct agreement {
    std::uint32_t queue_pair = 0;
    std::uint32_t psn = 0;
    std::uint32_t own_psn = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t retries = 7;
    std::uint8_t rnr_retries = 7;
  };

  int reserve(ip_address address);
  int choose(const place& at);
  void write_addresses();
  void write_route();
  std::uint8_t most_reads() const noexcept;
  int take_depths(const rdma_conn_param* parameters, std::uint8_t most_resources,
                  std::uint8_t most_depth);
  int fill(message& out, const rdma_conn_param* parameters);
  void ask();
  void refuse(rdma_cm_event_type type, int status);
  int say(message_kind kind);
  bool send(const message& said);
  bool receive(message& said);
  void take(const message& said);
  void take_reply(const message& said);
  void peer_is_gone();
  bool peer_has_gone() const noexcept;
  void enter_time_wait();
  void close_socket() noexcept;
  void fail_queue_pair() noexcept;
  int make_queue_pair_ready();
  void take_caller();
  bool watch_reserved(bool wanted) noexcept;
  void call(int socket);
  void take_request(int socket, const message& said);
  void forget(const caller& one) noexcept;
  std::unique_ptr<connection_event> make_event(rdma_cm_event_type type, int status,
                                               const message& said);

  stage stage_ = stage::idle;
  /// True for the identifier of a connection request until the program accepts the request.
  bool is_unaccepted_ = false;
  identifier_options options_;
  ip_address local_;
  ip_address remote_;
  std::optional<place> here_;
  std::optional<place> there_;
  std::shared_ptr<reservation> reserved_;
  ibv_sa_path_rec path_{};
  int socket_ = -1;
  agreement agreed_;
  message request_;
  nanoseconds gives_up_ = 0;
  nanoseconds is_refused_at_ = 0;
  std::list<std::unique_ptr<caller>> callers_;
  /// The number of times that the device had broken before the identifier chose it.
  unsigned breakages_ = 0;
  /// True if the program was notified that the identifier's device has broken, or if no further
  /// events are posted for the identifier.
  bool is_removed_ = false;
};

/// Calls `visit` for all identifiers of the process.
void for_each_identifier(const std::function<void(identifier&)>& visit);

/// A multicast group that an identifier has joined, or has failed to join.
class multicast_membership {
 public:
  identifier* owner = nullptr;
  void* context = nullptr;
  ip_address address;
  ibv_gid group{};
  std::uint16_t lid = 0;
  bool only_sends = false;
  bool is_attached = false;
  int reported = 0;
  int acknowledged = 0;
};

}  // namespace softverbs
