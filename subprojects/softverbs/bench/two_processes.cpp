// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"
#include "measurement.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace bench {
namespace {

constexpr unsigned receives = 512;
/// The value in the last message of the end that measures. Its other messages have smaller values.
constexpr char last = 127;
constexpr unsigned in_line = IBV_SEND_SIGNALED | IBV_SEND_INLINE;

/// Does nothing until the peer closes the socket, because the target of writes has nothing to do.
void wait_for_end(int socket) {
  char nothing = 0;
  while (::recv(socket, &nothing, 1, 0) > 0) continue;
}

/// Sends the peer the address to write to, and waits until the peer has finished.
void be_target(int socket, bool with_device_memory) {
  device here(large);
  completion_queue completions(here, 16);
  queue_pair pair(here, completions);
  pair.meet(socket);
  address target = pair.here();
  if (!with_device_memory) {
    put(socket, &target, sizeof(target));
    return wait_for_end(socket);
  }
  ibv_alloc_dm_attr wanted{large, 0, 0};
  ibv_dm* const memory = ibv_alloc_dm(here.context(), &wanted);
  check(memory != nullptr, "ibv_alloc_dm");
  ibv_mr* const region =
      ibv_reg_dm_mr(here.domain(), memory, 0, large,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
  check(region != nullptr, "ibv_reg_dm_mr");
  target.memory = 0;
  target.rkey = region->rkey;
  put(socket, &target, sizeof(target));
  wait_for_end(socket);
  ibv_dereg_mr(region);
  ibv_free_dm(memory);
}

void stream_of_writes(const char* name, bool to_device_memory) {
  constexpr unsigned window = 16;
  run({[name](int socket) {
         device here(large);
         completion_queue completions(here, 2 * window);
         queue_pair pair(here, completions, window);
         pair.meet(socket);
         address there{};
         get(socket, &there, sizeof(there));
         double written = 0;
         std::array<ibv_wc, window> done;
         unsigned outstanding = 0;
         seconds start = now();
         // The first write makes the two processes connect to each other.
         pair.write(here.piece(0, small), there);
         completions.wait();
         start = now();
         while (now() < start + duration) {
           for (; outstanding < window; ++outstanding) pair.write(here.piece(0, large), there);
           const int count = completions.poll(done.data(), window);
           written += static_cast<double>(count) * large;
           outstanding -= static_cast<unsigned>(count);
         }
         print(name, written / (now() - start).count());
         for (; outstanding > 0; --outstanding) completions.wait();
       },
       [=](int socket) { be_target(socket, to_device_memory); }});
}

void write_bandwidth() { stream_of_writes("write_bandwidth", false); }
void device_memory_bandwidth() { stream_of_writes("device_memory_bandwidth", true); }

/// Both ends poll their completion queues.
void ping_pong_of_sends(int socket, bool first) {
  device here(2 * small);
  completion_queue completions(here, 64);
  queue_pair pair(here, completions, 16, 16);
  for (std::uint64_t id = 0; id < 8; ++id) pair.receive(here.piece(small, small), id);
  pair.meet(socket);
  samples times;
  const seconds end = now() + duration;
  for (bool more = true; more;) {
    const seconds start = now();
    if (first) {
      more = start < end;
      here.memory()[0] = more ? 0 : last;
      pair.send(here.piece(0, small), in_line);
    }
    while (completions.wait().opcode != IBV_WC_RECV) continue;
    if (!first) {
      more = here.memory()[small] != last;
      pair.send(here.piece(0, small), in_line);
    }
    if (first) times.add((now() - start) / 2);
    pair.receive(here.piece(small, small), 0);
  }
  if (first) times.print("send_latency");
  // Neither end exits before the last message has arrived.
  char over = 0;
  put(socket, &over, 1);
  get(socket, &over, 1);
}

void send_latency() {
  run({[](int socket) { ping_pong_of_sends(socket, true); },
       [](int socket) { ping_pong_of_sends(socket, false); }});
}

/// Both ends spin on their memory, until the written value appears.
void ping_pong_of_writes(int socket, bool first) {
  device here(2 * small);
  completion_queue completions(here, 64);
  queue_pair pair(here, completions, 16, 1);
  const address there = pair.meet(socket);
  samples times;
  const seconds end = now() + duration;
  const auto arrived = [&] { return here.memory()[small - 1]; };
  const auto write = [&](char value) {
    here.memory()[2 * small - 1] = value;
    // Writes from the second half of this process's memory to the first half of the peer's memory.
    address target = there;
    target.memory -= small;
    pair.write(here.piece(small, small), target, in_line);
  };
  char round = 0;
  for (bool more = true; more;) {
    const seconds start = now();
    const char expected = static_cast<char>(round % 100 + 1);
    if (first) {
      more = start < end;
      write(more ? expected : last);
    }
    while (arrived() != expected && arrived() != last) continue;
    if (!first) {
      more = arrived() == expected;
      write(arrived());
    }
    if (first) times.add((now() - start) / 2);
    completions.wait();
    round = expected;
  }
  if (first) times.print("write_latency");
  char over = 0;
  put(socket, &over, 1);
  get(socket, &over, 1);
}

void write_latency() {
  run({[](int socket) { ping_pong_of_writes(socket, true); },
       [](int socket) { ping_pong_of_writes(socket, false); }});
}

void send_rate() {
  constexpr unsigned window = 128;
  run({[](int socket) {
         device here(small);
         completion_queue completions(here, 2 * window);
         queue_pair pair(here, completions, window, 1);
         pair.meet(socket);
         std::array<ibv_wc, 16> done;
         double sent = 0;
         unsigned outstanding = 0;
         const auto take = [&] {
           const int count = completions.poll(done.data(), static_cast<int>(done.size()));
           outstanding -= static_cast<unsigned>(count);
           sent += count;
         };
         const seconds start = now();
         for (unsigned turn = 0; turn % 16 != 0 || now() < start + duration; ++turn) {
           for (; outstanding < window; ++outstanding) pair.send(here.piece(0, small), in_line);
           take();
         }
         print("send_rate", sent / (now() - start).count());
         while (outstanding > 0) take();
         here.memory()[0] = last;
         pair.send(here.piece(0, small), in_line);
         completions.wait();
         get(socket, &done, 1);
       },
       [](int socket) {
         device here(receives * small);
         completion_queue completions(here, 2 * receives);
         queue_pair pair(here, completions, 1, receives);
         for (std::uint64_t id = 0; id < receives; ++id)
           pair.receive(here.piece(id * small, small), id);
         pair.meet(socket);
         std::array<ibv_wc, 16> done;
         for (bool more = true; more;) {
           const int count = completions.poll(done.data(), static_cast<int>(done.size()));
           for (int at = 0; at < count; ++at) {
             const std::size_t place = done[static_cast<std::size_t>(at)].wr_id * small;
             more &= here.memory()[place] != last;
             pair.receive(here.piece(place, small), place / small);
           }
         }
         put(socket, &done, 1);
       }});
}

}  // namespace

const std::vector<measurement> of_two_processes{
    {"write_bandwidth", write_bandwidth},
    {"device_memory_bandwidth", device_memory_bandwidth},
    {"send_latency", send_latency},
    {"write_latency", write_latency},
    {"send_rate", send_rate},
};

}  // namespace bench
