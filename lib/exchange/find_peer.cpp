// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "exchange/words.hpp"
#include <verbspp/exchange/detail/find_peer.hpp>

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>

namespace verbspp::detail {

namespace {

using std::chrono::steady_clock;

constexpr const char* meeting = "meet a peer";
constexpr int accepts_in_a_turn = 16;
constexpr auto between_tries = std::chrono::milliseconds(50);
/// How long the peer's own connections wait while this side tries to connect.
constexpr auto time_to_connect = std::chrono::milliseconds(200);

/// The requests to stop of another limit.
struct stop_of {
  const wait_limit* limit;
  [[nodiscard]] bool stop_requested() const noexcept { return limit->stop_requested(); }
};

/// The connections that may become the one.
class candidates {
 public:
  explicit candidates(const exchange_setup& setup, const wait_limit& limit) noexcept
      : setup_(setup), limit_(limit) {}

  [[nodiscard]] bool have_own() const noexcept { return static_cast<bool>(all_[own].core); }
  [[nodiscard]] result<void> add_own(tcp_socket socket) noexcept {
    return add(all_[own], std::move(socket));
  }
  /// One that connected. Where there are too many, the oldest makes room: strangers that say
  /// nothing do not keep the peer out.
  [[nodiscard]] result<void> add_other(tcp_socket socket) noexcept {
    next_other_ = next_other_ % (most - 1) + 1;
    if (all_[next_other_].core)
      all_[next_other_].core->refuse(
          error(error_kind::busy, meeting, "too many others connected since"));
    return add(all_[next_other_], std::move(socket));
  }
  /// Lets each go on; the one that is agreed on, if it is.
  ///
  /// The side that chooses has not got its wish before the peer offers, too: the connection may be
  /// one of an earlier meeting, of which the peer knows nothing any more. Then it chooses again.
  /// \errors what makes it useless to try again
  [[nodiscard]] result<found_peer*> advance(const peer_offer& offer) noexcept {
    for (std::size_t i = 0; i < most; ++i) {
      found_peer& each = all_[i];
      if (!each.core || is_put_off(each)) continue;
      result<exchange_step> step = each.core->advance();
      if (step.has_value() && step.assume_value() == exchange_step::greeted &&
          (chosen_ == nullptr || each.core->lets_choose())) {
        offer(*each.core.get());
        each.core->offer();
        chosen_ = &each;
        step = each.core->advance();
      }
      if (step.has_value() && step.assume_value() == exchange_step::offered) return &each;
      if (step.has_value()) continue;
      const error why = step.assume_error();
      if (chosen_ == &each) chosen_ = nullptr;
      each = {};
      // A stranger may be refused for whatever reason; the peer that was asked for may not.
      if (i == own && does_not_fit(why)) return why;
      if (i == own || does_not_fit(why)) note(why);
    }
    return nullptr;
  }
  void refuse_others_than(const found_peer* chosen) noexcept {
    for (found_peer& each : all_)
      if (&each != chosen && each.core)
        each.core->refuse(
            error(error_kind::busy, meeting, "another connection of the two is used"));
  }
  [[nodiscard]] result<void> wait(int listener, steady_clock::time_point until) noexcept {
    std::array<pollfd, most + 1> entries{};
    entries[most] = {.fd = listener, .events = POLLIN, .revents = 0};
    for (std::size_t i = 0; i < most; ++i) {
      const bool is_there = all_[i].core && !is_put_off(all_[i]);
      entries[i].fd = is_there ? all_[i].core->file_descriptor() : -1;
      if (is_there) entries[i].events = all_[i].core->events();
    }
    VERBSPP_TRYV(wait_readable(entries, std::min(until, limit_.sleep_until())));
    return success();
  }
  /// What to say at the limit: best that somebody came who did not fit.
  void note(const error& why) noexcept {
    if (!last_failure_ || !does_not_fit(*last_failure_)) last_failure_ = why;
  }
  [[nodiscard]] error at_limit() const noexcept {
    const error late = limit_.failure(meeting, "the peer has not come, and could not be reached");
    if (!last_failure_) return late;
    std::array<char, longest_words> words{};
    const std::size_t size = std::min(last_failure_->format(words), words.size() - 1);
    return error_in_words(late.kind(), meeting, {words.data(), size});
  }

 private:
  static constexpr std::size_t most = 8;
  static constexpr std::size_t own = 0;  ///< the place of the one that this side made

  [[nodiscard]] static bool does_not_fit(const error& why) noexcept {
    return why == error_kind::mismatch || why == error_kind::permission;
  }
  /// One that this side may still choose, while it has chosen another.
  [[nodiscard]] bool is_put_off(const found_peer& each) const noexcept {
    return chosen_ != nullptr && chosen_ != &each && each.core->is_greeted();
  }
  result<void> add(found_peer& place, tcp_socket socket) noexcept {
    exchange_setup setup = setup_;
    setup.file_descriptor = socket.descriptor();
    VERBSPP_TRY(core, exchange_core::create(setup, limit_));
    if (chosen_ == &place) chosen_ = nullptr;
    place = {std::move(socket), std::move(core)};
    return success();
  }

  const exchange_setup& setup_;
  const wait_limit& limit_;
  std::array<found_peer, most> all_{};
  const found_peer* chosen_ = nullptr;
  std::size_t next_other_ = 0;
  std::optional<error> last_failure_{};
};

}  // namespace

result<found_peer> find_peer(const tcp_listener& listener, std::string_view host,
                             std::string_view port, const exchange_setup& setup,
                             const peer_offer& offer, const wait_limit& limit) noexcept {
  if (!listener.is_open())
    return error(error_kind::invalid_input, meeting, "the listener is not open");
  exchange_setup of_equals = setup;
  of_equals.is_of_equals = true;
  if (::getrandom(of_equals.party.data(), of_equals.party.size(), 0) != std::ssize(of_equals.party))
    return error::from_errno(errno, meeting);
  candidates all(of_equals, limit);
  steady_clock::time_point next_try{};
  for (;;) {
    for (int i = 0; i < accepts_in_a_turn; ++i) {
      VERBSPP_TRY(accepted, listener.try_accept());
      if (!accepted) break;
      VERBSPP_TRYV(all.add_other(std::move(*accepted)));
    }
    VERBSPP_TRY(chosen, all.advance(offer));
    if (chosen != nullptr) {
      all.refuse_others_than(chosen);
      return std::move(*chosen);
    }
    if (limit.has_passed()) return all.at_limit();
    if (!all.have_own() && steady_clock::now() >= next_try) {
      const auto until = std::min(limit.deadline(), steady_clock::now() + time_to_connect);
      result<tcp_socket> connected =
          tcp_socket::connect(host, port, wait_limit(until, stop_of{&limit}));
      next_try = steady_clock::now() + between_tries;
      if (connected.has_value()) {
        VERBSPP_TRYV(all.add_own(std::move(connected).assume_value()));
        continue;
      }
      if (connected.assume_error() == error_kind::invalid_input) return connected.assume_error();
      all.note(connected.assume_error());
    }
    VERBSPP_TRYV(all.wait(listener.descriptor(),
                          all.have_own() ? (steady_clock::time_point::max)() : next_try));
  }
}

}  // namespace verbspp::detail
