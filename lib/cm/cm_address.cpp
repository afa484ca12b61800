// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_address.hpp>

#include <arpa/inet.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <ostream>

namespace verbspp {

namespace {

constexpr const char* making = "cm_address";

/// Returns the address as an IPv4 structure. The bytes are copied, because the storage has a
/// different type, that of an IPv6 address.
sockaddr_in as_ipv4(const sockaddr_in6& storage) noexcept {
  sockaddr_in native{};
  std::memcpy(&native, &storage, sizeof native);
  return native;
}

}  // namespace

result<cm_address> cm_address::from_native(const sockaddr* native) noexcept {
  cm_address made;
  if (native != nullptr && native->sa_family == AF_INET) {
    std::memcpy(&made.storage_, native, sizeof(sockaddr_in));
  } else if (native != nullptr && native->sa_family == AF_INET6) {
    std::memcpy(&made.storage_, native, sizeof(sockaddr_in6));
  } else {
    return error(error_kind::invalid_input, making,
                 "the address is null, or neither an IPv4 nor an IPv6 address");
  }
  return made;
}

result<cm_address> cm_address::from(std::string_view address, std::uint16_t port) noexcept {
  const error none(
      error_kind::invalid_input, making,
      "this is not a numeric IP address, or its interface does not exist: to use a host name, look "
      "it up with getaddrinfo, and pass the result to cm_address::from_native");
  std::array<char, NI_MAXHOST> text{};
  if (address.empty() || address.size() >= text.size() || address.find('\0') != address.npos)
    return none;
  address.copy(text.data(), address.size());
  // `getaddrinfo` also parses the interface of a link-local address. It does not block if the
  // address is numeric.
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(text.data(), nullptr, &hints, &found);
  if (outcome == EAI_MEMORY) return error::from_errno(ENOMEM, making);
  if (outcome != 0) return none;
  const result<cm_address> made = from_native(found->ai_addr);
  ::freeaddrinfo(found);
  VERBSPP_TRY(one, made);
  return one.with_port(port);
}

cm_address cm_address::any(std::uint16_t port) noexcept {
  cm_address made;
  made.storage_.sin6_family = AF_INET6;
  made.storage_.sin6_addr = in6addr_any;
  return made.with_port(port);
}

std::uint16_t cm_address::port() const noexcept {
  // The port is at the same offset in both structures.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(storage_.sin6_port);
}

cm_address cm_address::with_port(std::uint16_t port) const noexcept {
  cm_address made = *this;
  if (!made.is_empty()) made.storage_.sin6_port = htons(port);
  return made;
}

bool operator==(const cm_address& a, const cm_address& b) noexcept {
  if (a.storage_.sin6_family != b.storage_.sin6_family || a.port() != b.port()) return false;
  if (a.storage_.sin6_family == AF_INET)
    return as_ipv4(a.storage_).sin_addr.s_addr == as_ipv4(b.storage_).sin_addr.s_addr;
  return std::memcmp(&a.storage_.sin6_addr, &b.storage_.sin6_addr, sizeof(in6_addr)) == 0 &&
         a.storage_.sin6_scope_id == b.storage_.sin6_scope_id;
}

std::ostream& operator<<(std::ostream& out, const cm_address& address) {
  if (address.is_empty()) return out << "no address";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.native()->sa_family == AF_INET) {
    const sockaddr_in native = as_ipv4(address.storage_);
    inet_ntop(AF_INET, &native.sin_addr, text.data(), text.size());
    return out << text.data() << ':' << address.port();
  }
  inet_ntop(AF_INET6, &address.storage_.sin6_addr, text.data(), text.size());
  out << '[' << text.data();
  if (address.storage_.sin6_scope_id != 0) out << '%' << address.storage_.sin6_scope_id;
  return out << "]:" << address.port();
}

}  // namespace verbspp
