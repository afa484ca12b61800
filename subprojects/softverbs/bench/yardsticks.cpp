// SPDX-License-Identifier: Apache-2.0
// The speed of the host without any device, to which the device's figures are compared.
#include "measurement.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace bench {
namespace {

using message = std::array<char, 64>;

/// Measures half of a round trip. Both ends block. Each has its own processor, if there are two.
void socket_latency() {
  run({[](int socket) {
         stay_on(0);
         samples times;
         message bytes{};
         for (const seconds end = now() + duration; now() < end;) {
           const seconds start = now();
           put(socket, bytes.data(), bytes.size());
           get(socket, bytes.data(), bytes.size());
           times.add((now() - start) / 2);
         }
         times.print("socket_latency");
       },
       [](int socket) {
         stay_on(1);
         message bytes{};
         while (::recv(socket, bytes.data(), bytes.size(), MSG_WAITALL) > 0)
           put(socket, bytes.data(), bytes.size());
       }});
}

void socket_bandwidth() {
  run({[](int socket) {
         const std::vector<char> bytes(large, 'x');
         double sent = 0;
         // Waits until the other end reads.
         char ready = 0;
         get(socket, &ready, 1);
         const seconds start = now();
         while (now() < start + duration)
           for (std::size_t done = 0; done < bytes.size();) {
             const ssize_t written =
                 ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
             check(written > 0, "send");
             done += static_cast<std::size_t>(written);
             sent += static_cast<double>(written);
           }
         print("socket_bandwidth", sent / (now() - start).count());
       },
       [](int socket) {
         std::vector<char> bytes(large);
         put(socket, bytes.data(), 1);
         while (::recv(socket, bytes.data(), bytes.size(), 0) > 0) continue;
       }});
}

/// Copies the same memory repeatedly, as a benchmark of a network does.
void copying() {
  std::vector<char> from(large, 'x');
  std::vector<char> to(large);
  double copied = 0;
  const seconds start = now();
  while (now() < start + duration) {
    std::memcpy(to.data(), from.data(), large);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    asm volatile("" : : "r"(to.data()), "r"(from.data()) : "memory");
    copied += large;
  }
  print("memcpy", copied / (now() - start).count());
}

/// Makes small copies in the thread's own memory, which its processor's caches hold. Returns the
/// number of copies per second.
double plain_work() {
  constexpr std::size_t piece = 64;
  constexpr std::size_t pieces = 128;
  struct alignas(128) buffers {
    std::array<char, piece * pieces> from{};
    std::array<char, piece * pieces> to{};
  };
  const auto own = std::make_unique<buffers>();
  double copied = 0;
  const seconds start = now();
  while (now() < start + duration) {
    for (std::size_t at = 0; at < pieces; ++at) {
      std::memcpy(own->to.data() + at * piece, own->from.data() + at * piece, piece);
      asm volatile("" : : "r"(own->to.data()), "r"(own->from.data()) : "memory");
    }
    copied += pieces;
  }
  return copied / (now() - start).count();
}

/// Measures the gain of a second thread without shared data. It is less than twofold if the two
/// processors are hardware threads of one core.
void plain_threads() {
  print("plain_1", plain_work());
  std::atomic<unsigned> ready{0};
  std::array<double, 2> rates{};
  std::array<std::thread, 2> threads;
  for (std::size_t number = 0; number < threads.size(); ++number)
    threads[number] = std::thread([&ready, &rate = rates[number]] {
      for (++ready; ready < 2;) std::this_thread::yield();
      rate = plain_work();
    });
  for (std::thread& each : threads) each.join();
  print("plain_2", rates[0] + rates[1]);
}

/// Makes the kernel copy to another process's memory, `bytes` bytes at a time. `measure` is called
/// with a function that makes one copy, and that returns true if the copy succeeded.
template <typename Measure>
void copying_between_processes(std::size_t bytes, const Measure& measure) {
  // The other process is a forked child, so this memory has the same address there.
  std::vector<char> memory(bytes, 'x');
  run({[&](int socket) {
         pid_t other = 0;
         get(socket, &other, sizeof(other));
         const iovec piece{memory.data(), memory.size()};
         measure([&] {
           return ::process_vm_writev(other, &piece, 1, &piece, 1, 0) ==
                  static_cast<ssize_t>(bytes);
         });
       },
       [&](int socket) {
         const pid_t self = ::getpid();
         put(socket, &self, sizeof(self));
         char nothing = 0;
         while (::recv(socket, &nothing, 1, 0) > 0) continue;
       }});
}

// If the kernel doesn't permit these copies, no figures are printed.

void copies_of_large_pieces() {
  copying_between_processes(large, [](const auto& copy) {
    double copied = 0;
    const seconds start = now();
    for (; now() < start + duration; copied += large)
      if (!copy()) return;
    print("process_vm_writev", copied / (now() - start).count());
  });
}

void copies_of_small_pieces() {
  copying_between_processes(sizeof(message), [](const auto& copy) {
    samples times;
    for (const seconds end = now() + duration; now() < end;) {
      const seconds start = now();
      if (!copy()) return;
      times.add(now() - start);
    }
    times.print("process_vm_writev_64");
  });
}

}  // namespace

const std::vector<measurement> yardsticks{
    {"socket_latency", socket_latency},
    {"socket_bandwidth", socket_bandwidth},
    {"memcpy", copying},
    {"process_vm_writev", copies_of_large_pieces},
    {"process_vm_writev_64", copies_of_small_pieces},
    {"plain_threads", plain_threads},
};

}  // namespace bench
