// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <sys/types.h>

/// Another process, which plays a part of the tests.
class peer {
 public:
  /// `setting`, NAME=VALUE, is added to its environment.
  explicit peer(const char* part, const char* setting = nullptr);
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer();

  /// Swaps addresses with the process' endpoint; both connect.
  address meet(endpoint& end);
  /// One byte each way, to agree on how far they are.
  void tell(char word);
  void tell(const void* bytes, std::size_t length);
  char hear();
  void hear(void* bytes, std::size_t length);
  pid_t process() const noexcept { return process_; }
  void kill();
  void stop();
  void resume();
  /// Its exit code, once it has ended.
  int wait();
  /// Asks it to end, and checks that it ends without a failure.
  void finish(int line = __builtin_LINE());

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// The group of a test and of those that it starts, which no test beside it hears.
ibv_gid group_of(pid_t process);
inline constexpr std::uint16_t lid_of_group = 0xc077;

/// Whether processes share memory here; else all goes through sockets.
bool shares_memory();

/// Writes to the peer's memory until that takes no packets, which needs memory that processes
/// share. False if it always does.
bool becomes_direct(endpoint& end, const address& there, std::uint64_t offset = 0,
                    std::uint32_t length = 1);

/// What the other process does; its exit code.
int play(const char* part);

/// What parts use to agree with the test on how far they are.
namespace with_test {
address meet(endpoint& end);
void tell(char word);
void hear(void* bytes, std::size_t length);
}  // namespace with_test
