// SPDX-License-Identifier: Apache-2.0
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/work/operations.hpp>

#include <algorithm>
#include <coroutine>
#include <cstring>
#include <optional>

namespace verbspp::detail {

namespace {

constexpr const char* reading = "read lent memory";
constexpr const char* writing = "write to lent memory";
constexpr const char* accessing = "access lent memory";

error in_use() noexcept {
  return {error_kind::busy, accessing,
          "another thread is accessing the lent memory, or the client has lent memory to two calls "
          "over one lane: let the other access end first, or use the same version of verbspp at "
          "both ends"};
}

/// Checks that bytes are within lent memory.
result<void> check_part(const remote_memory_description& lent, const char* operation,
                        std::uint64_t offset, std::uint64_t length) noexcept {
  if (offset > lent.length)
    return error::above_limit(operation, "offset in bytes", offset, lent.length);
  if (length > lent.length - offset)
    return error::above_limit(operation, "number of bytes from the given offset", length,
                              lent.length - offset);
  return success();
}
/// The program's memory that an element refers to.
std::span<std::byte> memory_of(const gather_element& element) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): elements have integer addresses
  return {reinterpret_cast<std::byte*>(element.address()), element.length()};
}

constexpr unsigned bits_in_byte = 8;

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
  {
    const brief_guard guard(lock_);
    if (is_blocking_) return in_use();
    if (accesses_ != 0)
      return error(error_kind::busy, accessing,
                   "awaited accesses to the lent memory have not ended: await this access, too "
                   "(async_read or async_write)");
    is_blocking_ = true;
  }
  const auto done = operation(link_);
  {
    const brief_guard guard(lock_);
    is_blocking_ = false;
  }
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
  const brief_guard guard(lock_);
  return !is_blocking_ && link_.is_connected() && core().is_idle() && !core().polls().has_delayed();
}

result<void> serving_lane::open_access() noexcept {
  if (is_blocking_) return in_use();
  ++accesses_;
  return success();
}

void serving_lane::poll() noexcept {
  const brief_guard guard(lock_);
  if (!is_blocking_) core().poll();
}

bool serving_lane::resume_next() noexcept {
  void* waiting = nullptr;
  {
    const brief_guard guard(lock_);
    if (finished_.next == &finished_) return false;
    auto& first = static_cast<waiting_access&>(*finished_.next);
    first.unlink();
    waiting = first.waiting;
  }
  std::coroutine_handle<>::from_address(waiting).resume();
  return true;
}

bool serving_lane::is_busy() noexcept {
  const brief_guard guard(lock_);
  return accesses_ != 0 || (!is_blocking_ && !core().is_idle());
}

void serving_lane::end(const error& why) noexcept {
  const brief_guard guard(lock_);
  if (is_blocking_) return;
  if (link_.is_connected()) {
    core().break_off(why);
    has_ended_ = true;
  } else {
    core().collect_broken();
  }
  // One poll calls all continuations that are due, or at least 1024 if more are due. Each access
  // has at most one continuation.
  for (std::uint32_t polls = accesses_ / 1024 + 1; polls > 0; --polls) core().poll();
}

bool serving_lane::ask_to_be_woken() noexcept {
  const brief_guard guard(lock_);
  if (is_blocking_) return true;
  const result<bool> asked = core().ask_to_be_woken();
  // `poll` is not called here, because it could read the event that was just requested. After this
  // call, only coroutines that have to be resumed need another turn; results that no coroutine
  // awaits yet do not.
  core().run_continuations();
  return asked.has_value() && finished_.next == &finished_;
}

int serving_lane::descriptor() noexcept {
  const brief_guard guard(lock_);
  return is_blocking_ ? -1 : link_.file_descriptor();
}

wait_limit::time_point serving_lane::deadline() noexcept {
  const brief_guard guard(lock_);
  return is_blocking_ ? (wait_limit::time_point::max)() : core().deadline();
}

result<void> lent_memory::read(const scatter_list& into, std::uint64_t offset,
                               call_limit limit) noexcept {
  const std::uint64_t length = into.total_length();
  VERBSPP_TRYV(check_part(what_, reading, offset, length));
  if (length == 0) return success();
  if (!is_sent())
    return lane_->read(
        into, remote_memory<access::remote_read>(what_.address + offset, length, what_.rkey),
        limit);
  const std::byte* from = body_.data() + loan_size + offset;
  for (const scatter_element& each : into) {
    const std::span<std::byte> part = memory_of(each);
    if (!part.empty()) std::memmove(part.data(), from, part.size());
    from += part.size();
  }
  return success();
}

result<std::optional<remote_source>> lent_memory::begin(const scatter_list& into,
                                                        std::uint64_t offset) noexcept {
  const std::uint64_t length = into.total_length();
  if (is_sent() || length == 0) {
    VERBSPP_TRYV(read(into, offset, call_limit::of_channel()));
    return std::optional<remote_source>();
  }
  VERBSPP_TRYV(check_part(what_, reading, offset, length));
  return std::optional<remote_source>(
      remote_memory<access::remote_read>(what_.address + offset, length, what_.rkey));
}

result<std::optional<remote_destination>> lent_memory::begin(const gather_list& from,
                                                             std::uint64_t offset) noexcept {
  const std::uint64_t length = from.total_length();
  if (is_sent() || length == 0) {
    VERBSPP_TRYV(write(from, offset, call_limit::of_channel()));
    return std::optional<remote_destination>();
  }
  VERBSPP_TRYV(check_part(what_, writing, offset, length));
  return std::optional<remote_destination>(
      remote_memory<access::remote_write>(what_.address + offset, length, what_.rkey));
}

result<void> lent_memory::write(const gather_list& from, std::uint64_t offset,
                                call_limit limit) noexcept {
  const std::uint64_t length = from.total_length();
  VERBSPP_TRYV(check_part(what_, writing, offset, length));
  if (length == 0) return success();
  if (!is_sent())
    return lane_->write(
        from, remote_memory<access::remote_write>(what_.address + offset, length, what_.rkey),
        limit);
  note_written(offset, length);
  std::byte* into = body_.data() + loan_size + offset;
  for (const gather_element& each : from) {
    const std::span<const std::byte> part = memory_of(each);
    if (!part.empty()) std::memmove(into, part.data(), part.size());
    into += part.size();
  }
  return success();
}

void lent_memory::note_written(std::size_t offset, std::size_t length) noexcept {
  const auto mark = [this](std::size_t begin, std::size_t end) noexcept {
    for (std::size_t i = begin; i < end; ++i)
      bits()[i / bits_in_byte] |= std::byte{1} << (i % bits_in_byte);
  };
  if (offset > written_) {
    if (!has_gaps_) {
      std::ranges::fill(bits(), std::byte{0});
      mark(0, written_);
      has_gaps_ = true;
    }
    // The answer contains the gap, so the gap must not contain bytes of an earlier message. If the
    // service may read, the gap contains the caller's bytes.
    if (!what_.rights.contains(access::remote_read))
      std::memset(body_.data() + loan_size + written_, 0, offset - written_);
  }
  if (has_gaps_) mark(offset, offset + length);
  written_ = std::max(written_, offset + length);
}

std::size_t lent_memory::complete(std::size_t size) noexcept {
  const std::byte* const answer = space().data();
  if (!has_written()) {
    std::memmove(body_.data(), answer, size);
    return size;
  }
  const std::size_t size_of_written_bits = has_gaps_ ? size_of_bits(written_) : 0;
  std::memset(body_.data(), 0, loan_size);
  put_in_frame(body_.data(), static_cast<std::uint32_t>(written_));
  put_in_frame(body_.data() + sizeof(std::uint32_t),
               static_cast<std::uint32_t>(size_of_written_bits));
  std::byte* end = body_.data() + loan_size + written_;
  std::memmove(end, answer, size);
  end += size;
  std::memmove(end, bits().data(), size_of_written_bits);
  return loan_size + written_ + size + size_of_written_bits;
}

result<std::size_t> take_written(std::span<std::byte> body, std::span<std::byte> into) noexcept {
  const auto written = body.size() < loan_size ? 0 : get_from_frame<std::uint32_t>(body.data());
  const auto size =
      body.size() < loan_size ? 0 : get_from_frame<std::uint32_t>(&body[sizeof written]);
  if (body.size() < loan_size || written > into.size() ||
      (size != 0 && size != size_of_bits(written)) ||
      body.size() - loan_size < std::uint64_t{written} + size)
    return error(error_kind::mismatch, "take an answer",
                 "the list of the bytes that the service has written is malformed, or does not fit "
                 "the memory that the call has lent: the service does not follow the protocol");
  const std::span<const std::byte> bytes = body.subspan(loan_size, written);
  const std::span<const std::byte> bits = body.last(size);
  const auto has = [&](std::size_t i) noexcept {
    return size == 0 ||
           (bits[i / bits_in_byte] >> (i % bits_in_byte) & std::byte{1}) != std::byte{0};
  };
  for (std::size_t i = 0; i < written;) {
    if (!has(i)) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    i = size == 0 ? written : i + 1;
    while (i < written && has(i)) ++i;
    std::memcpy(&into[begin], &bytes[begin], i - begin);
  }
  const std::span<const std::byte> answer =
      body.subspan(loan_size + written, body.size() - loan_size - written - size);
  std::memmove(body.data(), answer.data(), answer.size());
  return answer.size();
}

}  // namespace verbspp::detail
