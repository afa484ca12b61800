// SPDX-License-Identifier: Apache-2.0
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/work/operations.hpp>

namespace verbspp::detail {

namespace {

constexpr const char* reading = "received_call::read";
constexpr const char* writing = "received_call::write";

/// Returns the part of lent memory that a request accesses.
template <access_flags Rights>
result<remote_memory<Rights>> part_of(const remote_memory_description& lent, const char* operation,
                                      std::uint64_t offset, std::uint64_t length) noexcept {
  if (offset > lent.length)
    return error::above_limit(operation, "offset in bytes", offset, lent.length);
  if (length > lent.length - offset)
    return error::above_limit(operation, "length in bytes after the offset", length,
                              lent.length - offset);
  return remote_memory<Rights>(lent.address + offset, length, lent.rkey);
}

}  // namespace

std::uint16_t lane_in(std::span<const std::byte> body) noexcept {
  return get_from_frame<std::uint16_t>(&body[remote_memory_encoded_size]);
}

result<prepared_channel> prepare_lane(const channel_core& beside, wait_mode waiting,
                                      access_flags rights) noexcept {
  // A lane needs only a short queue: a read or a write is one request, as are the bind and the
  // invalidation of a window.
  constexpr std::uint32_t requests = 4;
  channel_settings settings = beside.connection().settings();
  settings.hub = {};
  settings.waiting = waiting;
  queue_pair_settings& own = settings.queue_pair;
  own.send_queue.reset();
  own.receive_queue.reset();
  own.receives.reset();
  own.max_send_work_requests = requests;
  own.max_receive_work_requests = 1;
  own.connection.access = rights;
  VERBSPP_TRY(core, channel_core::create(settings));
  return prepared_channel(core);
}

template <class Operation>
result<void> serving_lane::run(Operation&& operation) noexcept {
  if (!lock_.try_lock())
    return error(error_kind::busy, "access lent memory",
                 "the client has lent memory to two calls over the same lane: a lane carries one "
                 "call at a time, so use the same version of verbspp at both ends");
  const auto done = operation(link_);
  lock_.unlock();
  if (done.has_value()) return success();
  return error(done.assume_error());
}

result<void> serving_lane::read(const scatter_list& into, const remote_source& from,
                                call_limit limit) noexcept {
  return run([&](channel& link) { return link.read({.elements = into, .remote = from}, limit); });
}

result<void> serving_lane::write(const gather_list& from, const remote_destination& to,
                                 call_limit limit) noexcept {
  return run([&](channel& link) { return link.write({.elements = from, .remote = to}, limit); });
}

bool serving_lane::is_usable() noexcept {
  if (!lock_.try_lock()) return false;
  const bool is_connected = link_.is_connected();
  lock_.unlock();
  return is_connected;
}

result<void> lent_memory::read(const scatter_list& into, std::uint64_t offset,
                               call_limit limit) noexcept {
  const std::uint64_t length = into.total_length();
  VERBSPP_TRY(part, part_of<access::remote_read>(what_, reading, offset, length));
  if (length == 0) return success();
  return lane_->read(into, part, limit);
}

result<void> lent_memory::write(const gather_list& from, std::uint64_t offset,
                                call_limit limit) noexcept {
  const std::uint64_t length = from.total_length();
  VERBSPP_TRY(part, part_of<access::remote_write>(what_, writing, offset, length));
  if (length == 0) return success();
  return lane_->write(from, part, limit);
}

}  // namespace verbspp::detail
