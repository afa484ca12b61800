// SPDX-License-Identifier: Apache-2.0
/// \file
/// Receives of the soak.
#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

#include <type_traits>

namespace verbspp::soak {

template <class Poster>
void end::post_one_receive(Poster& to) {
  awaited one;
  const std::uint64_t chance = any(10);
  const auto put = [&](auto posted) {
    if (!posted.has_value()) {
      note_failure(posted.error(), "posting a receive");
      check_refused(posted.error(), "posting a receive");
      if (one.slot >= 0) give_slot(one.slot);
      return;
    }
    ++mine_.operations;
    ++counts_["receives"];
    one.handle = std::move(posted).assume_value();
    receives_.push_back(std::move(one));
  };
  one.parts = 1;
  if (chance == 0) {
    private_memory memory = take_owned(one.where);
    one.ranges[0] = {0, longest};
    auto posted = to.post_receive(std::move(memory));
    return put(std::move(posted));
  }
  if (chance == 1) {
    shared_memory memory = must(take_owned(one.where).share(), "share a buffer");
    one.ranges[0] = {0, longest};
    auto posted = to.post_receive(memory);
    one.shared.emplace(std::move(memory));
    return put(std::move(posted));
  }
  one.slot = take_slot();
  one.where = slots_[static_cast<std::size_t>(one.slot)];
  work shape;
  shape.where = one.where;
  split(shape, longest);
  one.ranges = shape.ranges;
  one.parts = shape.parts;
  std::vector<scatter_element> targets;
  for (std::size_t i = 0; i < one.parts; ++i)
    targets.push_back(must(arena_.scatter(static_cast<std::size_t>(one.where.data - arena_.data()) +
                                              one.ranges[i].offset,
                                          one.ranges[i].size),
                           "name a target"));
  put(to.post_receive({.elements = std::span<const scatter_element>(targets)}));
}

void end::post_receives(prepared_channel& to, std::uint64_t count) {
  doing_ = "posting receives before the handshake";
  for (; count != 0; --count) post_one_receive(to);
}

void end::post_receives() {
  doing_ = "posting receives";
  while (receives_.size() < credits && channel_.state() != channel_state::broken &&
         channel_.state() != channel_state::closed && channel_.state() != channel_state::empty)
    post_one_receive(channel_);
}

void end::arrived(const awaited& one, const completed_work& done) {
  const message_plan plan = plan_of(connection_, 1 - which_, taken_);
  const std::string which = "message " + std::to_string(taken_);
  claim(done.is_receive(), which + ": the completion does not belong to a receive");
  if (done.operation() == work_operation::receive_of_rdma_write) {
    claim(done.immediate() == immediate_data(static_cast<std::uint32_t>(plan.content)),
          which + ": a write has wrong immediate data");
    claim(one.where.is_untouched(),
          which + ": a write with immediate data changed the receive's memory");
    const place& block = mine_blocks_[plan.block];
    claim(block.holds(plan.content, 0, {0, block.size}),
          which + ": a write with immediate data has wrong bytes");
    return;
  }
  claim(done.byte_count() == plan.size, which + ": it has a wrong size");
  claim(plan.immediate ? done.immediate() == immediate_data(*plan.immediate)
                       : !done.immediate().has_value(),
        which + ": it has wrong immediate data");
  claim(one.where.is_as_filled({one.ranges.data(), one.parts}, plan.content, 0, plan.size),
        which + ": it has wrong bytes");
}

void end::take_receive(awaited& one, const transport_result<completed_work>& result) {
  if (result.has_value()) {
    arrived(one, result.assume_value());
    ++taken_;
  } else {
    note_failure(result.error(), "a receive");
    must_be_broken("a receive");
  }
  if (one.slot >= 0) give_slot(std::exchange(one.slot, -1));
}

void end::take_receives() {
  doing_ = "taking receives";
  while (!receives_.empty()) {
    awaited& one = receives_.front();
    const bool done = std::visit(
        [&](auto& handle) {
          using type = std::remove_cvref_t<decltype(handle)>;
          if constexpr (!std::is_same_v<type, std::monostate>) {
            auto polled = handle.poll();
            if (!polled) return false;
            if constexpr (std::is_same_v<type, pending<private_memory>>) {
              take_receive(one, polled->result);
              give_owned(std::move(polled->memory), one.where);
            } else {
              take_receive(one, *polled);
            }
          }
          return true;
        },
        one.handle);
    if (!done) break;
    receives_.pop_front();
  }
  post_receives();
  // The number of received messages is published only after new receives have replaced the
  // completed ones.
  mine_.taken = taken_;
}

/// Called after the connection has ended. Takes the results of the receives, or drops the handles
/// to them.
void end::drop_receives(bool asks) {
  while (!receives_.empty()) {
    awaited one = std::move(receives_.front());
    receives_.pop_front();
    std::visit(
        [&](auto& handle) {
          using type = std::remove_cvref_t<decltype(handle)>;
          if (!asks) {
            {
              [[maybe_unused]] const type gone(std::move(handle));
            }
            if (one.slot >= 0) give_slot(one.slot);
            return;
          }
          if constexpr (std::is_same_v<type, std::monostate>) {
            return;
          } else if constexpr (std::is_same_v<type, pending<private_memory>>) {
            auto done = handle.wait();
            take_receive(one, done.result);
            give_owned(std::move(done.memory), one.where);
          } else {
            take_receive(one, handle.wait());
          }
        },
        one.handle);
  }
}

}  // namespace verbspp::soak
