// SPDX-License-Identifier: Apache-2.0
#include "wire/slot_socket.hpp"

#include "wire/strangers.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace softverbs {

slot_name::slot_name(std::uint32_t slot) noexcept {
  name.sun_family = AF_UNIX;
  // The leading zero byte makes the name abstract.
  const int written =
      std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%s/%u", own_kind(), slot);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(written));
}

int open_socket() noexcept {
  return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

bool may_pass(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == EAGAIN;
}

void tell_of_descriptors() noexcept {
  // The engine's lock protects this variable; callers hold it.
  static bool told = false;
  if (std::exchange(told, true)) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  std::fprintf(
      stderr,
      "softverbs: this process has reached its limit of open files (RLIMIT_NOFILE is %llu), "
      "and softverbs needs two for each process that it communicates with: new connections "
      "wait until some files are closed\n",
      static_cast<unsigned long long>(limit.rlim_cur));
}

}  // namespace softverbs
