// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

/// Code that the tests share: one end of a connection, and waits with a time limit.

/// The time limit for actions that take no noticeable time on an idle machine.
inline constexpr auto patience = std::chrono::seconds(60);

/// Polls a condition for which there is no event. Returns true if the condition becomes true
/// within `patience`.
template <typename Condition>
bool eventually(const Condition& condition) {
  const auto latest = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    // steady: this pause is not critical, because the loop polls until its deadline
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// The time for which tests wait for an event that must not arrive.
inline constexpr auto a_moment = std::chrono::milliseconds(20);

/// Returns true if there is data to read, or if some arrives before the timeout expires.
bool is_readable(int descriptor, std::chrono::milliseconds limit = {});

template <typename Action>
std::chrono::steady_clock::duration time_of(const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::steady_clock::now() - start;
}

bool on_ethernet();
/// Returns true if libsoftverbs-faults injects the faults in front of the device.
bool faults_are_in_front();
ibv_context* open_device(const char* name);
/// An opened device. The destructor closes it, together with all objects that still exist on it.
struct open_context {
  explicit open_context(const char* name = "soft0") : verbs(open_device(name)) {}
  open_context(const open_context&) = delete;
  open_context& operator=(const open_context&) = delete;
  ~open_context() { ibv_close_device(verbs); }
  ibv_context* verbs;
};

/// The number of bytes that precede each datagram in the memory of its receive.
inline constexpr std::uint32_t header_bytes = 40;

/// The data that an end needs about its peer. Processes exchange it as plain bytes.
struct address {
  std::uint32_t qpn;
  std::uint32_t psn;
  ibv_gid gid;
  std::uint16_t lid;
  std::uint64_t memory;
  std::uint32_t rkey;
  std::uint32_t length;
};

struct endpoint;

/// Half of the default size of an endpoint's memory.
inline constexpr std::size_t half = 1 << 19;

struct options {
  const char* device = "soft0";
  std::uint8_t port = 1;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t qkey = 0x11111111;
  std::size_t memory = 1 << 20;
  int cq_entries = 256;
  std::uint32_t send_requests = 64;
  std::uint32_t receive_requests = 64;
  std::uint32_t entries = 4;
  std::uint32_t inline_data = 64;
  int signal_all = 0;
  int region_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  unsigned queue_pair_access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  std::uint8_t gid_index = 3;
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t rnr_timer = 1;
  std::uint8_t reads = 16;
  bool channel = false;
  bool shared_receives = false;
  /// If this is not null, the new endpoint shares the context, domain, completion queue and shared
  /// receives of the endpoint to which it points.
  const endpoint* host = nullptr;
};

/// Returns options that retry for seconds, so that each process gets a processor even on a busy
/// machine.
options patient();

/// Returns options that retry only briefly, for peers that don't answer.
options impatient();

/// Options that permit remote atomics.
options with_atomics();

/// A queue pair together with all objects that it needs. The queue pair is initially in RESET.
struct endpoint {
  explicit endpoint(const options& wanted = {});
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;
  ~endpoint();

  address here() const;
  int initialize();
  int ready_to_receive(const address& peer);
  int ready_to_send();
  /// Moves the queue pair from RESET or INIT to RTS.
  void connect(const address& peer);
  int change(ibv_qp_state state);
  ibv_qp_state state() const;

  bool on_ethernet() const;
  ibv_ah_attr address_of(const address& peer) const;
  ibv_sge piece(std::size_t offset, std::uint32_t length) const;
  int post_receive(std::uint64_t id, const std::vector<ibv_sge>& pieces);
  int post(ibv_send_wr request, const std::vector<ibv_sge>& pieces);
  int send(std::uint64_t id, const std::vector<ibv_sge>& pieces,
           unsigned flags = IBV_SEND_SIGNALED);
  int write(std::uint64_t id, const std::vector<ibv_sge>& pieces, const address& peer,
            std::uint64_t offset = 0, unsigned flags = IBV_SEND_SIGNALED);
  int read(std::uint64_t id, const std::vector<ibv_sge>& pieces, const address& peer,
           std::uint64_t offset = 0, unsigned flags = IBV_SEND_SIGNALED);
  int fetch_and_add(std::uint64_t id, const ibv_sge& into, const address& peer,
                    std::uint64_t amount, std::uint64_t offset = 0,
                    unsigned flags = IBV_SEND_SIGNALED);
  int compare_and_swap(std::uint64_t id, const ibv_sge& into, const address& peer,
                       std::uint64_t compare, std::uint64_t swap, std::uint64_t offset = 0);

  /// Sends a datagram.
  int send_to(ibv_ah* handle, std::uint32_t qpn, std::uint64_t id,
              const std::vector<ibv_sge>& pieces, unsigned flags = IBV_SEND_SIGNALED);

  /// Returns the next completion. Fails the test if none arrives within `patience`.
  ibv_wc wait();
  /// Returns true if no completion is available, and none arrives within a moment.
  bool quiet();
  /// Returns the next asynchronous event, and acknowledges it.
  ibv_async_event event();

  options wanted;
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* queue = nullptr;
  ibv_srq* shared = nullptr;
  ibv_mr* region = nullptr;
  ibv_qp* pair = nullptr;
  std::vector<unsigned char> memory;
  ibv_qp_cap granted{};
  std::uint32_t psn = 0;
};

/// Returns a list of writes of the same piece. If the list is posted with a single call, the last
/// write is posted before the device can execute any of them. The ids start with 1.
std::vector<ibv_send_wr> list_of_writes(std::size_t count, ibv_sge& piece, const address& to,
                                        unsigned flags = IBV_SEND_SIGNALED);

/// An address handle with which an endpoint sends datagrams. The endpoint must outlive it.
struct address_handle {
  address_handle(const endpoint& from, ibv_ah_attr to);
  address_handle(const endpoint& from, const address& to);
  address_handle(const address_handle&) = delete;
  address_handle& operator=(const address_handle&) = delete;
  ~address_handle();

  operator ibv_ah*() const { return handle; }

  ibv_ah* handle;
};

/// Returns attributes with which to create a queue pair whose requests all complete in `queue`.
ibv_qp_init_attr pair_with(ibv_cq* queue, const ibv_qp_cap& capacities = {},
                           ibv_qp_type type = IBV_QPT_RC);
/// Returns the errno with which a call fails to create an object, or 0 if it creates one.
template <typename Call>
int refusal(Call make) {
  errno = 0;
  return make() == nullptr ? errno : 0;
}
/// Waits for the next event in a channel. The caller must acknowledge it. \returns the queue that
/// caused the event
ibv_cq* take_event_of(ibv_comp_channel* channel);
/// Returns those attributes of a queue pair that the mask selects.
ibv_qp_attr attributes_of(ibv_qp* pair, int mask = IBV_QP_STATE);
/// Returns the sequence number of the next packet that an endpoint will send.
std::uint32_t next_psn_of(const endpoint& end);
/// Returns true if an asynchronous event is available, or if one arrives before the timeout
/// expires.
bool has_event(const ibv_context* verbs, std::chrono::milliseconds limit = {});

/// Fills a part of an endpoint's memory with a pattern. The pattern depends on the seed.
void fill(endpoint& end, std::size_t offset, std::size_t length, unsigned seed);
bool same(const endpoint& left, std::size_t from, const endpoint& right, std::size_t to,
          std::size_t length);

/// Returns a word in an endpoint's memory.
std::uint64_t word(const endpoint& end, std::size_t offset);
/// Returns a word that the device may change during the call. The offset must be a multiple of 8.
std::uint64_t changing_word(const endpoint& end, std::size_t offset);
void set_word(endpoint& end, std::size_t offset, std::uint64_t value);
/// A number whose bytes are all different.
inline constexpr std::uint64_t large_word = 0xfedcba9876543210;

/// An endpoint with an extended completion queue.
struct extended_endpoint : endpoint {
  explicit extended_endpoint(ibv_cq_init_attr_ex asked = {}, const options& wants = {});

  /// Waits for a completion, and leaves the polling session open. The caller must call
  /// ibv_end_poll.
  void start();

  ibv_cq_ex* extended = nullptr;
};

/// Replaces the queue pair of an unconnected endpoint with one whose requests are built with
/// function calls.
ibv_qp_ex* build_requests_of(endpoint& end, std::uint64_t operations);

/// Two connected endpoints in this process.
struct connection {
  explicit connection(const options& wanted = {}) : connection(wanted, wanted) {}
  connection(const options& left_wants, const options& right_wants);
  endpoint left;
  endpoint right;
};

/// Checks that messages still arrive from left to right.
void still_works(connection& link);

/// Two endpoints in this process that are connected to each other. The requests of the left one are
/// built with function calls.
struct building_connection {
  explicit building_connection(std::uint64_t operations, const options& left_wants = {},
                               const options& right_wants = {});
  endpoint left;
  endpoint right;
  ibv_qp_ex* build;
};
