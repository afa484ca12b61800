// SPDX-License-Identifier: Apache-2.0
#include "exchange/lookup.hpp"

#include "base/wake_signal.hpp"
#include <verbspp/base/detail/words.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <span>

namespace verbspp::detail {

namespace {

constexpr std::size_t longest_host = 255;
using host_name = std::array<char, longest_host + 1>;

}  // namespace

/// The state of a lookup, which the caller and the thread share. The last owner frees it.
struct lookup {
  host_name host{};
  std::uint16_t port = 0;
  /// An eventfd; -1 once the caller has left. Only the caller opens and closes it: if another
  /// thread closed it, the caller could be using the descriptor in a system call.
  int answered = -1;
  std::mutex lock{};  ///< held while `answered` is closed or made readable
  int outcome = 0;
  int errnum = 0;
  host_addresses found{};
  std::atomic<bool> is_done{false};  ///< the thread has stored the result
  std::atomic<int> owners{1};

  void drop() noexcept {
    if (owners.fetch_sub(1) == 1) delete this;
  }
  /// Called by the caller, not by the thread, when it no longer needs the answer.
  void leave() noexcept {
    {
      const std::lock_guard guard(lock);
      if (answered >= 0) ::close(answered);
      answered = -1;
    }
    drop();
  }
};

namespace {

constexpr const char* looking_up = "look up a host's addresses";

void keep_addresses(const addrinfo* found, std::uint16_t port, host_addresses& into) noexcept {
  for (const addrinfo* each = found; each != nullptr && into.count < into.addresses.size();
       each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    socket_address& made = into.addresses[into.count++];
    made.size = std::min<socklen_t>(each->ai_addrlen, sizeof made.storage);
    std::memcpy(&made.storage, each->ai_addr, made.size);
    // Both address families have the port at the same offset.
    const in_port_t number = htons(port);
    std::memcpy(reinterpret_cast<char*>(&made.storage) + offsetof(sockaddr_in, sin_port), &number,
                sizeof number);
  }
}

int get_addresses(const char* host, int flags, std::uint16_t port, host_addresses& into) noexcept {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(host, nullptr, &hints, &found);
  if (outcome == 0) {
    keep_addresses(found, port, into);
    ::freeaddrinfo(found);
  }
  return outcome;
}

result<host_name> host_of(std::string_view host) noexcept {
  if (host.empty() || host.find('\0') != std::string_view::npos)
    return error(error_kind::invalid_input, looking_up,
                 "the host is empty, or contains a null character: give a name, or an IPv4 or IPv6 "
                 "address");
  if (host.size() > longest_host)
    return error::above_limit(looking_up, "length of the host's name", host.size(), longest_host);
  host_name made{};
  std::ranges::copy(host, made.begin());
  return made;
}

/// The number of lookups whose threads have not finished.
std::atomic<int> lookups_under_way{0};
constexpr int most_lookups = 16;

void* run_lookup(void* argument) noexcept {
  auto* const asked = static_cast<lookup*>(argument);
  asked->outcome = get_addresses(asked->host.data(), 0, asked->port, asked->found);
  asked->errnum = errno;
  asked->is_done.store(true, std::memory_order_release);
  {
    const std::lock_guard guard(asked->lock);
    if (asked->answered >= 0) raise(asked->answered);
  }
  asked->drop();
  lookups_under_way.fetch_sub(1);
  return nullptr;
}

/// Starts a detached thread, in which all of the program's signals are blocked.
int start_thread(lookup& asked) noexcept {
  pthread_attr_t attributes;
  if (const int failed = ::pthread_attr_init(&attributes); failed != 0) return failed;
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const int failed = ::pthread_create(&thread, &attributes, &run_lookup, &asked);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return failed;
}

error no_addresses(const host_name& host, int outcome, int errnum) noexcept {
  if (outcome == EAI_MEMORY) return error::from_errno(ENOMEM, looking_up);
  if (outcome == EAI_SYSTEM) return error::from_errno(errnum, looking_up);
  return error_in_words_of(error_kind::not_found, looking_up, "host '%s': %s", host.data(),
                           outcome != 0 ? ::gai_strerror(outcome) : "it has no IP address");
}

}  // namespace

printed_address::printed_address(const socket_address& address) noexcept {
  std::array<char, 64> host{};
  std::array<char, 8> port{};
  if (::getnameinfo(address.get(), address.size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  std::snprintf(text.data(), text.size(), address.family() == AF_INET6 ? "[%s]:%s" : "%s:%s",
                host.data(), port.data());
}

result<std::uint16_t> port_of(std::string_view text, bool may_be_zero) noexcept {
  std::uint16_t port = 0;
  const std::span<const char> digits(text);
  const char* const end = digits.data() + digits.size();
  const auto [stopped, failed] = std::from_chars(digits.data(), end, port);
  if (failed != std::errc() || stopped != end || (port == 0 && !may_be_zero))
    return error(error_kind::invalid_input, "TCP port",
                 "this is not a port number: use one from 1 to 65535");
  return port;
}

result<host_addresses> addresses_of_number(std::string_view host, std::uint16_t port) noexcept {
  VERBSPP_TRY(name, host_of(host));
  host_addresses found;
  if (get_addresses(name.data(), AI_NUMERICHOST, port, found) == EAI_MEMORY)
    return error::from_errno(ENOMEM, looking_up);
  return found;
}

pending_lookup::~pending_lookup() {
  if (asked_ != nullptr) asked_->leave();
}

result<pending_lookup> pending_lookup::start(std::string_view host, std::uint16_t port) noexcept {
  VERBSPP_TRY(name, host_of(host));
  pending_lookup made(new (std::nothrow) lookup);
  lookup* const asked = made.asked_;
  if (asked == nullptr) return error::from_errno(ENOMEM, looking_up);
  asked->host = name;
  asked->port = port;
  asked->answered = make_event_descriptor();
  if (asked->answered < 0) return error::from_errno(errno, looking_up);
  if (lookups_under_way.fetch_add(1) >= most_lookups) {
    lookups_under_way.fetch_sub(1);
    return error(error_kind::resource_exhausted, looking_up,
                 "16 lookups of names have not been answered yet: try again later, check the "
                 "system's name servers (/etc/resolv.conf), or use addresses");
  }
  asked->owners.fetch_add(1);
  if (const int failed = start_thread(*asked); failed != 0) {
    asked->owners.fetch_sub(1);
    lookups_under_way.fetch_sub(1);
    return error::from_errno(failed, "pthread_create");
  }
  return made;
}

bool pending_lookup::is_answered() const noexcept {
  return asked_->is_done.load(std::memory_order_acquire);
}

int pending_lookup::file_descriptor() const noexcept { return asked_->answered; }

result<host_addresses> pending_lookup::addresses() const noexcept {
  if (asked_->outcome != 0 || asked_->found.count == 0)
    return no_addresses(asked_->host, asked_->outcome, asked_->errnum);
  return asked_->found;
}

}  // namespace verbspp::detail
