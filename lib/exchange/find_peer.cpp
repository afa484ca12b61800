// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "base/timer.hpp"
#include "exchange/tcp_attempt.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/exchange/detail/find_peer.hpp>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <span>

namespace verbspp::detail {

namespace {

using std::chrono::steady_clock;

constexpr const char* meeting = "meet a peer";
constexpr int accepts_in_a_turn = 16;
constexpr auto between_tries = std::chrono::milliseconds(50);
/// The time until the next attempt to accept a connection after an attempt has failed, usually
/// because no file descriptor was left.
constexpr auto between_accepts = std::chrono::milliseconds(100);
/// True for a permanent error of accept4: the listener was closed or shut down.
bool is_permanent(const error& failed) noexcept {
  const int errnum = failed.native_errno();
  return errnum == EBADF || errnum == EINVAL || errnum == ENOTSOCK;
}
/// The time for which a connection that has not introduced itself (`has_greeted`) keeps its place.
constexpr auto time_to_greet = std::chrono::milliseconds(250);
/// The time limit of an attempt to connect, not counting the lookup of the name. After that,
/// another attempt is made.
constexpr auto time_to_connect = std::chrono::seconds(1);

/// A connection that may be chosen.
struct candidate {
  tcp_socket socket{};
  owned<exchange_core> core{};
  steady_clock::time_point came{};
};

/// Watches file descriptors, a timer, and a stop token. Its own descriptor becomes readable when a
/// watched descriptor is ready, when the timer expires, or when a stop is requested.
class watched_descriptors {
 public:
  explicit watched_descriptors(const wait_limit& limit) noexcept : limit_(limit) {}

  [[nodiscard]] result<void> open() noexcept {
    events_ = tcp_socket::from_native(::epoll_create1(EPOLL_CLOEXEC));
    timer_ = tcp_socket::from_native(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    epoll_event entry{.events = EPOLLIN, .data = {}};
    if (!events_.is_open() || !timer_.is_open() ||
        ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, timer_.descriptor(), &entry) != 0)
      return error::from_errno(errno, meeting);
    signal_.watch(limit_);
    if (limit_.is_active() &&
        ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, signal_.descriptor(), &entry) != 0)
      return error::from_errno(errno, meeting);
    return success();
  }
  [[nodiscard]] int descriptor() const noexcept { return events_.descriptor(); }
  /// Replaces the watched descriptors. The timer expires at `until`, or when the limit has to be
  /// checked, if that is earlier.
  void watch(std::span<const pollfd> entries,
             steady_clock::time_point until = (steady_clock::time_point::max)()) noexcept {
    until = std::min(until, limit_.alarm());
    // A new set is created each time, because removing the descriptors one by one would use the
    // numbers of those that were closed, which other threads may have reused.
    watched_ = tcp_socket::from_native(::epoll_create1(EPOLL_CLOEXEC));
    for (const pollfd& each : entries) {
      epoll_event entry{.events = each.events == POLLIN ? EPOLLIN : EPOLLIN | EPOLLOUT, .data = {}};
      if (each.events == POLLOUT) entry.events = EPOLLOUT;
      if (each.fd >= 0) ::epoll_ctl(watched_.descriptor(), EPOLL_CTL_ADD, each.fd, &entry);
    }
    epoll_event entry{.events = EPOLLIN, .data = {}};
    // If no descriptor or memory is left for the set, the timer makes the session poll the
    // descriptors.
    if (::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, watched_.descriptor(), &entry) != 0)
      until = std::min(until, steady_clock::now() + std::chrono::milliseconds(10));
    set_timer(timer_.descriptor(), until);
  }

 private:
  stop_signal signal_{};
  stoppable_limit limit_;
  tcp_socket events_{};
  tcp_socket timer_{};
  tcp_socket watched_{};  ///< the epoll instance of the watched descriptors
};

/// The connections that may be chosen.
class candidates {
 public:
  explicit candidates(const exchange_setup& setup, const wait_limit& limit) noexcept
      : setup_(setup), limit_(limit) {}
  candidates(const candidates&) = delete;
  candidates& operator=(const candidates&) = delete;

  [[nodiscard]] bool have_own() const noexcept { return static_cast<bool>(all_[own].core); }
  [[nodiscard]] result<void> add_own(tcp_socket socket) noexcept {
    return add(all_[own], std::move(socket));
  }
  /// Adds a connection that was accepted. \pre the time that `next_room` returned has passed
  [[nodiscard]] result<void> add_other(tcp_socket socket) noexcept {
    candidate& place = *next_place_;
    if (place.core)
      place.core->refuse(error(
          error_kind::busy, meeting,
          "too many connections were open, so this one was dropped to make room for a newer one"));
    return add(place, std::move(socket));
  }
  /// The earliest time at which there is room for another connection. A connection that has not
  /// introduced itself keeps its place for some time, while later ones wait in the listener's
  /// queue. If all have introduced themselves, one of them has to leave immediately.
  [[nodiscard]] steady_clock::time_point next_room() noexcept {
    next_place_ = nullptr;
    for (std::size_t i = own + 1; i < most; ++i) {
      candidate& each = all_[i];
      if (!each.core) {
        next_place_ = &each;
        return (steady_clock::time_point::min)();
      }
      if (each.core->has_greeted()) continue;
      if (next_place_ == nullptr || each.came < next_place_->came) next_place_ = &each;
    }
    if (next_place_ != nullptr) return next_place_->came + time_to_greet;
    next_other_ = next_other_ % (most - 1) + 1;
    next_place_ = &all_[next_other_];
    return (steady_clock::time_point::min)();
  }
  /// Advances the connections, except those that are put off. Returns the connection that both
  /// sides have agreed on, or null.
  ///
  /// If this side chooses, its choice is final only when the peer sends its offer as well, because
  /// the connection may belong to an earlier meeting that the peer has already ended. Such a
  /// connection fails, and this side chooses again.
  /// \errors the cause if another attempt would be useless
  [[nodiscard]] result<candidate*> advance(const endpoint& local,
                                           std::span<const std::byte> values) noexcept {
    for (std::size_t i = 0; i < most; ++i) {
      candidate& each = all_[i];
      if (!each.core || is_put_off(each)) continue;
      result<exchange_step> step = each.core->poll();
      if (step.has_value() && step.assume_value() == exchange_step::greeted &&
          (chosen_ == nullptr || each.core->lets_choose())) {
        std::ranges::copy(values, each.core->values().begin());
        each.core->set_mine(local, values.size());
        each.core->offer();
        chosen_ = &each;
        step = each.core->poll();
      }
      if (step.has_value() && step.assume_value() == exchange_step::offered) return &each;
      if (step.has_value()) continue;
      const error why = step.assume_error();
      if (chosen_ == &each) chosen_ = nullptr;
      each = {};
      // An accepted connection may come from any program, and fail for any reason. But if this
      // side's own connection shows that the requested peer does not fit, another attempt would be
      // useless.
      if (i == own && does_not_fit(why)) return why;
      if (i == own || does_not_fit(why)) note(why);
    }
    return nullptr;
  }
  /// Refuses all connections except the chosen one, if it is not null.
  void refuse_others_than(const candidate* chosen, const error& why) noexcept {
    for (candidate& each : all_) {
      if (&each == chosen || !each.core) continue;
      each.core->refuse(why);
      each = {};
    }
  }
  /// Stores the descriptor and the events of each connection that is not put off. Other entries
  /// stay unchanged.
  void add_to(std::span<pollfd> entries) const noexcept {
    for (std::size_t i = 0; i < most; ++i) {
      if (!all_[i].core || is_put_off(all_[i])) continue;
      entries[i].fd = all_[i].core->file_descriptor();
      entries[i].events = all_[i].core->events();
    }
  }
  /// Notes a failure that will be reported when the limit expires. It replaces the previous
  /// failure, unless the previous one shows that a peer did not fit.
  void note(const error& why) noexcept {
    if (!last_failure_ || !does_not_fit(*last_failure_)) last_failure_ = why;
  }
  [[nodiscard]] error at_limit() const noexcept {
    const error late = limit_.failure(meeting,
                                      "no exchange with the peer has been completed: start the "
                                      "peer, and check its host and port, or allow more time");
    if (!last_failure_) return late;
    std::array<char, longest_words> words{};
    const std::size_t size = std::min(last_failure_->format(words), words.size() - 1);
    return error_in_words(late.kind(), meeting, {words.data(), size});
  }

  static constexpr std::size_t most = 64;

 private:
  static constexpr std::size_t own = 0;  ///< the place of this side's own connection

  [[nodiscard]] static bool does_not_fit(const error& why) noexcept {
    return why == error_kind::mismatch || why == error_kind::permission;
  }
  /// True if this side has chosen a different connection, but may still choose this one later.
  [[nodiscard]] bool is_put_off(const candidate& each) const noexcept {
    return chosen_ != nullptr && chosen_ != &each && each.core->is_greeted();
  }
  result<void> add(candidate& place, tcp_socket socket) noexcept {
    exchange_setup setup = setup_;
    setup.file_descriptor = socket.descriptor();
    VERBSPP_TRY(core, exchange_core::create(setup, limit_));
    if (chosen_ == &place) chosen_ = nullptr;
    place = {std::move(socket), std::move(core), steady_clock::now()};
    return success();
  }

  exchange_setup setup_;
  const wait_limit& limit_;
  std::array<candidate, most> all_{};
  const candidate* chosen_ = nullptr;
  std::size_t next_other_ = 0;
  candidate* next_place_ = nullptr;
  std::optional<error> last_failure_{};
};

class search final : public peer_search {
 public:
  search(const tcp_listener& listener, const exchange_setup& setup,
         const wait_limit& limit) noexcept
      : listener_(listener), limit_(limit), candidates_(setup, limit_), watched_(limit_) {}

  [[nodiscard]] result<void> open(std::string_view host, std::string_view port,
                                  std::size_t largest_values) noexcept {
    const std::size_t size = host.size() + port.size() + largest_values;
    memory_ = owned<std::byte[]>(new (std::nothrow) std::byte[size]);
    if (!memory_) return error::from_errno(ENOMEM, meeting);
    const std::span<std::byte> all(memory_.get(), size);
    values_ = all.first(largest_values);
    host_ = kept(host, all.subspan(largest_values));
    port_ = kept(port, all.subspan(largest_values + host.size()));
    VERBSPP_TRYV(watched_.open());
    // An invalid host or port is reported immediately; other failures may be temporary.
    const result<void> started = new_attempt().start(host_, port_);
    if (!started.has_value()) {
      if (started.assume_error() == error_kind::invalid_input) return started.assume_error();
      attempt_.reset();
      candidates_.note(started.assume_error());
    }
    watch_all();
    return success();
  }

  std::span<std::byte> values() noexcept override { return values_; }
  void set_mine(const endpoint& local, std::size_t size_of_values) noexcept override {
    local_ = local;
    values_ = values_.first(size_of_values);
  }

  result<bool> poll() noexcept override {
    if (failure_) return *failure_;
    if (found_.core) return true;
    const result<bool> is_found = advance_all();
    if (is_found.has_error()) {
      failure_ = is_found.assume_error();
      candidates_.refuse_others_than(nullptr, *failure_);
    }
    if (is_found.has_value() && !is_found.assume_value()) watch_all();
    return is_found;
  }
  owned<exchange_core> take_exchange() noexcept override { return std::move(found_.core); }
  tcp_socket take_socket() noexcept override { return std::move(found_.socket); }

  [[nodiscard]] int file_descriptor() const noexcept override { return watched_.descriptor(); }
  void watch(short events) noexcept override {
    const pollfd entry{.fd = found_.socket.descriptor(), .events = events, .revents = 0};
    watched_.watch(std::span(&entry, 1));
  }
  result<void> wait() noexcept override {
    pollfd entry{.fd = watched_.descriptor(), .events = POLLIN, .revents = 0};
    VERBSPP_TRYV(wait_readable(std::span(&entry, 1), limit_));
    return success();
  }

 private:
  static std::string_view kept(std::string_view text, std::span<std::byte> in) noexcept {
    std::ranges::copy(std::as_bytes(std::span(text)), in.begin());
    return {reinterpret_cast<const char*>(in.data()), text.size()};
  }
  tcp_attempt& new_attempt() noexcept { return attempt_.emplace(limit_, time_to_connect); }

  result<bool> advance_all() noexcept {
    for (bool may_accept = true;; may_accept = false) {
      VERBSPP_TRY(chosen, candidates_.advance(local_, values_));
      if (chosen != nullptr) {
        candidates_.refuse_others_than(
            chosen, error(error_kind::busy, meeting, "another connection was chosen"));
        found_ = std::move(*chosen);
        attempt_.reset();
        return true;
      }
      if (limit_.has_passed()) return candidates_.at_limit();
      VERBSPP_TRY(is_new, may_accept ? accept_some() : result<bool>(false));
      if (!connect() && !is_new) return false;
    }
  }
  /// Accepts new connections. Called after the available bytes of earlier connections have been
  /// read. A failure that may be temporary does not end the meeting.
  /// \returns true if a connection was accepted
  result<bool> accept_some() noexcept {
    int accepted = 0;
    while (accepted < accepts_in_a_turn && steady_clock::now() >= next_accept()) {
      auto next = listener_.try_accept();
      if (next.has_error() && is_permanent(next.assume_error())) return next.assume_error();
      if (next.has_value() && !next.assume_value()) break;
      const result<void> added = next.has_value()
                                     ? candidates_.add_other(std::move(*next.assume_value()))
                                     : result<void>(next.assume_error());
      if (added.has_value()) {
        ++accepted;
        continue;
      }
      candidates_.note(added.assume_error());
      accepts_from_ = steady_clock::now() + between_accepts;
    }
    return accepted != 0;
  }
  [[nodiscard]] steady_clock::time_point next_accept() noexcept {
    return std::max(candidates_.next_room(), accepts_from_);
  }
  /// Returns true if this side has made a new connection of its own.
  bool connect() noexcept {
    if (candidates_.have_own() || (!attempt_ && steady_clock::now() < next_try_)) return false;
    result<std::optional<tcp_socket>> step = std::optional<tcp_socket>();
    if (!attempt_) {
      const result<void> started = new_attempt().start(host_, port_);
      if (!started.has_value()) step = started.assume_error();
    }
    if (step.has_value()) step = attempt_->advance();
    if (step.has_value() && !step.assume_value()) return false;
    attempt_.reset();
    next_try_ = steady_clock::now() + between_tries;
    const result<void> added = step.has_value()
                                   ? candidates_.add_own(*std::move(step).assume_value())
                                   : result<void>(step.assume_error());
    if (!added.has_value()) candidates_.note(added.assume_error());
    return added.has_value();
  }
  void watch_all() noexcept {
    std::array<pollfd, candidates::most + 2> entries{};
    for (pollfd& each : entries) each.fd = -1;
    candidates_.add_to(entries);
    auto until = (steady_clock::time_point::max)();
    if (const auto room = next_accept(); steady_clock::now() >= room)
      entries[candidates::most] = {.fd = listener_.descriptor(), .events = POLLIN, .revents = 0};
    else
      until = std::min(until, room);
    if (attempt_) {
      entries.back() = {
          .fd = attempt_->file_descriptor(), .events = attempt_->events(), .revents = 0};
      until = std::min(until, attempt_->deadline());
    } else if (!candidates_.have_own()) {
      until = std::min(until, next_try_);
    }
    watched_.watch(entries, until);
  }

  const tcp_listener& listener_;
  const wait_limit limit_;
  candidates candidates_;
  candidate found_{};
  std::optional<error> failure_{};
  std::optional<tcp_attempt> attempt_{};
  steady_clock::time_point next_try_{};
  steady_clock::time_point accepts_from_{};
  owned<std::byte[]> memory_{};  ///< holds the values, the host and the port
  std::span<std::byte> values_{};
  std::string_view host_{};
  std::string_view port_{};
  endpoint local_{};
  watched_descriptors watched_;
};

}  // namespace

result<owned<peer_search>> peer_search::create(const tcp_listener& listener, std::string_view host,
                                               std::string_view port, const exchange_setup& setup,
                                               const wait_limit& limit) noexcept {
  if (!listener.is_open())
    return error(error_kind::invalid_input, meeting,
                 "the listener is not open: open it with tcp_listener::open");
  VERBSPP_TRYV(exchange_core::check(setup.options));
  exchange_setup of_equals = setup;
  of_equals.is_of_equals = true;
  if (::getrandom(of_equals.party.data(), of_equals.party.size(), 0) != std::ssize(of_equals.party))
    return error::from_errno(errno, meeting);
  auto* const made = new (std::nothrow) search(listener, of_equals, limit);
  owned<peer_search> owner(made);
  if (made == nullptr) return error::from_errno(ENOMEM, meeting);
  VERBSPP_TRYV(made->open(host, port, setup.largest_mine));
  return owner;
}

}  // namespace verbspp::detail
