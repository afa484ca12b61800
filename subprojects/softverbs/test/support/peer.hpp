// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <sys/types.h>

/// Another process, which runs one of the functions in peer.cpp. Such a function is called a part.
class peer {
 public:
  /// Starts the process. `setting` (NAME=VALUE) is added to its environment.
  explicit peer(const char* part, const char* setting = nullptr);
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer();

  /// Exchanges addresses with the endpoint of the process, and connects both. Returns its address.
  address meet(endpoint& end);
  /// `tell` sends a byte to the process, and `hear` receives one from it, for synchronization.
  void tell(char word);
  void tell(const void* bytes, std::size_t length);
  char hear();
  void hear(void* bytes, std::size_t length);
  pid_t process() const noexcept { return process_; }
  void kill();
  void stop();
  void resume();
  /// Waits until the process exits. Returns its exit code.
  int wait();
  /// Requests the process to exit, and checks that it succeeds.
  void finish(int line = __builtin_LINE());

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// The multicast group of a test and of the processes that it starts. Concurrent tests use other
/// groups.
ibv_gid group_of(pid_t process);
inline constexpr std::uint16_t lid_of_group = 0xc077;

/// True if processes share memory. Otherwise all traffic goes through sockets.
bool shares_memory();

/// Writes to the peer's memory until requests need no packets, which requires shared memory.
/// Returns false if they always need packets.
bool becomes_direct(endpoint& end, const address& there, std::uint64_t offset = 0,
                    std::uint32_t length = 1);

/// Runs the part with this name in this process. Returns the exit code.
int play(const char* part);

/// The functions with which parts synchronize with the test.
namespace with_test {
address meet(endpoint& end);
void tell(char word);
void hear(void* bytes, std::size_t length);
}  // namespace with_test
