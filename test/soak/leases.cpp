// SPDX-License-Identifier: Apache-2.0
/// \file
/// How memory is leased to the other end, and how leases are used, returned and revoked.
#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

namespace verbspp::soak {

void end::grant_lease() {
  doing_ = "granting a lease";
  // Sometimes grants a lease by connection, which can be revoked only by ending the connection.
  if (once_in(16)) return grant_lease_by_connection();
  place where;
  std::optional<leased_memory> memory;
  if (unleased_.size() > 3) {
    unleased last = std::move(unleased_.front());
    unleased_.pop_front();
    claim(last.where.is_untouched(), "bytes landed in memory whose lease had ended");
    if (auto* owned = std::get_if<leased_memory>(&last.memory)) {
      memory.emplace(std::move(*owned));
      where = last.where;
    }
  }
  if (!memory) {
    memory.emplace(must(leased_memory::allocate(domain_, leased_size), "allocate memory to lease"));
    where = {memory->data(), leased_size, random_()};
    where.fill();
  }
  if (has_windows_ && !wants_uc_ && !once_in(4))
    grant_lease<lease_by::window>(std::move(*memory), where);
  else
    grant_lease<lease_by::registration>(std::move(*memory), where);
}

template <lease_by By>
void end::grant_lease(leased_memory memory, place where) {
  const auto note = [&](auto leased, auto... kept) {
    if (!leased.has_value()) {
      if (By == lease_by::window && leased.error().kind() == error_kind::not_supported) {
        has_windows_ = false;
        return;
      }
      note_failure(leased.error(), "granting a lease");
      if (!(channel_.is_connected() && peer_has_given_up() &&
            leased.error().kind() == error_kind::cancelled))
        check_refused(leased.error(), "granting a lease");
      return;
    }
    granted given{std::move(leased).assume_value(), std::nullopt, where};
    (given.memory.emplace(std::move(kept)), ...);
    announce_lease(std::move(given));
  };
  switch (any(3)) {
    case 0:
      return note(channel_.lease<leased_rights, By>(std::move(memory), patient_limit()));
    case 1: {
      auto shared = must(std::move(memory).share(), "share memory to lease");
      auto leased = channel_.lease<leased_rights, By>(shared);
      return note(std::move(leased), std::move(shared));
    }
    default: {
      if (once_in(2)) {
        auto leased =
            channel_.lease<leased_rights, By>(memory.region(), 0, leased_size, patient_limit());
        return note(std::move(leased), std::move(memory));
      }
      auto leased = channel_.post_lease<leased_rights, By>(memory.region(), 0, leased_size);
      // The peer learns about the lease through shared memory rather than from a message, so this
      // write waits until the window has been bound.
      if (const auto done = channel_.write(
              {.remote = must(far_->slice(0, 0), "name an empty part")}, wanted_.patience);
          leased.has_value() && !done.has_value()) {
        note_failure(done.error(), "completing a lease");
        check_refused(done.error(), "completing a lease");
      }
      return note(std::move(leased), std::move(memory));
    }
  }
}

/// Leases memory under the key with which it is registered. The lease lasts until the connection
/// ends.
void end::grant_lease_by_connection() {
  if (!direct_) {
    direct_.emplace(must(directly_leased_memory::allocate(domain_, leased_size),
                         "allocate memory to lease by its own key"));
    direct_where_ = {direct_->data(), leased_size, random_()};
    direct_where_.fill();
  }
  claim(direct_where_.is_untouched(), "bytes landed in memory whose lease by connection had ended");
  auto leased = channel_.lease<leased_rights, lease_by::connection>(direct_->region(), 0,
                                                                    leased_size, patient_limit());
  if (leased.has_value())
    return announce_lease({std::move(leased).assume_value(), std::nullopt, direct_where_});
  note_failure(leased.error(), "granting a lease by connection");
  if (!(channel_.is_connected() && peer_has_given_up() &&
        leased.error().kind() == error_kind::cancelled))
    check_refused(leased.error(), "granting a lease by connection");
}

/// Stores the granted lease, and notifies the peer.
void end::announce_lease(granted given) {
  granted_.emplace(std::move(given));
  granted_->number = ++leases_;
  ++counts_[std::string("leases by ") + to_string(granted_->by())];
  const auto far = std::visit(
      [](const auto& each) -> result<remote_memory<leased_rights>> { return each.remote(); },
      granted_->right);
  if (!far.has_value()) {  // the connection has already ended
    note_failure(far.error(), "naming the leased memory");
    claim(far.error().kind() == error_kind::not_connected,
          "a granted lease: " + far.error().message());
    return must_be_broken("naming the leased memory");
  }
  mine_.lease_address = far.assume_value().address();
  mine_.lease_key = far.assume_value().rkey().value();
  // rxe dereferences a null pointer if both ends invalidate the rkey of a window.
  mine_.may_give_back = granted_->by() == lease_by::window && !is_rxe_;
  mine_.lease = granted_->number;
}

/// Revokes the lease. After that, the peer must no longer be able to write to the memory.
void end::end_lease() {
  doing_ = "ending a lease";
  mine_.lease = 0;
  const bool ends_connection = granted_->by() == lease_by::connection && channel_.is_connected();
  if (ends_connection) will_end("the end of a lease by connection");
  granted ended = std::move(*granted_);
  granted_.reset();
  place where = ended.where;
  const bool was_connected = channel_.is_connected();
  const auto judge_result = [&](const result<void>& result) {
    if (result.has_value()) return;
    note_failure(result.error(), "revoking a lease");
    claim(result.error().kind() != error_kind::driver,
          "a lease was not revoked: " + result.error().message());
    claim(was_connected, "a lease whose connection had ended: " + result.error().message());
    if (!(channel_.is_connected() && peer_has_given_up() &&
          result.error().kind() == error_kind::cancelled))
      must_be_broken("revoking a lease");
  };
  if (auto* owning = std::get_if<0>(&ended.right)) {
    if (once_in(4)) {
      const auto gone = std::move(*owning);  // destroys the memory as well
      return;
    }
    auto [result, memory] = std::move(*owning).revoke(patient_limit());
    where.fill();
    judge_result(result);
    claim(memory.data() == where.data, "a lease returned memory other than its own");
    unleased_.push_back({std::move(memory), where});
    return;
  }
  auto& right = std::get<1>(ended.right);
  if (once_in(3)) {
    const auto gone = std::move(right);
  } else {
    const auto result = right.revoke(patient_limit());
    where.fill();
    judge_result(result);
  }
  where.fill();
  claim(!ends_connection || !channel_.is_connected(),
        "a lease by connection has ended, but its connection has not");
  if (ended.memory)
    unleased_.push_back({std::move(*ended.memory), where});
  else
    direct_where_ = where;
}

void end::look_after_lease() {
  if (!granted_) return grant_lease();
  if (other_.gave_back.load() == granted_->number) {
    // The peer has returned the lease, but at this end the lease does not end until the peer's
    // message arrives.
    mine_.lease = 0;
    if (granted_->is_open()) return;
    ++counts_["leases returned by a message"];
    return end_lease();
  }
  if (granted_->is_closing) {
    // The peer was asked to stop using the lease. This end waits until the peer has stopped.
    if (other_.using_lease.load() == 0 && other_.gave_back.load() != granted_->number) end_lease();
    return;
  }
  if (once_in(2)) return;
  if (once_in(20)) {
    // Revokes the lease although the peer may be using it, which would break the connection.
    will_end("a lease revoked while in use");
    return end_lease();
  }
  mine_.lease = 0;
  granted_->is_closing = true;
}

void end::use_lease() {
  doing_ = "using a lease";
  const std::uint64_t number = other_.lease.load();
  if (number == 0 || number == mine_.gave_back.load()) return;
  mine_.using_lease = number;
  const remote_memory<leased_rights> far(other_.lease_address.load(), leased_size,
                                         remote_key(other_.lease_key.load()));
  if (other_.lease.load() == number) {
    std::vector<work> jobs(1 + any(4));
    for (work& each : jobs) {
      each.slot = take_slot();
      each.where = slots_[static_cast<std::size_t>(each.slot)];
      each.what = kind::write;
      each.content = random_();
      each.size = leased_size;
      each.parts = 1;
      each.ranges[0] = {any(longest - leased_size + 1), leased_size};
    }
    // The last request reads the bytes that the previous one has written.
    if (jobs.size() > 1 && !wants_uc_) {
      jobs.back().what = kind::read;
      jobs.back().content = jobs[jobs.size() - 2].content;
      jobs.back().skipped = any(leased_size);
      jobs.back().size = jobs.back().ranges[0].size = leased_size - jobs.back().skipped;
    }
    const auto done = channel_.scope(
        [&](channel_scope& scope) -> result<void> {
          for (const work& each : jobs) {
            const auto at =
                static_cast<std::size_t>(each.where.data - arena_.data()) + each.ranges[0].offset;
            if (each.what == kind::write) {
              each.where.put(each.elements(), each.content);
              VERBSPP_TRYV(scope.post_write(
                  {.elements = must(arena_.gather(at, each.size), "name the source of a write"),
                   .remote = far}));
            } else {
              VERBSPP_TRYV(scope.post_read(
                  {.elements = must(arena_.scatter(at, each.size), "name a target"),
                   .remote = must(far.slice(each.skipped, each.size), "name a part")}));
            }
            ++counts_["requests through a lease"];
            ++mine_.operations;
          }
          return success();
        },
        wanted_.patience);
    if (!done.has_value()) {
      note_failure(done.error(), "using a lease");
      check_refused(done.error(), "using a lease");
    }
    for (work& each : jobs) {
      if (each.what == kind::read) ++readers_[0];
      settle(each, done.has_value());
    }
    if (done.has_value() && other_.may_give_back.load() && once_in(2)) give_back_lease(number);
  }
  mine_.using_lease = 0;
}

/// Returns a lease with a message that invalidates its rkey at the other end. After that, this end
/// must not invalidate the rkey a second time, because that would fail.
void end::give_back_lease(std::uint64_t number) {
  doing_ = "returning a lease";
  const message_plan plan = plan_of(connection_, which_, sent_);
  // A message that invalidates an rkey cannot carry immediate data.
  if (plan.immediate || sent_ >= other_.taken.load() + credits) return;
  work job;
  job.number = sent_;
  job.content = plan.content;
  job.slot = take_slot();
  job.where = slots_[static_cast<std::size_t>(job.slot)];
  job.size = plan.size;
  job.parts = 1;
  job.ranges[0] = {any(longest - job.size + 1), job.size};
  job.where.put(job.elements(), job.content);
  const auto at = static_cast<std::size_t>(job.where.data - arena_.data()) + job.ranges[0].offset;
  // The number is published before the message is posted, because the other end may receive the
  // message before the call returns.
  mine_.gave_back = number;
  auto sent = channel_.post_send_with_invalidate(
      {.elements = must(arena_.gather(at, job.size), "name the source of a send"),
       .rkey = remote_key(other_.lease_key.load())});
  if (!sent.has_value()) {
    mine_.gave_back = 0;
    note_failure(sent.error(), "returning a lease");
    check_refused(sent.error(), "returning a lease");
    return give_slot(job.slot);
  }
  ++sent_;
  const auto posted = sent.assume_value().wait(wanted_.patience);
  if (posted.has_value()) {
    ++counts_["sends with invalidate"];
    ++mine_.operations;
  } else {
    note_failure(posted.error(), "returning a lease");
    check_refused(posted.error(), "returning a lease");
  }
  settle(job, posted.has_value());
}

}  // namespace verbspp::soak
