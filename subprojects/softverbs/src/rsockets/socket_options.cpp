// SPDX-License-Identifier: Apache-2.0
#include "rsockets/socket_options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

namespace softverbs {
namespace {

struct number_option {
  int level;
  int name;
  int initially;
};

constexpr std::array numbers{
    number_option{SOL_SOCKET, SO_REUSEADDR, 0},    number_option{SOL_SOCKET, SO_RCVBUF, 1 << 17},
    number_option{SOL_SOCKET, SO_SNDBUF, 1 << 17}, number_option{SOL_SOCKET, SO_KEEPALIVE, 0},
    number_option{SOL_SOCKET, SO_OOBINLINE, 0},    number_option{SOL_SOCKET, SO_BROADCAST, 0},
    number_option{IPPROTO_IP, IP_TOS, 0},          number_option{IPPROTO_TCP, TCP_NODELAY, 0},
    number_option{IPPROTO_TCP, TCP_MAXSEG, 2048},  number_option{IPPROTO_TCP, TCP_KEEPCNT, 1},
    number_option{IPPROTO_TCP, TCP_KEEPINTVL, 1},  number_option{IPPROTO_TCP, TCP_KEEPIDLE, 0},
    number_option{IPPROTO_IPV6, IPV6_V6ONLY, 0},   number_option{SOL_RDMA, RDMA_SQSIZE, 384},
    number_option{SOL_RDMA, RDMA_RQSIZE, 384},     number_option{SOL_RDMA, RDMA_INLINE, 64},
    number_option{SOL_RDMA, RDMA_IOMAPSIZE, 0}};

const number_option* find_number(int level, int name) noexcept {
  const auto* const found = std::ranges::find_if(
      numbers, [&](const auto& each) { return each.level == level && each.name == name; });
  return found == numbers.end() ? nullptr : found;
}

/// True if the value of the option is a structure or text.
bool is_structure(int level, int name) noexcept {
  return (level == SOL_SOCKET && name == SO_LINGER) ||
         (level == IPPROTO_TCP && name == TCP_CONGESTION) ||
         (level == SOL_RDMA && name == RDMA_ROUTE);
}

int valid_number(int level, int name, int& value) noexcept {
  constexpr int most = std::numeric_limits<int>::max();
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
    // The kernel doubles the value, too, because of its own overhead.
    value = value < 0 || value > most / 2 ? most : value * 2;
    return 0;
  }
  const bool is_count = level == SOL_RDMA || (level == IPPROTO_TCP && name == TCP_KEEPIDLE);
  if (is_count && value < (level == SOL_RDMA ? 0 : 1)) return EINVAL;
  if (level == SOL_RDMA) value = std::min(value, int{std::numeric_limits<unsigned short>::max()});
  return 0;
}

}  // namespace

int socket_options::set(int level, int name, const void* value, socklen_t length) {
  if (value == nullptr) return EFAULT;
  const auto* const bytes = static_cast<const unsigned char*>(value);
  if (is_structure(level, name)) {
    if (name == SO_LINGER && length < sizeof(linger)) return EINVAL;
    given_[{level, name}].assign(bytes, bytes + length);
    return 0;
  }
  if (find_number(level, name) == nullptr) return ENOTSUP;
  int number = 0;
  if (length < sizeof(number)) return EINVAL;
  std::memcpy(&number, value, sizeof(number));
  if (const int error = valid_number(level, name, number)) return error;
  const auto* const start = reinterpret_cast<const unsigned char*>(&number);
  given_[{level, name}].assign(start, start + sizeof(number));
  return 0;
}

int socket_options::get(int level, int name, void* value, socklen_t* length) const {
  if (value == nullptr || length == nullptr) return EFAULT;
  if (is_structure(level, name)) {
    static constexpr linger none{};
    const auto found = given_.find({level, name});
    const bool is_given = found != given_.end();
    const void* from = is_given ? found->second.data() : static_cast<const void*>(&none);
    const std::size_t most = is_given              ? found->second.size()
                             : level == SOL_SOCKET ? sizeof(none)
                                                   : 0;
    *length = static_cast<socklen_t>(std::min<std::size_t>(*length, most));
    std::memcpy(value, from, *length);
    return 0;
  }
  if (find_number(level, name) == nullptr) return ENOTSUP;
  const int number = this->value(level, name);
  *length = static_cast<socklen_t>(std::min<std::size_t>(*length, sizeof(number)));
  std::memcpy(value, &number, *length);
  return 0;
}

int socket_options::value(int level, int name) const {
  const auto found = given_.find({level, name});
  if (found == given_.end()) return find_number(level, name)->initially;
  int number = 0;
  std::memcpy(&number, found->second.data(), sizeof(number));
  return number;
}

}  // namespace softverbs
