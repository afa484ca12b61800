// SPDX-License-Identifier: Apache-2.0
/// \file
/// The course of a connection: the ends prepare, connect, exchange random requests, leave in an
/// orderly way unless the connection breaks, and check the memory.
#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace verbspp::soak {

namespace {

void copy_text(std::span<char> to, const std::string& text) {
  const std::size_t size = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), size);
  to[size] = '\0';
}

}  // namespace

template <class Builder>
result<prepared_channel> end::build(const Builder& start) {
  const wait_mode mode = once_in(2)   ? wait_mode::spin()
                         : once_in(2) ? wait_mode::sleep()
                                      : wait_mode::spin_then_sleep(20us);
  const auto usual = start.access(exposed_rights)
                         .max_receive_work_requests(32)
                         .max_send_elements(4)
                         .max_receive_elements(4)
                         .max_inline_data(inline_limit)
                         .default_limit(wanted_.patience)
                         .waiting(mode);
  const std::uint64_t chance = any(3);
  return chance == 0   ? usual.max_send_work_requests(4).build()
         : chance == 1 ? usual.max_send_work_requests(64).build()
                       : usual.build();
}

prepared_channel end::build() {
  has_uc_ = wants_uc_;
  const ack_timeout timeout = must(ack_timeout::from(wanted_.ack_timeout), "parse the ACK timeout");
  for (;;) {
    auto built = has_uc_ ? build(domain_.build_channel<transport::uc>())
                         : build(domain_.build_channel().ack_timeout(timeout));
    if (!wanted_.faults || built.has_value()) return must(std::move(built), "build a channel");
    note_failure(built.error(), "building");
    check_failed();
  }
}

void end::prepare() {
  doing_ = "preparing";
  ++connection_;
  // UC does not retransmit lost messages, so the soak doesn't use it when faults are injected.
  wants_uc_ = !wanted_.faults && connection_ % 6 == 2;
  for (const place& each : mine_blocks_)
    claim(each.is_untouched(),
          "bytes landed in memory that peers accessed in an earlier connection");
  for (const place& each : gaps_) claim(each.is_untouched(), "bytes landed outside a block");
  for (std::size_t i = 0; i < words_size; ++i)
    claim(exposed_[i] == std::byte{0xa5}, "an atomic landed after the connection ended");
  for (unsigned i = 0; i < blocks; ++i) {
    std::memcpy(mine_blocks_[i].data,
                bytes_of(first_content(connection_, which_, i), 0, block_sizes[i]).data(),
                block_sizes[i]);
    content_[i] = first_content(connection_, 1 - which_, i);
  }
  std::memset(exposed_.data(), 0, words_size);
  busy_ = {};
  readers_ = {};
  sent_ = taken_ = sum_ = added_ = swapped_ = 0;
  mine_.taken = 0;
  mine_.sent = 0;
  mine_.lease = 0;
  mine_.using_lease = 0;
  mine_.gave_back = 0;
  mine_.added = 0;
  mine_.added_most = 0;
  why_.clear();
  peer_was_killed_ = false;
  until_end_ = 1 + any(400);
}

void end::connect() {
  doing_ = "connecting";
  endpoint local;
  std::optional<prepared_channel> prepared;
  if (channel_.state() != channel_state::empty && has_uc_ == wants_uc_ && !once_in(4)) {
    auto renewed = channel_.renew();
    while (wanted_.faults && !renewed.has_value()) {
      note_failure(renewed.error(), "renewing");
      check_failed();
      renewed = channel_.renew();
    }
    local = must(renewed, "renew the channel");
    post_receives();
    ++counts_["channels renewed"];
  } else {
    channel_ = channel();
    prepared.emplace(build());
    local = prepared->endpoint();
    ++counts_[has_uc_ ? "UC channels built" : "channels built"];
    post_receives(*prepared, any(credits));
  }
  mine_.endpoint = local.encode();
  mine_.memory = must(exposed_.remote(), "name the memory exposed to peers").encode();
  reach(step::ready);
  await(step::ready);
  far_.emplace(must(peer_memory::decode(other_.memory), "read the peer's memory"));
  const endpoint remote = must(endpoint::decode(other_.endpoint), "read the peer's endpoint");
  if (prepared) {
    auto done = std::move(*prepared).handshake(remote);
    if (!done.has_value()) note_failure(done.error(), "the handshake");
    if (done.has_value() || !wanted_.faults) channel_ = must(std::move(done), "do the handshake");
  } else {
    const auto done = channel_.handshake(remote);
    if (!done.has_value()) note_failure(done.error(), "the handshake after a renewal");
    if (!wanted_.faults) must(done, "do the handshake after a renewal");
  }
  post_receives();
  reach(step::connected);
  await(step::connected);
}

void end::traffic() {
  while (channel_.is_connected() && until_end_ != 0) {
    step_at_random();
    --until_end_;
    if (other_.reached.load() >= connection_ * 8 + static_cast<std::uint64_t>(step::leaving) &&
        once_in(8))
      until_end_ = 0;
    if (peer_has_given_up() && once_in(8)) return;
  }
  if (channel_.is_connected() && !once_in(3)) give_up_at_random();
  if (granted_ && channel_.is_connected() && other_.using_lease.load() == 0 && once_in(2)) {
    mine_.lease = 0;
    granted_->is_closing = true;
  }
  if (channel_.is_connected() && mine_.ended.load() != connection_) take_leave();
}

void end::step_at_random() {
  check_failed();
  take_receives();
  take_some();
  look_after_shared();
  if (!channel_.is_connected()) return;
  const std::uint64_t chance = any(100);
  if (chance < 45)
    post_one();
  else if (chance < 60)
    block();
  else if (chance < 70)
    use_scope(0);
  else if (chance < 78)
    use_stream();
  else if (chance < 86)
    post_owned();
  else if (chance < 94)
    post_shared();
  else if (chance < 95)
    use_passed_limit();
  else if (chance < 96)
    misuse();
  else if (chance < 98)
    use_lease();
  else if (chance < 99)
    look_after_lease();
  else
    channel_.poll();
}

/// Leaves a connection in an orderly way. Unless the connection ends early, all messages must
/// arrive.
void end::take_leave() {
  doing_ = "leaving in order";
  while (!held_.empty()) {
    take_receives();
    take(held_.back(), true);
    held_.pop_back();
  }
  const auto until = clock::now() + wanted_.patience;
  while (!left_alone_.empty()) {
    check_failed();
    if (clock::now() > until) return note_standstill();
    take_receives();
    channel_.poll();
    look_after_shared();
  }
  mine_.sent = sent_;
  reach(step::leaving);
  const auto deadline = clock::now() + patience_with_other();
  const auto is_there = [&](step what) {
    return other_.reached.load() >= connection_ * 8 + static_cast<std::uint64_t>(what);
  };
  const auto meet = [&](step what, auto done) {
    while (channel_.is_connected() && !peer_has_given_up() && !(is_there(what) && done())) {
      check_failed();
      take_receives();
      doing_ = "leaving in order";
      if (clock::now() > deadline) claim(false, "the other end does not leave; " + of_other());
      // steady: this pause is not critical, because the loop polls until its deadline
      std::this_thread::sleep_for(20us);
    }
  };
  meet(step::leaving, [&] { return taken_ >= other_.sent.load(); });
  reach(step::drained);
  meet(step::drained, [] { return true; });
  channel_.poll();
  if (!channel_.is_connected() || peer_has_given_up()) return;
  doing_ = "checking at the end";
  claim(taken_ == other_.sent.load(), "more messages arrived than were sent");
  const std::uint32_t outstanding = channel_.outstanding();
  claim(outstanding == receives_.size(), "there are " + std::to_string(outstanding) +
                                             " outstanding requests instead of " +
                                             std::to_string(receives_.size()) + " receives");
  claim(!channel_.failure(), "a connected channel reports a failure");
  judge(true);
  will_end("leaving in order");
}

void end::finish() {
  doing_ = "finishing";
  mine_.broken = connection_;
  const auto failure = channel_.failure();
  if (failure && why_.empty()) why_ = failure->message();
  const auto settle_held = [&] {
    while (!held_.empty()) {
      held one = std::move(held_.back());
      held_.pop_back();
      if (one.job.slot >= 0 && late_.size() < 8 && once_in(4))
        late_.push_back(std::move(one));
      else if (once_in(3))
        drop(one);
      else
        claim(take(one, once_in(2) || channel_.outstanding() != 0),
              "a request is in flight although its connection has ended");
    }
  };
  // Polls until all flushed requests have been collected.
  const auto drain = [&] {
    const auto deadline = clock::now() + wanted_.patience;
    while (channel_.outstanding() != 0) {
      claim(clock::now() < deadline, "a broken channel has requests that never finish");
      channel_.poll();
    }
  };
  const bool asks = once_in(2);
  const bool settles_before = once_in(2);
  // The channel is closed first, because the receives of a connected channel would never complete.
  if (channel_.is_connected()) must(channel_.close(), "close");
  if (once_in(2)) drain();
  if (settles_before) {
    settle_held();
    drop_receives(asks);
  }
  switch (any(3)) {
    case 0:
      doing_ = "closing";
      must(channel_.close(), "close");
      claim(channel_.outstanding() == 0, "a closed channel has outstanding requests");
      claim(channel_.state() == channel_state::closed || channel_.state() == channel_state::empty,
            "a closed channel reports another state");
      break;
    case 1:
      doing_ = "destroying the channel";
      channel_ = channel();
      break;
    default:
      drain();
      break;
  }
  doing_ = "finishing";
  settle_held();
  drop_receives(asks);
  look_after_shared();
  // The lease has ended together with its connection, but the handle to it may still exist.
  mine_.lease = 0;
  if (granted_) {
    claim(granted_->where.data != nullptr, "a lease without memory");
    if (once_in(2)) granted_->where.fill();
    end_lease();
  }
  claim(left_alone_.empty(), "requests of an ended connection still keep memory");
  claim(free_.size() + late_.size() == slot_count, "memory is missing after the connection ended");
  judge(false);
  take_memory_back();
  copy_text(mine_.why, why_);
  ++counts_["connections"];
  // Both ends stop as soon as one of them wants to.
  if (board_.is_over.load() ||
      mine_.operations.load() + other_.operations.load() >= wanted_.operations)
    mine_.wants_to_stop = true;
  reach(step::closed);
  await(step::closed);
  const bool is_explained =
      mine_.ended.load() >= connection_ || other_.ended.load() >= connection_ || wanted_.faults;
  if (!is_explained)
    throw wrong("connection " + std::to_string(connection_) +
                " broke without a reason from either end; this one reports \"" + why_ +
                "\", the other \"" + other_.why.data() + '"');
}

/// Checks the word to which the peer adds. The peer publishes only a lower and an upper bound for
/// the sum of its additions.
void end::judge(bool was_orderly) {
  if (peer_was_killed_) return;
  std::uint64_t word = 0;
  std::memcpy(&word, exposed_.data(), sizeof(word));
  const std::uint64_t least = other_.added.load();
  const std::uint64_t most = other_.added_most.load();
  claim(least <= word && word <= most && (!was_orderly || word == most),
        "the word is " + std::to_string(word) + ", but the peer has added at least " +
            std::to_string(least) + " and at most " + std::to_string(most));
}

}  // namespace verbspp::soak
