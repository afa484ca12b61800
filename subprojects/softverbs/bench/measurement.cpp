// SPDX-License-Identifier: Apache-2.0
#include "measurement.hpp"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bench {

void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, errno == 0 ? "failed" : std::strerror(errno));
  std::exit(1);
}

void samples::print(const char* name) {
  check(!times_.empty(), name);
  std::sort(times_.begin(), times_.end());
  const auto at = [&](std::size_t hundredths) {
    return times_[(times_.size() - 1) * hundredths / 100];
  };
  std::printf("%s %.9g %.9g %.9g\n", name, at(50), at(99), times_.back());
}

void print(const char* name, double figure) { std::printf("%s %.9g\n", name, figure); }

void stay_on(unsigned processor) noexcept {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (unsigned number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &allowed) || processor-- != 0) continue;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    CPU_SET(number, &wanted);
    ::sched_setaffinity(0, sizeof(wanted), &wanted);
    return;
  }
}

void run(const two_ends& ends) {
  int sockets[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair");
  std::fflush(stdout);
  const pid_t child = ::fork();
  check(child >= 0, "fork");
  if (child == 0) {
    ::close(sockets[0]);
    ends.there(sockets[1]);
    std::exit(0);
  }
  ::close(sockets[1]);
  ends.here(sockets[0]);
  ::close(sockets[0]);
  int status = 0;
  check(::waitpid(child, &status, 0) == child && status == 0, "the other process");
}

void put(int socket, const void* bytes, std::size_t length) {
  check(::send(socket, bytes, length, MSG_NOSIGNAL) == static_cast<ssize_t>(length), "send");
}

void get(int socket, void* bytes, std::size_t length) {
  check(::recv(socket, bytes, length, MSG_WAITALL) == static_cast<ssize_t>(length), "recv");
}

}  // namespace bench
