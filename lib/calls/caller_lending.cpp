// SPDX-License-Identifier: Apache-2.0
/// \file
/// How a caller lends memory: over lanes, or as a part of its messages.
#include "calls/call_messages.hpp"
#include <verbspp/calls/detail/caller_core.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace verbspp::detail {

namespace {

/// Writes the description of lent memory at the beginning of a call.
void describe(const remote_memory_description& lent, std::uint16_t lane, std::byte* body) noexcept {
  const auto encoded = encode(lent);
  std::memset(body, 0, loan_size);
  std::memcpy(body, encoded.data(), encoded.size());
  put_in_frame(body + encoded.size(), lane);
}

}  // namespace

calling_lane* caller_core::idle_lane() noexcept {
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    calling_lane& lane = lanes_.get()[i];
    if (lane.at != calling_lane::stage::idle) continue;
    lane.link.poll();
    if (lane.link.is_connected()) return &lane;
    lane.close();
  }
  return nullptr;
}

result<calling_lane*> caller_core::find_lane() noexcept {
  using stage = calling_lane::stage;
  if (calling_lane* const idle = idle_lane()) return idle;
  const std::span lanes(lanes_.get(), lane_count_);
  const auto requested = std::ranges::find(lanes, stage::requested, &calling_lane::at);
  if (requested != lanes.end()) {
    poll();
    if (is_done(requested->slot)) return connect_lane(*requested);
    return error(error_kind::would_block, opening_lane.name,
                 "the service has not connected its end of a lane (a connection for lent memory) "
                 "yet: try again later");
  }
  const auto closed = std::ranges::find(lanes, stage::closed, &calling_lane::at);
  if (closed == lanes.end())
    return error(error_kind::would_block, opening_lane.name,
                 "as many calls lend memory as both ends allow: take answers first");
  VERBSPP_TRYV(request_lane(*closed));
  return error(error_kind::would_block, opening_lane.name,
               "the service was asked to connect its end of a lane (a connection for lent memory): "
               "try again later");
}

bool caller_core::may_find_lane() const noexcept {
  using stage = calling_lane::stage;
  bool has_closed = false;
  for (const calling_lane& each : std::span(lanes_.get(), lane_count_)) {
    if (each.at == stage::idle) return true;
    if (each.at == stage::requested) return is_done(each.slot);
    has_closed = has_closed || each.at == stage::closed;
  }
  return has_closed;
}

result<calling_lane*> caller_core::connect_lane(calling_lane& lane) noexcept {
  using stage = calling_lane::stage;
  const result<message> answer = finish(lane.slot, opening_lane);
  const auto connected = [&]() noexcept -> result<void> {
    if (answer.has_error()) return answer.assume_error();
    VERBSPP_TRY(theirs, endpoint::decode(body_of(answer.assume_value())));
    return lane.link.handshake(theirs);
  }();
  if (connected.has_error()) {
    lane.close();
    // If the service allows fewer lanes than this caller, the caller uses only the lanes before
    // this one.
    const auto index = static_cast<std::uint32_t>(&lane - lanes_.get());
    const std::span rest(&lane, lane_count_ - index);
    const bool is_last =
        std::ranges::all_of(rest, [](const auto& each) { return each.at == stage::closed; });
    if (connected.assume_error() != error_kind::resource_exhausted || index == 0 || !is_last)
      return connected.assume_error();
    lane_count_ = index;
    return find_lane();
  }
  lane.at = stage::idle;
  lane.is_new = true;
  add(counters_of(comparing_methods).counted.lanes, 1);
  return &lane;
}

bool caller_core::copy(calling_lane& lane, const loan& lent) noexcept {
  const lease_request& what = lent.what;
  if (what.by != lease_by::registration || lent.keep != nullptr || what.memory == nullptr ||
      what.length > copied_size_)
    return false;
  if (!lane.copy) {
    using buffer = registered_buffer<access::local_write | access::window_bind>;
    auto made = buffer::allocate(core_.connection().domain(), copied_size_);
    if (made.has_error()) return false;
    auto shared = std::move(made).assume_value().share();
    if (shared.has_error()) return false;
    lane.copy = std::move(shared).assume_value();
  }
  // The copy is filled even if the service may only write: later, the whole copy is copied back,
  // and bytes that the service does not write must keep their values.
  std::memcpy(lane.copy->data(), what.memory, what.length);
  return true;
}

result<void> caller_core::grant(calling_lane& lane, const loan& lent) noexcept {
  lease_request asked = lent.what;
  channel_core& core = lane.link.core();
  const auto try_once = [&](kept_memory kept) noexcept {
    return lease_owner::grant(core, asked, true, call_limit::of_channel(), kept);
  };
  bool is_copied = copy(lane, lent);
  if (is_copied) {
    asked = whole_of<access::remote_read>(*lane.copy, lease_by::window);
    asked.length = lent.what.length;
    asked.rights = lent.what.rights;
  }
  auto granted = try_once(is_copied ? lane.copy->keep() : lent.kept());
  const bool may_register = asked.by == lease_by::window && lent.what.memory != nullptr;
  if (granted.has_error() && granted.assume_error() == error_kind::not_supported && may_register) {
    copied_size_ = 0;  // the device has no suitable windows
    is_copied = false;
    lane.copy.reset();
    asked = lent.what;
    asked.by = lease_by::registration;
    granted = try_once(lent.kept());
  }
  if (granted.has_error()) return granted.assume_error();
  lane.lease.swap(granted.assume_value());
  lane.uses_copy = is_copied;
  if (is_copied && lent.what.rights.contains(access::remote_write))
    lane.copied_back = {lent.what.memory, lent.what.length};
  lane.at = calling_lane::stage::lends;
  lane.is_new = false;
  return success();
}

bool caller_core::sends(const method_description& of, const loan& lent) const noexcept {
  const lease_request& what = lent.what;
  // For a part of a memory window, `memory` is null here, since the program might be unable to
  // access that part.
  return what.memory != nullptr && what.length != 0 && what.length <= sent_size_ &&
         space_for_sending(of, what.length, lent.request_size) <= largest_request_;
}

result<std::span<std::byte>> caller_core::begin_sending(const method_description& of,
                                                        const loan& lent) noexcept {
  if (!sent_loans_) sent_loans_ = owned<sent_loan[]>(new (std::nothrow) sent_loan[in_flight_]);
  if (!sent_loans_) return error::from_errno(ENOMEM, of.name);
  VERBSPP_TRY(begun, begin(of));
  const std::span memory(lent.what.memory, lent.what.length);
  std::byte* const body = begun.data();
  describe({.address = 0, .length = memory.size(), .rights = of.lends}, sent_lane, body);
  if (of.lends.contains(access::remote_read))
    std::memcpy(body + loan_size, memory.data(), memory.size());
  lending_ = std::exchange(begun_, nullptr);
  return begun;
}

result<void> caller_core::take_sent(slot_index slot, message& answer,
                                    caller_statistics& counters) noexcept {
  sent_loan ended = std::exchange(sent_loans_.get()[slot], {});
  const auto taken = [&]() noexcept -> result<void> {
    if ((answer.bytes()[0] & call_header::has_written) == std::byte{0}) return success();
    const std::span<std::byte> body = body_of(answer);
    VERBSPP_TRY(rest, take_written(body, ended.memory));
    add(counters.answer_bytes, body.size() - rest);
    return answer.resize(call_header::size + rest);
  }();
  ended.kept.let_go();
  return taken;
}

bool caller_core::end_access(std::uint16_t lane, slot_index slot) noexcept {
  if (lane == sent_lane)
    std::exchange(sent_loans_.get()[slot], {}).kept.let_go();
  else if (lane != no_lane)
    return lanes_.get()[lane].retire() && !lanes_.get()[lane].is_accessible;
  return true;
}

result<std::span<std::byte>> caller_core::begin_lending(const method_description& of,
                                                        const loan& lent) noexcept {
  if (lending_ != nullptr) return codec_has_called(of.name);
  if (sends(of, lent)) return begin_sending(of, lent);
  for (;;) {
    calling_lane* found = nullptr;
    if (lent.what.length != 0) {
      VERBSPP_TRY(idle, find_lane());
      found = idle;
    }
    VERBSPP_TRY(begun, begin(of));
    std::uint16_t number = no_lane;
    remote_memory_description described{.address = 0, .length = 0, .rights = of.lends};
    if (found != nullptr) {
      calling_lane& lane = *found;
      const bool was_new = lane.is_new;
      const result<void> granted = grant(lane, lent);
      if (granted.has_error()) {
        // If the lane was broken before this call used it, the call needs another lane.
        const bool is_broken = !lane.link.is_connected();
        if (is_broken) lane.close();
        if (is_broken && !was_new) continue;
        return granted.assume_error();
      }
      const result<remote_key> key = lane.lease.key();
      if (key.has_error()) {
        VERBSPP_TRYV(end_loan(lane, true));
        return key.assume_error();
      }
      number = static_cast<std::uint16_t>(&lane - lanes_.get());
      described.address = lane.lease.address();
      described.length = lane.lease.length();
      described.rkey = key.assume_value();
    }
    describe(described, number, begun.data());
    lending_ = std::exchange(begun_, nullptr);
    return begun;
  }
}

void caller_core::take_begun_loan() noexcept {
  if (begun_ != nullptr) begun_->give_back();
  begun_ = std::exchange(lending_, nullptr);
}

result<void> caller_core::abandon_loan() noexcept {
  if (lending_ != nullptr) take_begun_loan();
  const std::uint16_t number = lane_in(space());
  return number < lane_count_ ? end_loan(lanes_.get()[number], false) : success();
}

result<void> caller_core::end_loan(calling_lane& lane, bool has_failed) noexcept {
  if (lane.is_accessible)
    return error(
        error_kind::driver, "revoke the service's access to lent memory",
        "the caller was destroyed or replaced, and the device did not revoke the access: do "
        "not free the lent memory");
  lease_owner ended;
  lane.lease.swap(ended);
  const result<void> revoked = ended.revoke(call_limit::of_channel());
  const std::span<std::byte> back = std::exchange(lane.copied_back, {});
  if (!back.empty()) std::memcpy(back.data(), lane.copy->data(), back.size());
  // If the access was not revoked, the lease keeps the copy, which the service may still access,
  // and the lane needs another one.
  if (revoked.has_error()) lane.copy.reset();
  const bool is_copied = std::exchange(lane.uses_copy, false);
  lane.at = calling_lane::stage::idle;
  if (has_failed || !lane.link.is_connected()) lane.close();
  // Errors of other kinds mean that the connection of the lane has ended, and with it the lease.
  if (revoked.has_error() && revoked.assume_error() == error_kind::driver && !is_copied)
    return revoked;
  return success();
}

}  // namespace verbspp::detail
