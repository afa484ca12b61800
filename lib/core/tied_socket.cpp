// SPDX-License-Identifier: Apache-2.0
#include "base/device_process.hpp"
#include <verbspp/core/detail/tied_socket.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace verbspp::detail {

/// Counts the duplicates of one socket in this process.
struct tied_channels {
  dev_t device;
  ino_t number;
  std::uint32_t count = 0;
  tied_channels* next = nullptr;
};

namespace {

constexpr const char* tying = "tie a channel to its socket";

// A hash table of the sockets that have duplicates, by inode number. It is usable until the process
// exits, since static channels may be destroyed late.
constinit std::mutex table_lock{};
constinit std::array<tied_channels*, 1024> table{};

[[nodiscard]] tied_channels*& list_of(ino_t number) noexcept {
  return table[number % table.size()];
}

[[nodiscard]] result<tied_channels*> add_to_table(int descriptor) noexcept {
  struct stat seen{};
  if (::fstat(descriptor, &seen) != 0) return error::from_errno(errno, tying);
  const std::lock_guard guard(table_lock);
  tied_channels** at = &list_of(seen.st_ino);
  while (*at != nullptr && ((*at)->device != seen.st_dev || (*at)->number != seen.st_ino))
    at = &(*at)->next;
  if (*at == nullptr)
    *at = new (std::nothrow) tied_channels{.device = seen.st_dev, .number = seen.st_ino};
  if (*at == nullptr) return error::from_errno(ENOMEM, tying);
  ++(*at)->count;
  return *at;
}

void remove_from_table(tied_channels* of) noexcept {
  const std::lock_guard guard(table_lock);
  if (--of->count != 0) return;
  tied_channels** at = &list_of(of->number);
  while (*at != of) at = &(*at)->next;
  *at = of->next;
  delete of;
}

[[nodiscard]] bool is_last(const tied_channels& of) noexcept {
  const std::lock_guard guard(table_lock);
  return of.count == 1;
}

}  // namespace

tied_socket::tied_socket(tied_socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      channels_(std::exchange(other.channels_, nullptr)) {}

tied_socket& tied_socket::operator=(tied_socket&& other) noexcept {
  if (this == &other) return *this;
  drop();
  descriptor_ = std::exchange(other.descriptor_, -1);
  channels_ = std::exchange(other.channels_, nullptr);
  return *this;
}

result<tied_socket> tied_socket::duplicate_of(int descriptor) noexcept {
  tied_socket made;
  made.descriptor_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (!made.is_open()) return error::from_errno(errno, tying);
  VERBSPP_TRY(channels, add_to_table(made.descriptor_));
  made.channels_ = channels;
  return made;
}

void tied_socket::tell_end() const noexcept {
  // A child process that has inherited the socket must not end the connection of its parent.
  if (!is_open() || is_child_of_device_process()) return;
  if (is_last(*channels_)) ::shutdown(descriptor_, SHUT_WR);
}

void tied_socket::drop() noexcept {
  if (!is_open()) return;
  ::close(std::exchange(descriptor_, -1));
  tied_channels* const of = std::exchange(channels_, nullptr);
  // In a child process, the lock may be held by a thread that exists only in the parent.
  if (of != nullptr && !is_child_of_device_process()) remove_from_table(of);
}

}  // namespace verbspp::detail
