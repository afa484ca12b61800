// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "base/timer.hpp"
#include <verbspp/exchange/detail/acceptor_core.hpp>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>

namespace verbspp::detail {

namespace {

using std::chrono::steady_clock;

constexpr const char* serving = "exchange_acceptor";
// The epoll data of the descriptors that do not belong to clients.
constexpr std::uint32_t of_listener = 0xfffffffe;
constexpr std::uint32_t of_timer = 0xfffffffd;
/// The maximum number of clients that are accepted in one round, so that earlier clients are served
/// in between.
constexpr int accepts_in_a_round = 16;
/// The time until the next attempt to accept a client after an attempt has failed, usually because
/// no file descriptor was left.
constexpr auto pause_without_descriptors = std::chrono::milliseconds(100);

error stopping() noexcept {
  return {error_kind::cancelled, serving, "the acceptor was stopped or destroyed"};
}

}  // namespace

acceptor_core::~acceptor_core() = default;

result<void> acceptor_core::open(tcp_listener listener) noexcept {
  constexpr std::uint32_t most = 65536;
  if (options_.clients == 0 || options_.clients > most)
    return error::out_of_range(serving, "clients (1..65536)", options_.clients);
  if (options_.handshakes == 0)
    return error::out_of_range(serving, "handshakes (1 or more)", options_.handshakes);
  if (!listener.is_open())
    return error(error_kind::invalid_input, serving,
                 "the listener is not open: open it with tcp_listener::open");
  VERBSPP_TRYV(exchange_core::check(options_.exchange));
  clients_ = owned<client[]>(new (std::nothrow) client[options_.clients]);
  if (!clients_) return error::from_errno(ENOMEM, serving);
  events_ = tcp_socket::from_native(::epoll_create1(EPOLL_CLOEXEC));
  timer_ = tcp_socket::from_native(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!events_.is_open() || !timer_.is_open()) return error::from_errno(errno, serving);
  epoll_event timer{.events = EPOLLIN, .data = {.u32 = of_timer}};
  epoll_event accepts{.events = 0, .data = {.u32 = of_listener}};
  if (::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, timer_.descriptor(), &timer) != 0 ||
      ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, listener.descriptor(), &accepts) != 0)
    return error::from_errno(errno, serving);
  for (std::uint32_t place = 0; place < options_.clients; ++place) push(free_, place);
  listener_ = std::move(listener);
  watch_listener();
  return success();
}

result<void> acceptor_core::poll() noexcept {
  if (is_preparing_)
    return error(error_kind::busy, serving,
                 "poll was called from the function that prepares clients: call it only outside "
                 "that function");
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(events_.descriptor(), events.data(), events.size(), 0);
  if (count < 0 && errno != EINTR) return error::from_errno(errno, "epoll_wait");
  for (int i = 0; i < count; ++i) {
    const std::uint32_t place = events[static_cast<std::size_t>(i)].data.u32;
    if (place == of_listener || place == of_timer) continue;
    serve(place);
  }
  const std::uint32_t& oldest = under_way_list_.oldest;
  while (oldest != none && steady_clock::now() >= clients_.get()[oldest].core->deadline())
    fail_late(oldest);
  VERBSPP_TRYV(accept_some());
  while (shaking_hands_ < options_.handshakes && waiting_.first != none) {
    const std::uint32_t place = pop(waiting_);
    client& next = clients_.get()[place];
    is_preparing_ = true;
    const result<void> prepared = prepare(place, *next.core.get());
    is_preparing_ = false;
    if (is_stopped()) {
      stop();
      return success();
    }
    if (!prepared.has_value()) {
      fail(place, next.core->refuse(prepared.assume_error()));
      continue;
    }
    next.core->offer();
    next.state = client_state::shaking_hands;
    ++shaking_hands_;
    serve_step(place);
  }
  watch();
  return success();
}

void acceptor_core::watch() noexcept {
  watch_listener();
  set_timer();
}

result<void> acceptor_core::wait(const wait_limit& limit) noexcept {
  if (is_stopped())
    return error(error_kind::not_connected, serving,
                 "the acceptor was stopped, and all clients have been taken");
  pollfd entry{.fd = events_.descriptor(), .events = POLLIN, .revents = 0};
  VERBSPP_TRY(is_ready, wait_readable(std::span(&entry, 1), limit));
  if (!is_ready)
    return limit.failure(serving,
                         "no client is ready to be taken: check that clients connect to this "
                         "host and port, see last_failure(), or allow more time");
  return success();
}

std::optional<std::uint32_t> acceptor_core::next_done() noexcept {
  const std::uint32_t place = pop(done_);
  return place == none ? std::nullopt : std::optional(place);
}

tcp_socket acceptor_core::take_socket(std::uint32_t place) noexcept {
  return std::move(clients_.get()[place].socket);
}

void acceptor_core::free_place(std::uint32_t place) noexcept {
  client& old = clients_.get()[place];
  old.core = {};
  old.socket.close();
  old.state = client_state::free;
  push(free_, place);
}

void acceptor_core::stop() noexcept {
  if (listener_.is_open()) end_events(listener_.descriptor());
  listener_.close();
  // If the program's function stops the acceptor that is calling it, `poll` completes the stop.
  if (is_preparing_) return;
  const std::uint32_t& oldest = under_way_list_.oldest;
  while (oldest != none) {
    exchange_core& core = *clients_.get()[oldest].core.get();
    // A client that has received this side's last frame may have succeeded already, so its own last
    // frame is read if it has arrived. No other frame is read, because the answer could make the
    // client succeed.
    if (core.awaits_last_frame()) {
      const result<exchange_step> step = core.poll();
      if (step.has_value() && step.assume_value() == exchange_step::done) {
        finish(oldest);
        continue;
      }
    }
    fail(oldest, core.refuse(stopping()));
  }
}

void acceptor_core::push(place_queue& queue, std::uint32_t place) noexcept {
  clients_.get()[place].next = none;
  if (queue.last == none)
    queue.first = place;
  else
    clients_.get()[queue.last].next = place;
  queue.last = place;
}

std::uint32_t acceptor_core::pop(place_queue& queue) noexcept {
  const std::uint32_t place = queue.first;
  if (place == none) return none;
  queue.first = clients_.get()[place].next;
  if (queue.first == none) queue.last = none;
  return place;
}

/// Removes a place from anywhere in a queue. Used for clients that fail while they wait.
void acceptor_core::remove(place_queue& queue, std::uint32_t place) noexcept {
  place_queue others;
  for (std::uint32_t each = pop(queue); each != none; each = pop(queue))
    if (each != place) push(others, each);
  queue = others;
}

/// Appends a place to the list, as the newest one.
void acceptor_core::enter(age_list& list, std::uint32_t place) noexcept {
  const auto links_of = [&](std::uint32_t of) -> neighbours& {
    return clients_.get()[of].*list.links;
  };
  links_of(place) = {.before = list.newest, .behind = none};
  (list.newest == none ? list.oldest : links_of(list.newest).behind) = place;
  list.newest = place;
}

void acceptor_core::leave(age_list& list, std::uint32_t place) noexcept {
  const auto links_of = [&](std::uint32_t of) -> neighbours& {
    return clients_.get()[of].*list.links;
  };
  const neighbours leaving = links_of(place);
  (leaving.before == none ? list.oldest : links_of(leaving.before).behind) = leaving.behind;
  (leaving.behind == none ? list.newest : links_of(leaving.behind).before) = leaving.before;
}

/// Returns the time from which `make_room` can provide a place for the next client. This is the
/// minimum time point if a place is free now; otherwise, the end of `time_to_greet` (24 hours at
/// most) for the oldest client that has not introduced itself, or the maximum time point if there
/// is no such client.
steady_clock::time_point acceptor_core::next_place() const noexcept {
  if (free_.first != none) return (steady_clock::time_point::min)();
  if (speaking_list_.oldest == none) return (steady_clock::time_point::max)();
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24);
  return clients_.get()[speaking_list_.oldest].came + std::min(options_.time_to_greet, longest);
}

bool acceptor_core::may_accept() const noexcept {
  return listener_.is_open() && steady_clock::now() >= std::max(next_accept_, next_place());
}

/// If no place is free and a client waits to be accepted, drops clients that have not identified
/// themselves in time, until a place is free. Returns true if a place is free.
bool acceptor_core::make_room() noexcept {
  pollfd entry{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0};
  if (free_.first == none && ::poll(&entry, 1, 0) != 1) return false;
  while (free_.first == none && steady_clock::now() >= next_place()) {
    // The hello of this client may have arrived in the meantime.
    const std::uint32_t silent = speaking_list_.oldest;
    serve_step(silent);
    if (speaking_list_.oldest == silent && free_.first == none)
      fail(silent, clients_.get()[silent].core->refuse(
                       error(error_kind::busy, serving,
                             "the client did not identify itself in time, and another client needs "
                             "its place: see acceptor_options::time_to_greet")));
  }
  return free_.first != none;
}

result<void> acceptor_core::accept_some() noexcept {
  for (int i = 0; i < accepts_in_a_round && may_accept() && make_room(); ++i) {
    result<std::optional<tcp_socket>> accepted = listener_.try_accept();
    if (!accepted.has_value()) {
      // Usually, no descriptor was left. Accepting works again once others have been closed.
      note_failure(accepted.assume_error(), {});
      next_accept_ = steady_clock::now() + pause_without_descriptors;
      return success();
    }
    if (!accepted.assume_value()) return success();
    if (options_.accepts_per_second > 0) {
      // After a pause, a burst of clients is accepted without delay, up to one more than the
      // configured rate allows in a tenth of a second.
      const auto distance =
          std::chrono::nanoseconds(std::chrono::seconds(1)) / options_.accepts_per_second;
      next_accept_ =
          std::max(next_accept_, steady_clock::now() - std::chrono::milliseconds(100)) + distance;
    }
    take(std::move(*accepted.assume_value()));
  }
  return success();
}

void acceptor_core::take(tcp_socket socket) noexcept {
  exchange_setup setup = setup_;
  setup.file_descriptor = socket.descriptor();
  const result<gid> address = socket.peer_address();
  const gid peer = address.has_value() ? address.assume_value() : gid{};
  auto core = exchange_core::create(setup, options_.limit);
  if (!core.has_value()) return note_failure(core.assume_error(), peer);
  const std::uint32_t place = pop(free_);
  client& made = clients_.get()[place];
  made.core = std::move(core).assume_value();
  made.socket = std::move(socket);
  made.address = peer;
  made.state = client_state::speaking;
  made.watched = 0;
  made.came = steady_clock::now();
  enter(under_way_list_, place);
  enter(speaking_list_, place);
  ++under_way_;
  epoll_event event{.events = 0, .data = {.u32 = place}};
  if (::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, made.socket.descriptor(), &event) != 0)
    return fail(place, made.core->refuse(error::from_errno(errno, "epoll_ctl")));
  serve_step(place);
}

/// Processes an epoll event of a client.
void acceptor_core::serve(std::uint32_t place) noexcept {
  const client& served = clients_.get()[place];
  switch (served.state) {
    case client_state::free:
    case client_state::done:
      return;  // the exchange of this client has ended
    case client_state::waiting:
      // While a client waits for its turn, the acceptor watches only for the client's
      // disconnection.
      fail(place,
           served.core->refuse(error(error_kind::not_connected, serving,
                                     "the connection ended while the client waited for its turn")));
      return;
    case client_state::speaking:
    case client_state::shaking_hands:
      serve_step(place);
  }
}

void acceptor_core::serve_step(std::uint32_t place) noexcept {
  client& served = clients_.get()[place];
  for (;;) {
    const result<exchange_step> step = served.core->poll();
    if (!step.has_value()) return fail(place, step.assume_error());
    switch (step.assume_value()) {
      case exchange_step::waiting:
        return watch_client(place);
      case exchange_step::greeted:
        served.state = client_state::waiting;
        leave(speaking_list_, place);
        push(waiting_, place);
        return watch_client(place);
      case exchange_step::offered: {
        const result<void> connected = connect(place, *served.core.get());
        if (!connected.has_value())
          return fail(place, served.core->refuse(connected.assume_error()));
        served.core->set_connected();
        break;
      }
      case exchange_step::done:
        return finish(place);
    }
  }
}

void acceptor_core::finish(std::uint32_t place) noexcept {
  client& done = clients_.get()[place];
  end_events(done.socket.descriptor());
  leave(under_way_list_, place);
  --under_way_;
  --shaking_hands_;
  done.core = {};
  done.state = client_state::done;
  push(done_, place);
}

void acceptor_core::fail_late(std::uint32_t place) noexcept {
  const result<exchange_step> step = clients_.get()[place].core->poll();
  if (step.has_value() && step.assume_value() == exchange_step::done) return finish(place);
  fail(place, step.has_value() ? clients_.get()[place].core->refuse(
                                     error(error_kind::timed_out, serving,
                                           "the exchange with the client exceeded its time limit: "
                                           "see acceptor_options::limit"))
                               : step.assume_error());
}

void acceptor_core::fail(std::uint32_t place, const error& why) noexcept {
  client& failed = clients_.get()[place];
  note_failure(why, failed.address);
  leave(under_way_list_, place);
  --under_way_;
  if (failed.state == client_state::speaking) leave(speaking_list_, place);
  if (failed.state == client_state::shaking_hands) --shaking_hands_;
  if (failed.state == client_state::waiting) remove(waiting_, place);
  end_events(failed.socket.descriptor());
  drop(place);
  free_place(place);
}

void acceptor_core::note_failure(const error& why, const gid& address) noexcept {
  ++failed_;
  last_failure_ = why;
  last_failed_client_ = address;
}

void acceptor_core::watch_client(std::uint32_t place) noexcept {
  client& watched = clients_.get()[place];
  // The frames of a client that waits for its turn are read later, but its disconnection is noticed
  // immediately.
  std::uint32_t events = EPOLLRDHUP;
  if (watched.state != client_state::waiting)
    events = (watched.core->events() & POLLOUT) != 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events == watched.watched) return;
  epoll_event event{.events = events, .data = {.u32 = place}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_MOD, watched.socket.descriptor(), &event);
  watched.watched = events;
}

/// Stops the events of a socket. Closing the socket would not stop them if a child process has
/// inherited it.
void acceptor_core::end_events(int socket) noexcept {
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_DEL, socket, nullptr);
}

void acceptor_core::watch_listener() noexcept {
  const bool wanted = may_accept();
  if (!listener_.is_open() || wanted == listens_) return;
  epoll_event event{.events = wanted ? EPOLLIN : 0U, .data = {.u32 = of_listener}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_MOD, listener_.descriptor(), &event);
  listens_ = wanted;
}

/// Sets the timer to the next time at which there will be work even if no socket has an event.
void acceptor_core::set_timer() noexcept {
  auto next = (steady_clock::time_point::max)();
  if (under_way_list_.oldest != none)
    next = clients_.get()[under_way_list_.oldest].core->deadline();
  if (!listens_ && listener_.is_open()) next = std::min(next, std::max(next_accept_, next_place()));
  if (next == timer_set_to_) return;
  timer_set_to_ = next;
  detail::set_timer(timer_.descriptor(), next);
}

}  // namespace verbspp::detail
