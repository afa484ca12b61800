// SPDX-License-Identifier: Apache-2.0
/// \file
/// Queue pairs of any transport, and messages between them, for tests that cover several
/// transports.
#pragma once

#include "device.hpp"

#include <string>
#include <type_traits>
#include <utility>

namespace verbspp::test {

using connected_unreliable = connected_queue_pair<transport::uc>;
using connected_datagram = connected_queue_pair<transport::ud>;

/// The queue key of the UD queue pairs in these tests.
inline constexpr queue_key test_key = 0x11111111;

/// Returns a builder on which all required options are set.
template <transport Transport>
[[nodiscard]] auto builder_of(const testbed& bed, const completion_queue& queue) {
  const auto builder =
      build_queue_pair<Transport>().protection_domain(bed.domain).completion_queue(queue);
  if constexpr (Transport == transport::ud)
    return builder.qkey(test_key);
  else
    return builder.access(all_rights);
}

/// Returns a prepared queue pair.
template <transport Transport>
[[nodiscard]] prepared_queue_pair<Transport> prepared_of(const testbed& bed,
                                                         const completion_queue& queue,
                                                         int line = __builtin_LINE(),
                                                         const char* file = __builtin_FILE()) {
  return must(builder_of<Transport>(bed, queue).build(), line, file);
}

/// Brings a prepared queue pair to RTS by connecting it to `remote`, or by activating it if its
/// transport is UD.
template <transport Transport>
[[nodiscard]] connected_queue_pair<Transport> connected_to(prepared_queue_pair<Transport> pair,
                                                           const endpoint& remote,
                                                           int line = __builtin_LINE(),
                                                           const char* file = __builtin_FILE()) {
  if constexpr (Transport == transport::ud)
    return must(std::move(pair).activate(), line, file);
  else
    return must(std::move(pair).handshake(remote), line, file);
}

template <transport Transport>
struct pair_of {
  connected_queue_pair<Transport> left;
  connected_queue_pair<Transport> right;
};

/// Returns two queue pairs in RTS. They are connected to each other unless their transport is UD.
template <transport Transport>
[[nodiscard]] pair_of<Transport> connect_both(prepared_queue_pair<Transport> left,
                                              prepared_queue_pair<Transport> right,
                                              int line = __builtin_LINE(),
                                              const char* file = __builtin_FILE()) {
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  auto left_connected = connected_to<Transport>(std::move(left), right_end, line, file);
  return {std::move(left_connected),
          connected_to<Transport>(std::move(right), left_end, line, file)};
}
template <transport Transport>
[[nodiscard]] pair_of<Transport> connect_both(const testbed& bed, int line = __builtin_LINE(),
                                              const char* file = __builtin_FILE()) {
  return connect_both<Transport>(prepared_of<Transport>(bed, bed.left_queue, line, file),
                                 prepared_of<Transport>(bed, bed.right_queue, line, file), line,
                                 file);
}

/// Sends from one queue pair to another, whatever their transport is. For UD, this object owns the
/// address handle that datagrams need.
template <transport Transport>
class sender_to {
 public:
  template <queue_pair_state State>
  sender_to(const queue_pair<Transport, State>& from, const endpoint& remote) {
    if constexpr (Transport == transport::ud) {
      way_.emplace(must(from.address_of(remote)));
      destination_.emplace(way_->destination(remote.number, remote.qkey));
    }
  }
  template <queue_pair_state State>
  void send(queue_pair<Transport, State>& from, std::uint64_t id, gather_list elements,
            int line = __builtin_LINE(), const char* file = __builtin_FILE()) const {
    if constexpr (Transport == transport::ud)
      must(from.post_send({.elements = elements, .to = *destination_}, {.id = id}), line, file);
    else
      must(from.post_send({.elements = elements}, {.id = id}), line, file);
  }

 private:
  std::optional<address_handle> way_;
  std::optional<datagram_destination> destination_;
};

/// The number of bytes that precede the payload in the memory of a receive.
template <transport Transport>
inline constexpr std::size_t header_of = Transport == transport::ud ? datagram_header_size : 0;

/// Sends one message from left to right, and checks that it arrives unchanged.
template <transport Transport>
void check_message(const testbed& bed, connected_queue_pair<Transport>& left,
                   connected_queue_pair<Transport>& right, unsigned seed,
                   int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  constexpr std::size_t size = 48;
  constexpr std::size_t header = header_of<Transport>;
  buffer<> outbox(bed.domain, pattern(size, seed));
  buffer<> inbox(bed.domain, header + size);
  must(right.post_receive({.elements = inbox.scatter()}, {.id = 101}), line, file);
  const sender_to<Transport> sender(left, right.endpoint());
  const gather_element from = outbox.gather();
  sender.send(left, 102, from, line, file);
  take_success(left.send_completion_queue(), 102, line, file);
  const completed_work arrived = take_success(right.receive_completion_queue(), 101, line, file);
  CHECK(arrived.byte_count() == header + size);
  CHECK(std::vector<std::byte>(inbox.bytes().begin() + header, inbox.bytes().end()) ==
        outbox.bytes());
}

/// Checks a message in each direction.
template <transport Transport>
void check_messages(const testbed& bed, pair_of<Transport>& pair, int line = __builtin_LINE(),
                    const char* file = __builtin_FILE()) {
  check_message<Transport>(bed, pair.left, pair.right, 1, line, file);
  check_message<Transport>(bed, pair.right, pair.left, 2, line, file);
}

/// Checks that the error is a mismatch whose message names the field and the values at both ends.
inline void check_names_both(const error& e, const std::string& field, const std::string& local,
                             const std::string& remote) {
  INFO(e);
  CHECK(e == error_kind::mismatch);
  CHECK_THAT(e.message(),
             Catch::Contains(field) && Catch::Contains(local) && Catch::Contains(remote));
}

/// Returns the endpoint with its address replaced by one that probably no port has.
[[nodiscard]] inline endpoint at_address_of_nobody(const testbed& bed, endpoint remote) {
  if (bed.is_ethernet())
    remote.address.bytes[15] ^= 0x5a;
  else
    remote.lid = 0xbffe;
  return remote;
}

/// Returns an element whose registration no longer exists, so that a send from it fails at the
/// sender.
[[nodiscard]] inline gather_element stale_element(const protection_domain& domain,
                                                  std::vector<std::byte>& bytes) {
  auto region = must(register_memory<all_rights>(domain, bytes));
  const gather_element element = must(region.gather());
  must(std::move(region).deregister());
  return element;
}

/// Sends a message from memory that is no longer registered. \returns the state into which the
/// device puts the queue pair: SQE for UC and UD if the device has this state, and ERR otherwise
template <transport Transport>
[[nodiscard]] queue_pair_state fail_a_send(const testbed& bed,
                                           connected_queue_pair<Transport>& pair,
                                           const endpoint& remote) {
  std::vector<std::byte> bytes(16);
  const gather_element stale = stale_element(bed.domain, bytes);
  const sender_to<Transport> sender(pair, remote);
  sender.send(pair, 666, stale);
  const work_completion failed = take_one(pair.send_completion_queue());
  CHECK(failed.wr_id() == 666);
  CHECK(is_one_of(status_of(failed), {work_status::local_protection_error,
                                      work_status::local_queue_pair_operation_error}));
  queue_pair_state state = queue_pair_state::ready_to_send;
  wait_until([&] { return (state = must(pair.query_state())) != queue_pair_state::ready_to_send; },
             "the queue pair to leave RTS");
  return state;
}

}  // namespace verbspp::test

VERBSPP_TEST_PRINTS_BY_NAME(transport);
