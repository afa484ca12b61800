// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace softverbs {

/// The memory of both ends of a connection that riomap has given to the other one. It has a socket
/// of its own, with a thread that carries out what the peer writes.
class io_mappings : public std::enable_shared_from_this<io_mappings> {
 public:
  /// Takes the socket over. The stream's descriptor ends with it if the peer writes where it may
  /// not. `room` is the number of mappings that this end lets its peer have.
  io_mappings(int socket, int stream, unsigned room) noexcept;
  io_mappings(const io_mappings&) = delete;
  io_mappings& operator=(const io_mappings&) = delete;
  ~io_mappings();

  // Under the lock of connections.

  /// Tells the peer about `room`, and serves it.
  void begin();
  void set_peer_room(unsigned room) noexcept { peer_room_ = room; }
  /// 0 or an errno. Sets the offset if it is -1.
  int map(void* memory, std::size_t length, bool for_peer, off_t& offset);
  int unmap(const void* memory, std::size_t length);
  void end_writes() noexcept { may_write_ = false; }
  /// Nothing is written here any more.
  void stop() noexcept;

  // Not under the lock.

  /// The number of bytes, or -1 with errno.
  ssize_t write(const void* data, std::size_t length, off_t offset, bool waits);
  /// Carries out what the peer wrote before what the program has just received.
  void catch_up();

 private:
  struct packet;
  struct mapping {
    std::optional<std::uint32_t> index;
    std::byte* memory;
    std::size_t length;
    off_t offset;
  };
  struct target {
    off_t offset;
    std::size_t length;
  };

  void serve();
  void take(const packet& said, const std::byte* data, std::size_t length);
  void break_connection() noexcept;
  int start_thread();
  void run();
  bool tell(const packet& said) const noexcept;
  std::uint32_t free_index() const;

  const int socket_;
  const int stream_;
  const unsigned room_;
  std::optional<unsigned> peer_room_;
  std::vector<mapping> own_;
  std::map<std::uint32_t, target> targets_;
  bool may_write_ = true;
  bool is_over_ = false;
  /// The process whose thread it is; 0 for none.
  pid_t served_by_ = 0;
  std::atomic<bool> is_written_to_{false};
};

}  // namespace softverbs
