// SPDX-License-Identifier: Apache-2.0
#include "support/limits.hpp"

#include "support/fabric.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace limits_of_host {
namespace {

/// Captures stderr. `line` returns its first line.
class listener_to_errors {
 public:
  listener_to_errors() : said_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    ::dup2(::fileno(said_), STDERR_FILENO);
  }
  listener_to_errors(const listener_to_errors&) = delete;
  listener_to_errors& operator=(const listener_to_errors&) = delete;
  ~listener_to_errors() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(said_);
  }
  std::string line() {
    std::array<char, 500> text{};
    std::rewind(said_);
    return std::fgets(text.data(), text.size(), said_) == nullptr ? "" : text.data();
  }

 private:
  std::FILE* said_;
  int before_;
};

/// Returns the name of the socket on which this process listens, without the number at its end.
/// Returns an empty string if the process doesn't listen.
std::string own_kind() {
  for (int descriptor = 3; descriptor < 100; ++descriptor) {
    int listens = 0;
    socklen_t length = sizeof(listens);
    sockaddr_un name{};
    socklen_t name_length = sizeof(name);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
        listens == 0 ||
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &name_length) != 0)
      continue;
    // steady: this only reads the name of a socket of this process
    const std::string found(name.sun_path + 1, name_length - offsetof(sockaddr_un, sun_path) - 1);
    return found.substr(0, found.rfind('/') + 1);
  }
  return {};
}

/// Opens the device, and closes it again. Returns the name of the socket on which this process
/// listened in the meantime, without the number at its end.
std::string kind_of_this_process() {
  const open_context device;
  return own_kind();
}

/// Returns the errno with which opening the device fails, or 0 if it succeeds.
int error_of_opening() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  errno = 0;
  ibv_context* opened = devices == nullptr || count == 0 ? nullptr : ibv_open_device(devices[0]);
  const int error = opened == nullptr ? errno : 0;
  if (opened != nullptr) ibv_close_device(opened);
  ibv_free_device_list(devices);
  return error;
}

bool says(const std::string& line, std::string_view what) {
  return line.find(what) != std::string::npos;
}

}  // namespace

int latecomer() {
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  const std::string kind = kind_of_this_process();
  if (kind.empty()) return 2;
  for (int slot = 1; slot <= 1022; ++slot) {
    const int taken = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = kind + std::to_string(slot);
    // steady: the name is unique, because it depends on a configuration that only this process has
    text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (taken < 0 || ::bind(taken, reinterpret_cast<const sockaddr*>(&name), length) != 0) return 3;
  }
  listener_to_errors heard;
  if (error_of_opening() != EUSERS) return 4;
  return says(heard.line(), "1022 processes") ? 0 : 5;
}

int without_threads() {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  // Makes the creation of threads fail by requesting stacks that are larger than the address space.
  // It would not suffice to limit the number of threads, because some users are exempt from that
  // limit.
  if (::pthread_attr_setstacksize(&attributes, std::size_t{1} << 47) != 0 ||
      ::pthread_setattr_default_np(&attributes) != 0)
    return 4;
  listener_to_errors heard;
  if (error_of_opening() != EAGAIN) return 2;
  return says(heard.line(), "thread") ? 0 : 3;
}

int seeker() {
  const std::string kind = kind_of_this_process();
  if (kind.empty()) return 2;
  const auto take = [](const std::string& text) {
    const int taken = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    // steady: if another process has this name, the caller tries the next one
    text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    const bool has_it = ::bind(taken, reinterpret_cast<const sockaddr*>(&name), length) == 0;
    if (!has_it) ::close(taken);
    return has_it;
  };
  std::uint32_t slot = 1;
  // Finds a free slot, and takes the slot's name both in this version and in another one. It then
  // looks as if a process of the other version had the slot, and no process of this version can
  // take it.
  while (!take(kind + std::to_string(slot)) || !take("softverbs/2/" + std::to_string(slot)))
    if (++slot > 1022) return 3;
  listener_to_errors heard;
  endpoint end(options{.timeout = 1, .retry_count = 1});
  address there = end.here();
  there.qpn = slot << 14 | 7;
  end.connect(there);
  if (end.write(1, {end.piece(0, 8)}, there) != 0) return 4;
  if (end.wait().status != IBV_WC_RETRY_EXC_ERR) return 5;
  return says(heard.line(), "another version or configuration of softverbs") ? 0 : 6;
}

}  // namespace limits_of_host
