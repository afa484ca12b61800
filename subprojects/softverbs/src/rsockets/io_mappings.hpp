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

/// The memory that both ends of a connection have mapped for each other with riomap. Writes go
/// through a separate socket. A thread, or a call of the program, carries out the peer's writes.
class io_mappings : public std::enable_shared_from_this<io_mappings> {
 public:
  /// Takes ownership of `socket`, but not of `stream`. If the peer writes outside the memory that
  /// this end has mapped for it, both sockets are shut down. `room` is the number of mappings that
  /// this end allows its peer.
  io_mappings(int socket, int stream, unsigned room) noexcept;
  io_mappings(const io_mappings&) = delete;
  io_mappings& operator=(const io_mappings&) = delete;
  ~io_mappings();

  // The next functions require the lock of connections.

  /// Sends `room` to the peer. If `room` isn't 0, starts the thread.
  void begin();
  void set_peer_room(unsigned room) noexcept { peer_room_ = room; }
  /// Maps memory, which the peer may write if `for_peer` is true. If the offset is -1, sets it to
  /// the memory's address. Returns 0 or an errno value.
  int map(void* memory, std::size_t length, bool for_peer, off_t& offset);
  int unmap(const void* memory, std::size_t length);
  void end_writes() noexcept { may_write_ = false; }
  /// Ends all writes to this end's memory.
  void stop() noexcept;

  // The next functions must be called without the lock.

  /// Writes to the peer's mappings. Returns the number of bytes, or -1 with errno on failure.
  ssize_t write(const void* data, std::size_t length, off_t offset, bool waits);
  /// Carries out the writes that the peer made before it sent the data that the program has just
  /// received.
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
  /// The process in which the thread was started; 0 if none was started.
  pid_t served_by_ = 0;
  std::atomic<bool> is_written_to_{false};
};

}  // namespace softverbs
