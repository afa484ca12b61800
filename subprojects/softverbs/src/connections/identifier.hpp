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

/// As the program sees it. librdmacm keeps its own data right behind that, and the functions of it
/// that only look at it find nothing there.
struct public_identifier : rdma_cm_id {
  public_identifier() noexcept : rdma_cm_id{} {}
  std::array<void*, 32> nothing_of_librdmacm{};
};

/// How far an identifier is.
enum class stage : std::uint8_t {
  idle,
  bound,
  resolved,  ///< knows its device and the peer's address
  routed,
  listening,
  asking,     ///< has sent a request, or tries to
  asked,      ///< is of a request that nobody has decided
  answered,   ///< has accepted
  answering,  ///< was accepted, and the program has to establish the connection
  connected,
  leaving,  ///< has disconnected, and the peer hasn't said that it knows
  ended,
};

struct identifier_options {
  std::uint8_t type_of_service = 0;
  std::uint8_t acknowledgement_timeout = 0;
  bool has_acknowledgement_timeout = false;
  bool has_only_ipv6 = false;
  reservation_options reserved;
};

/// What rdma_create_id makes: one end, or who listens. All of it under the lock of connections.
class identifier final : public channel_member, public public_identifier {
 public:
  static identifier& of(rdma_cm_id* id) noexcept { return *static_cast<identifier*>(id); }

  identifier(event_channel& channel, void* context, rdma_port_space space, ibv_qp_type type);
  identifier(const identifier&) = delete;
  identifier& operator=(const identifier&) = delete;
  ~identifier();

  /// Nothing is posted for it any more.
  void silence();
  /// What the program has not been told of goes; requests among it are rejected by that.
  void drop_events();
  /// Of one of whose events the program has none.
  void destroy();

  bool is_datagram() const noexcept { return qp_type == IBV_QPT_UD; }
  bool is_synchronous() const noexcept { return own_channel != nullptr; }
  event_channel& events() noexcept { return event_channel::of(channel); }

  // Each is 0 or an errno.
  int bind(const sockaddr* address);
  int resolve(const sockaddr* source, const sockaddr* target);
  int resolve_route();
  int listen(int backlog);
  /// The program gets the last request, so that the next one may become an event.
  void take_next_request();
  int connect(const rdma_conn_param* parameters);
  int accept(const rdma_conn_param* parameters);
  int establish();
  int reject(std::span<const std::uint8_t> data, std::uint8_t reason);
  int disconnect();
  int notify(ibv_event_type event);
  int set_option(int level, int name, const void* value, std::size_t length);
  /// What InfiniBand's manager would have a queue pair changed by.
  int queue_pair_attributes(ibv_qp_attr& attributes, int& mask);

  void on_ready() override;
  void on_time() override;

  /// Takes part in another channel's events from here on.
  void move_to(event_channel& other);

  std::unique_ptr<connection_event> make_event(rdma_cm_event_type type, int status = 0);
  void post(rdma_cm_event_type type, int status = 0);

  std::unique_ptr<event_channel> own_channel;  ///< of who was given none
  std::optional<ibv_qp_init_attr> endpoint_attributes;
  std::vector<std::uint8_t> connect_data;
  ibv_ece local_vendor{};
  ibv_ece remote_vendor{};
  std::list<std::unique_ptr<multicast_membership>> memberships;
  const std::optional<place>& here() const noexcept { return here_; }
  const identifier_options& options() const noexcept { return options_; }

  /// Events that the program has got, and those of them that it has acknowledged.
  int reported = 0;
  int acknowledged = 0;
  std::condition_variable all_acknowledged;

  /// Tells the program if its device has broken, once; that's its end.
  void look_at_device();
  bool is_removed() const noexcept { return is_removed_; }

  /// In a child of fork.
  void abandon() noexcept;

 private:
  /// Who has connected to a listener, and hasn't said what for.
  class caller final : public channel_member {
   public:
    caller(identifier& listener, int socket) noexcept : listener_(listener), socket_(socket) {}
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    ~caller();

    void abandon() noexcept;
    void on_ready() override;
    void on_time() override { listener_.forget(*this); }

   private:
    identifier& listener_;
    int socket_;
  };

  /// What it takes to set up a queue pair.
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
  /// Of its device, when it was chosen.
  unsigned breakages_ = 0;
  /// Its device has broken since, or nobody is to hear of that.
  bool is_removed_ = false;
};

/// All of the process.
void for_each_identifier(const std::function<void(identifier&)>& visit);

/// A group that was joined, or is about to be.
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
