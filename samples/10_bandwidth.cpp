// SPDX-License-Identifier: Apache-2.0
/// \file
/// Bandwidth: a stream keeps the send queue filled with RDMA writes. The requests have no handles,
/// and only some of them are signaled.
///
///     10_bandwidth [DEVICE [BYTES [MESSAGES [IN_FLIGHT]]]]

#include <verbspp/channel.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;

struct options {
  std::string_view device = "soft0";
  std::uint32_t bytes = 65536;
  std::uint32_t messages = 2000;
  std::uint32_t in_flight = 64;
};

transport_result<void> measure(channel& peer, const options& given, gather_element from,
                               const remote_memory<access::remote_write>& to) {
  // If the queue is full, posting waits for room, so a loop that only posts keeps it filled. A
  // completion confirms all requests before it as well. There is one completion for each quarter of
  // the queue, so that posting continues before the queue is empty.
  const auto start = std::chrono::steady_clock::now();
  VERBSPP_TRYV(peer.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::uint32_t i = 0; i < given.messages; ++i)
          VERBSPP_TRYV(stream.post_write({.elements = from, .remote = to}));
        return success();
      },
      {.signal_every = given.in_flight / 4}, std::chrono::minutes(5)));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;

  std::printf("%u x %u B, up to %u in flight: %.1f MB/s, %.0f messages/s\n", given.messages,
              given.bytes, peer.capacities().max_send_work_requests,
              static_cast<double>(given.bytes) * given.messages / time.count() / 1e6,
              given.messages / time.count());
  return success();
}

transport_result<void> run(const options& given) {
  VERBSPP_TRY(context, open_device(given.device));
  // The thread is bound before the buffers are allocated, because memory is allocated on the NUMA
  // node of the thread that first touches it. If the device has no NUMA node, which is the default
  // for the software device, the thread is not moved.
  VERBSPP_TRYV(bind_this_thread_near(context, numa_binding::as_far_as_possible));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  using buffer = registered_buffer<access::local_write | access::remote_write>;
  VERBSPP_TRY(source, buffer::allocate(domain, given.bytes));
  VERBSPP_TRY(target, buffer::allocate(domain, given.bytes));
  VERBSPP_TRY(from, source.gather());
  VERBSPP_TRY(to, target.remote());

  // Both ends are in this process, so that the sample is self-contained; 09_channel connects two
  // processes.
  VERBSPP_TRY(in_flight, work_request_count::from(given.in_flight));
  const auto builder = domain.build_channel().max_send_work_requests(in_flight);
  VERBSPP_TRY(near_end, builder.build());
  VERBSPP_TRY(far_end, builder.build());
  const endpoint near_address = near_end.endpoint();
  const endpoint far_address = far_end.endpoint();
  VERBSPP_TRY(near, std::move(near_end).handshake(far_address));
  VERBSPP_TRY(far, std::move(far_end).handshake(near_address));
  VERBSPP_TRYV(measure(near, given, from, to));
  return far.close();
}

bool read(const char* argument, std::uint32_t& into) {
  const char* const end = argument + std::strlen(argument);
  const auto [last, failure] = std::from_chars(argument, end, into);
  return failure == std::errc{} && last == end && into != 0;
}

}  // namespace

int main(int argc, char** argv) {
  options given;
  if (argc > 1) given.device = argv[1];
  if (argc > 5 || (argc > 2 && !read(argv[2], given.bytes)) ||
      (argc > 3 && !read(argv[3], given.messages)) ||
      (argc > 4 && !read(argv[4], given.in_flight))) {
    std::cerr << "usage: 10_bandwidth [DEVICE [BYTES [MESSAGES [IN_FLIGHT]]]]\n";
    return 2;
  }
  const auto outcome = run(given);
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
