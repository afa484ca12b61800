// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <sys/types.h>

/// Another process, which runs one of the functions that `play` knows. Each of these functions is
/// called a part.
class peer {
 public:
  /// Starts the process. `setting` (NAME=VALUE) is added to its environment.
  explicit peer(const char* part, const char* setting = nullptr);
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer();

  /// Exchanges addresses with the process's endpoint, and connects both endpoints. Returns the
  /// address of the other endpoint.
  address meet(endpoint& end);
  /// `tell` sends bytes to the process, and `hear` receives bytes from it.
  void tell(char word);
  void tell(const void* bytes, std::size_t length);
  char hear();
  void hear(void* bytes, std::size_t length);
  pid_t process() const noexcept { return process_; }
  void kill();
  void stop();
  void resume();
  /// Waits until the process exits. Returns its exit code, or 1000 plus the number of the signal
  /// that killed it.
  int wait();
  /// Asks the process to exit, and checks that it succeeds.
  void finish(int line = __builtin_LINE());

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// Returns the multicast group that a test and the processes that it starts use. Tests that run at
/// the same time use other groups.
ibv_gid group_of(pid_t process);
inline constexpr std::uint16_t lid_of_group = 0xc077;

/// Returns true if processes share memory. If they don't, all traffic between them goes through
/// sockets.
bool shares_memory();

/// Returns true if processes share memory, and this process may trace the processes that it starts.
bool may_be_traced();

/// Writes to the peer's memory until requests no longer need packets, which requires shared memory
/// if the peer is another process. Returns false if they still need packets after `patience`.
bool becomes_direct(endpoint& end, const address& there, std::uint64_t offset = 0,
                    std::uint32_t length = 1);

/// Runs the part with this name in this process, and returns its exit code.
int play(const char* part);

/// The functions with which parts communicate with the test.
namespace with_test {
address meet(endpoint& end);
void tell(char word);
void hear(void* bytes, std::size_t length);
}  // namespace with_test
