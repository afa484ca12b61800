// SPDX-License-Identifier: Apache-2.0
/// \file
/// The main loop of an end, the steps at which it waits for the other end, and the handling of
/// failures.
#include "end.hpp"

#include "layout.hpp"
#include "outcome.hpp"

#include <chrono>
#include <thread>

namespace verbspp::soak {

end::end(const options& wanted, board& shared, unsigned which, std::function<void()> kill_peer,
         std::function<void()> revive_peer)
    : wanted_(wanted),
      board_(shared),
      mine_(shared.ends[which]),
      other_(shared.ends[1 - which]),
      doing_(mine_.doing),
      which_(which),
      is_rxe_(wanted.device.starts_with("rxe")),
      kill_peer_(std::move(kill_peer)),
      revive_peer_(std::move(revive_peer)),
      random_(mix(wanted.seed, which)),
      context_(must(open_device(wanted.device), "open the device")),
      domain_(must(protection_domain::allocate(context_), "allocate a protection domain")),
      arena_(must(private_memory::allocate(domain_, slot_count * longest), "allocate the arena")),
      exposed_(must(exposed_memory::allocate(domain_, exposed_size),
                    "allocate the memory exposed to peers")) {
  for (std::size_t i = 0; i < slot_count; ++i) {
    slots_.push_back({arena_.data() + i * longest, longest, mix(wanted.seed, which, i)});
    slots_.back().fill();
    free_.push_back(static_cast<int>(i));
  }
  std::byte* at = exposed_.data() + words_size;
  for (unsigned i = 0; i < blocks; ++i) {
    gaps_[i] = {at, gap_size, mix(which, i, 5)};
    at += gap_size;
    mine_blocks_[i] = {at, block_sizes[i], mix(which, i, 6)};
    at += (block_sizes[i] + 7) / 8 * 8;
  }
  gaps_[blocks] = {at, gap_size, mix(which, 7)};
  for (place& each : gaps_) each.fill();
  take_memory_back();
}

void end::run(std::uint64_t first_connection) {
  connection_ = first_connection - 1;
  for (;;) {
    prepare();
    connect();
    traffic();
    finish();
    if (mine_.wants_to_stop.load() || other_.wants_to_stop.load()) break;
    if (peer_was_killed_) {
      doing_ = "restarting the peer";
      revive_peer_();
    }
  }
  doing_ = "ending";
  take_late(true);
  channel_ = channel();
  claim(limits_.too_late().empty() || wanted_.faults, limits_.too_late());
}

void end::claim(bool holds, const std::string& what) const {
  if (holds) return;
  throw wrong("connection " + std::to_string(connection_) + ", " + doing_.text() + ": " + what);
}

void end::check_failed() const {
  if (board_.failed.load()) throw stopped();
}

void end::reach(step what) {
  mine_.reached.store(connection_ * 8 + static_cast<std::uint64_t>(what));
}

void end::await(step what) {
  const auto deadline = clock::now() + patience_with_other();
  const std::uint64_t wanted = connection_ * 8 + static_cast<std::uint64_t>(what);
  while (other_.reached.load() < wanted) {
    check_failed();
    if (clock::now() > deadline)
      claim(false, "the other end does not reach step " +
                       std::to_string(static_cast<unsigned>(what)) + "; " + of_other());
    // steady: this pause is not critical, because the loop polls until its deadline
    std::this_thread::sleep_for(20us);
  }
}

std::string end::of_other() const {
  const std::uint64_t reached = other_.reached.load();
  return "it is at step " + std::to_string(reached % 8) + " of connection " +
         std::to_string(reached / 8) + ", " + other_.doing.text();
}

bool end::peer_has_given_up() const {
  return other_.ended.load() >= connection_ || other_.broken.load() >= connection_;
}

void end::will_end(const char* how) {
  ++counts_[std::string("ended: ") + how];
  doing_ = how;
  mine_.ended = connection_;
}

void end::note_failure(const error& cause, const char* where) {
  const std::string text = cause.message();
  claim(!text.empty(), std::string(where) + ": an error without a message");
  claim(cause.kind() <= error_kind::driver, std::string(where) + ": an error with an invalid kind");
  if (++counts_[std::string("failures: ") + to_string(cause.kind())] == 1)
    first_failures_ += std::string(to_string(cause.kind())) + ", " + where + ": " + text + '\n';
  if (why_.empty()) why_ = std::string(where) + ": " + text;
  if (is_rxe_ && cause.kind() == error_kind::timed_out && mine_.ended.load() < connection_)
    note_standstill();
}

void end::note_standstill() {
  claim(is_rxe_ && ++counts_["requests that the driver never finished"] == 1,
        "a request never finishes");
  will_end("a request that the driver never finished");
}

/// Called when a request or a call has failed. Checks that the channel is broken, closed or empty,
/// and that it reports the cause unless it is empty.
void end::must_be_broken(const char* where) const {
  const channel_state now = channel_.state();
  claim(now != channel_state::connected && now != channel_state::prepared,
        std::string(where) + " failed, but the channel's state is " + to_string(now));
  if (now == channel_state::empty) return;
  const auto failure = channel_.failure();
  claim(failure.has_value(), std::string(where) + " failed, but the channel reports no reason");
  claim(!failure->message().empty() && !failure->root().message().empty(),
        "a broken channel with an empty message");
}

/// Checks the error of a call. The error is permitted if it is `would_block`, if faults are
/// injected, or if the channel is no longer connected.
void end::check_refused(const error& cause, const char* where) const {
  if (cause.kind() == error_kind::would_block) return;
  if (wanted_.faults && channel_.is_connected()) return;
  must_be_broken(where);
}

wait_limit end::patient_limit() {
  const peer_token token{&other_, connection_};
  switch (any(16)) {
    case 0:
      return wait_limit(wanted_.patience);
    case 1:
      return wait_limit(clock::now() + wanted_.patience);
    case 2:
      if (is_rxe_) return wait_limit(wanted_.patience);
      return wait_limit::forever();
    case 3:
    case 4:
    case 5:
      return wait_limit(token);
    default:
      return wait_limit(wanted_.patience, token);
  }
}

}  // namespace verbspp::soak
