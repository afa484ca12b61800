// SPDX-License-Identifier: Apache-2.0
/// \file
/// Requests made by blocking calls, and requests made with handles.
#include "operations.hpp"

#include <type_traits>

namespace verbspp::soak {

void end::block() {
  doing_ = "a blocking call";
  work job;
  if (!choose(job, true)) return;
  const wait_limit limit = patient_limit();
  const auto done =
      with_operation(job, [&](const auto& what) { return call(channel_, what, limit); });
  if (done.has_value()) {
    count_posted(job);
    if (job.what == kind::read)
      claim(done.assume_value().byte_count() == job.size, "a read with a wrong size");
    return settle(job, true);
  }
  note_failure(done.error(), "a blocking call");
  // If the peer gives up before the call has posted anything, the call is cancelled without
  // posting.
  if (channel_.is_connected() && peer_has_given_up() &&
      error(done.error()).kind() == error_kind::cancelled)
    return undo(job);
  if (wanted_.faults && channel_.is_connected()) return undo(job);
  must_be_broken("a blocking call");
  settle(job, false);
}

bool end::take_finished(held& one, const transport_result<completed_work>& result) {
  if (result.has_value()) {
    if (one.job.what == kind::read)
      claim(result.assume_value().byte_count() == one.job.size, "a read with a wrong size");
    settle(one.job, true);
    return true;
  }
  note_failure(result.error(), "a handle");
  must_be_broken("a request with a handle");
  settle(one.job, false);
  return true;
}

bool end::take(held& one, bool waits) {
  doing_ = waits ? "waiting for a handle" : "polling a handle";
  return std::visit(
      [&](auto& handle) {
        using type = std::remove_cvref_t<decltype(handle)>;
        if constexpr (std::is_same_v<type, pending<private_memory>> ||
                      std::is_same_v<type, pending<private_part>>) {
          const auto finish = [&](auto done) {
            take_finished(one, done.result);
            if constexpr (std::is_same_v<type, pending<private_memory>>)
              give_owned(std::move(done.memory), one.job.where);
            else
              give_owned(std::move(done.memory).buffer(), one.job.where);
          };
          if (waits) {
            finish(handle.wait(patient_limit()));
            return true;
          }
          auto polled = handle.poll();
          if (!polled) return false;
          finish(std::move(*polled));
          return true;
        } else {
          if (waits) return take_finished(one, handle.wait(patient_limit()));
          const auto polled = handle.poll();
          return polled.has_value() && take_finished(one, *polled);
        }
      },
      one.handle);
}

/// Drops the handle to a request. After that, borrowed memory belongs to the program again, owned
/// memory has been destroyed, and shared memory is left to the request.
void end::drop(held& one) {
  doing_ = "dropping a handle";
  const bool was_shared = one.shared.has_value();
  const bool was_owned = std::visit(
      [&](auto& handle) {
        using type = std::remove_cvref_t<decltype(handle)>;
        const type gone(std::move(handle));
        return !std::is_same_v<type, pending<>> && !std::is_same_v<type, kept_pending>;
      },
      one.handle);
  if (was_shared) {
    left_alone_.push_back({one.job, std::move(*one.shared)});
    one.shared.reset();
    return;
  }
  if (was_owned) {  // the request's memory was destroyed with the handle
    if (one.job.what == kind::read) --readers_[one.job.block];
    return;
  }
  settle(one.job, channel_.is_connected());
}

void end::look_after_shared() {
  for (std::size_t i = 0; i < left_alone_.size();) {
    left_alone& each = left_alone_[i];
    if (!each.memory.is_only()) {
      ++i;
      continue;
    }
    settle(each.job, channel_.is_connected());
    left_alone_[i] = std::move(left_alone_.back());
    left_alone_.pop_back();
  }
}

/// Takes results through handles that outlived their connection or channel. Each handle must return
/// the result of its own request, even if the channel has executed other requests since.
void end::take_late(bool all) {
  doing_ = "taking late results";
  while (!late_.empty() && (all || once_in(3))) {
    held one = std::move(late_.back());
    late_.pop_back();
    const auto done = std::get<pending<>>(one.handle).poll();
    claim(done.has_value(), "a request is in flight although its connection has ended");
    if (done->has_value())
      check(one.job);
    else
      claim(!done->error().message().empty(), "an error without a message");
    give_slot(one.job.slot);
  }
}

void end::take_some() {
  if (once_in(20)) take_late(false);
  while (held_.size() > 16 || (!held_.empty() && once_in(3))) {
    const std::size_t at = any(held_.size());
    if (!take(held_[at], held_.size() > 12)) return;
    if (at + 1 != held_.size()) held_[at] = std::move(held_.back());
    held_.pop_back();
  }
}

void end::post_one() {
  doing_ = "posting";
  work job;
  if (!choose(job, true)) return;
  auto posted = with_operation(job, [&](const auto& what) { return post(channel_, what); });
  if (!posted.has_value()) {
    note_failure(posted.error(), "posting");
    check_refused(posted.error(), "posting");
    return undo(job);
  }
  count_posted(job);
  held one{job, std::move(posted).assume_value(), {}};
  switch (any(10)) {
    case 0:
    case 1:
      take(one, true);
      return;
    case 2:
      return drop(one);
    case 3: {
      held moved(std::move(one));
      claim(!std::get<pending<>>(one.handle).has_request(),
            "a handle that was moved from still has the request");
      const auto deadline = clock::now() + wanted_.patience;
      while (!take(moved, clock::now() > deadline)) check_failed();
      return;
    }
    case 4: {
      // Assigns the new handle to an existing one, which drops the handle to an earlier request.
      for (held& each : held_)
        if (std::holds_alternative<pending<>>(each.handle)) {
          std::get<pending<>>(each.handle) = std::move(std::get<pending<>>(one.handle));
          settle(each.job, channel_.is_connected());
          each.job = job;
          return;
        }
      [[fallthrough]];
    }
    default:
      held_.push_back(std::move(one));
  }
}

}  // namespace verbspp::soak
