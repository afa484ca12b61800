// SPDX-License-Identifier: Apache-2.0
#include "base/timer.hpp"
#include "ranks/barrier_state.hpp"
#include <verbspp/ranks/barrier_session.hpp>

#include <sys/timerfd.h>

#include <cerrno>
#include <new>
#include <thread>
#include <utility>

namespace verbspp {

namespace {

constexpr const char* starting = "start a barrier of a world";

[[nodiscard]] error is_empty() noexcept {
  return {error_kind::invalid_input, "barrier_session",
          "this session was moved from, or has already returned its results"};
}

}  // namespace

result<detail::owned<barrier_session::state>> barrier_session::state::begin(
    detail::signals& of, group& peers, state*& place, const peer_list& ranks, barrier_kind kind,
    const wait_limit& limit) noexcept {
  if (const auto objects = of.objection(ranks)) return *objects;
  detail::owned<state> made(new (std::nothrow) state(ranks));
  if (!made || !made->ranks_.exists()) return error::from_errno(ENOMEM, starting);
  made->timer_ =
      tcp_socket::from_native(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (made->timer() < 0) return error::from_errno(errno, starting);
  made->run_.emplace(of, peers, made->ranks_.list(), kind, limit, detail::signals::blocks::no);
  made->place_ = &place;
  place = made.get();
  // Sends this rank's first signals now, if the ranks are connected already.
  static_cast<void>(made->advance());
  return made;
}

bool barrier_session::state::advance() noexcept {
  if (results_) return true;
  is_set_ = false;
  if (!run_->advance()) return false;
  results_.emplace(run_->results());
  leave();
  return true;
}

void barrier_session::state::leave() noexcept {
  run_.reset();
  if (place_ != nullptr) *std::exchange(place_, nullptr) = nullptr;
}

void barrier_session::state::end_with_world() noexcept {
  leave();
  results_.emplace(error(error_kind::cancelled, "barrier of a world",
                         "the world was destroyed before the barrier ended"));
}

bool barrier_session::state::set_timer() noexcept {
  if (results_) return true;
  if (!std::exchange(is_set_, true)) detail::set_timer(timer(), run_->next_look());
  return false;
}

barrier_session::barrier_session(detail::owned<state> begun) noexcept : state_(std::move(begun)) {}
barrier_session::barrier_session(barrier_session&& other) noexcept = default;
barrier_session& barrier_session::operator=(barrier_session&& other) noexcept = default;
barrier_session::~barrier_session() = default;

result<bool> barrier_session::poll() noexcept {
  if (!state_) return is_empty();
  return state_->advance();
}

group_results barrier_session::finish() && noexcept {
  if (!state_) return is_empty();
  if (!state_->advance())
    return error(error_kind::busy, "barrier_session::finish",
                 "the barrier is still in progress: call poll until it returns true");
  const detail::owned<state> ended = std::move(state_);
  return ended->take_results();
}

group_results barrier_session::run() && noexcept {
  while (state_ && !state_->advance()) std::this_thread::sleep_for(detail::time_between_polls);
  return std::move(*this).finish();
}

int barrier_session::file_descriptor() const noexcept { return state_ ? state_->timer() : -1; }

result<bool> barrier_session::request_notification() noexcept {
  if (!state_) return is_empty();
  return state_->set_timer();
}

}  // namespace verbspp
