// SPDX-License-Identifier: Apache-2.0
#include "end.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stop_token>
#include <thread>

namespace verbspp::soak {

namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t slot_count = 96;
constexpr std::uint32_t inline_limit = 64;
constexpr std::array<std::size_t, 8> block_sizes{8, 40, 64, 256, 1000, 4096, longest, 512};
constexpr std::size_t gap_size = 64;
constexpr std::size_t leased_size = 4096;
constexpr std::size_t words_size = 64;  ///< the words of the atomics, and nothing
constexpr std::size_t exposed_size = [] {
  std::size_t all = words_size + gap_size;
  for (const std::size_t each : block_sizes) all += (each + 7) / 8 * 8 + gap_size;
  return all;
}();

/// The value of what has to succeed.
template <class Outcome>
auto must(Outcome outcome, const char* what) {
  if (!outcome.has_value()) throw wrong(std::string(what) + ": " + outcome.error().message());
  if constexpr (!std::is_void_v<typename Outcome::value_type>)
    return std::move(outcome).assume_value();
}

/// What a message is, known to both ends.
struct message_plan {
  std::uint64_t content;
  std::size_t size;
  std::optional<std::uint32_t> immediate;
  unsigned block;  ///< if it is a write with immediate data
};
message_plan plan_of(std::uint64_t connection, unsigned sender, std::uint64_t number) {
  const std::uint64_t chance = mix(connection, sender, number);
  std::size_t size = chance % 65;
  if (chance >> 60 == 0)
    size = (chance >> 8) % (longest + 1);
  else if (chance >> 60 < 4)
    size = (chance >> 8) % 1000;
  std::optional<std::uint32_t> immediate;
  if ((chance >> 59) % 2 == 0) immediate = static_cast<std::uint32_t>(chance >> 20);
  return {mix(chance), size, immediate, static_cast<unsigned>((chance >> 30) % block_sizes.size())};
}
std::uint64_t first_content(std::uint64_t connection, unsigned owner, unsigned block) {
  return mix(connection, owner, block, 77);
}

// What is posted, by the type of the operation.
template <class Poster>
auto post(Poster& to, const send_operation& what) {
  return to.post_send(what);
}
template <class Poster>
auto post(Poster& to, const write_operation& what) {
  return to.post_write(what);
}
template <class Poster>
auto post(Poster& to, const read_operation& what) {
  return to.post_read(what);
}
template <class Poster>
auto post(Poster& to, const fetch_and_add_operation& what) {
  return to.post_fetch_and_add(what);
}
template <class Poster>
auto post(Poster& to, const compare_and_swap_operation& what) {
  return to.post_compare_and_swap(what);
}
using outcome_of_work = transport_result<completed_work>;
outcome_of_work call(channel& to, const send_operation& what, const wait_limit& limit) {
  return to.send(what, limit);
}
outcome_of_work call(channel& to, const write_operation& what, const wait_limit& limit) {
  return to.write(what, limit);
}
outcome_of_work call(channel& to, const read_operation& what, const wait_limit& limit) {
  return to.read(what, limit);
}
outcome_of_work call(channel& to, const fetch_and_add_operation& what, const wait_limit& limit) {
  return to.fetch_and_add(what, limit);
}
outcome_of_work call(channel& to, const compare_and_swap_operation& what, const wait_limit& limit) {
  return to.compare_and_swap(what, limit);
}

/// What a scope's function throws.
struct thrown_in_scope {};

void copy_text(std::span<char> to, const std::string& text) {
  const std::size_t size = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), size);
  to[size] = '\0';
}

}  // namespace

end::end(const options& wanted, board& shared, unsigned which, std::function<void()> kill_peer,
         std::function<void()> revive_peer)
    : wanted_(wanted),
      board_(shared),
      mine_(shared.ends[which]),
      other_(shared.ends[1 - which]),
      which_(which),
      kill_peer_(std::move(kill_peer)),
      revive_peer_(std::move(revive_peer)),
      random_(mix(wanted.seed, which)),
      context_(must(open_device(wanted.device), "open the device")),
      domain_(must(protection_domain::allocate(context_), "allocate a protection domain")),
      arena_(must(private_memory::allocate(domain_, slot_count * longest), "allocate the arena")),
      exposed_(must(exposed_memory::allocate(domain_, exposed_size), "allocate what peers see")) {
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

void end::claim(bool holds, const std::string& what) const {
  if (holds) return;
  throw wrong("connection " + std::to_string(connection_) + ", " + doing_.load() + ": " + what);
}

// ---- Steps that both ends take

void end::check_failed() const {
  if (board_.failed.load()) throw stopped();
}

void end::reach(step what) {
  mine_.reached.store(connection_ * 8 + static_cast<std::uint64_t>(what));
}

void end::await(step what) {
  const auto deadline = clock::now() + wanted_.patience;
  const std::uint64_t wanted = connection_ * 8 + static_cast<std::uint64_t>(what);
  while (other_.reached.load() < wanted) {
    check_failed();
    claim(clock::now() < deadline,
          "the other end does not come to step " + std::to_string(static_cast<unsigned>(what)));
    std::this_thread::sleep_for(20us);
  }
}

bool end::peer_has_given_up() const {
  return other_.ended.load() >= connection_ || other_.broken.load() >= connection_;
}

void end::will_end(const char* how) {
  ++counts_[std::string("ended: ") + how];
  doing_ = how;
  mine_.ended = connection_;
}

// ---- Memory

int end::take_slot() {
  claim(!free_.empty(), "no memory left: the soak itself has lost some");
  const std::size_t at = any(free_.size());
  const int index = free_[at];
  free_[at] = free_.back();
  free_.pop_back();
  claim(slots_[static_cast<std::size_t>(index)].is_untouched(),
        "bytes landed in memory that had been given back");
  return index;
}

void end::give_slot(int index) {
  slots_[static_cast<std::size_t>(index)].fill();
  free_.push_back(index);
}

private_memory end::take_owned(place& where) {
  if (!owned_.empty() && !once_in(8)) {
    owned taken = std::move(owned_.back());
    owned_.pop_back();
    where = taken.where;
    claim(where.is_untouched(), "bytes landed in a buffer that had come back");
    return std::move(taken.memory);
  }
  private_memory made = must(private_memory::allocate(domain_, longest), "allocate a buffer");
  where = {made.data(), longest, random_()};
  where.fill();
  return made;
}

void end::give_owned(private_memory memory, place where) {
  claim(memory.data() == where.data && memory.size() == longest,
        "work gave another buffer back than it was given");
  where.fill();
  if (owned_.size() < 8) owned_.push_back({std::move(memory), where});
}

/// After the connection is over: whatever the peer still believes, nothing lands there.
void end::take_memory_back() {
  for (place& each : mine_blocks_) each.fill();
  std::memset(exposed_.data(), 0xa5, words_size);
}

// ---- Requests

void end::split(work& job, std::size_t size) {
  job.size = size;
  job.parts = 1 + any(job.ranges.size());
  std::size_t left = size;
  std::size_t spare = job.where.size - size;
  std::size_t at = 0;
  for (std::size_t i = 0; i < job.parts; ++i) {
    const std::size_t gap = any(std::min<std::size_t>(spare, 40) + 1);
    const std::size_t here = i + 1 == job.parts ? left : any(left + 1);
    at += gap;
    spare -= gap;
    job.ranges[i] = {at, here};
    at += here;
    left -= here;
  }
}

/// Chooses what to do, and notes it in the model as if it was posted. \returns whether there was
/// anything
bool end::choose(work& job, bool may_be_inline) {
  const std::uint64_t taken = other_.taken.load();
  const auto is_free = [&](unsigned block) {
    return readers_[block] == 0 && busy_[block] <= taken;
  };
  const std::uint64_t chance = any(100);
  if (chance < 40 && sent_ < taken + credits) {
    const message_plan plan = plan_of(connection_, which_, sent_);
    job.number = sent_;
    job.content = plan.content;
    if (chance < 12 && is_free(plan.block)) {
      job.what = kind::write_immediate;
      job.block = plan.block;
      job.size = block_sizes[job.block];
      job.immediate = static_cast<std::uint32_t>(plan.content);
    } else {
      job.what = kind::send;
      job.size = plan.size;
      job.immediate = plan.immediate;
    }
  } else if (chance < 65) {
    job.what = kind::write;
    job.block = static_cast<unsigned>(any(blocks));
    if (!is_free(job.block)) return false;
    job.content = random_();
    job.size = block_sizes[job.block];
  } else if (chance < 85) {
    job.what = kind::read;
    job.block = static_cast<unsigned>(any(blocks));
    job.size = once_in(4) ? block_sizes[job.block] : any(block_sizes[job.block] + 1);
    job.skipped = any(block_sizes[job.block] - job.size + 1);
    job.content = content_[job.block];
  } else {
    job.what = chance < 93 ? kind::add : kind::swap;
    job.size = 8;
  }
  const bool is_source = job.what <= kind::write_immediate;
  job.is_fenced = once_in(10);
  if (is_source && may_be_inline && job.size <= inline_limit && once_in(2)) {
    job.is_inline = true;
  } else {
    if (job.where.data == nullptr) {
      job.slot = take_slot();
      job.where = slots_[static_cast<std::size_t>(job.slot)];
    }
    if (job.what >= kind::add) {
      job.ranges[0] = {any(job.where.size / 8) * 8, 8};
      job.parts = 1;
    } else {
      split(job, job.size);
    }
    if (is_source) job.where.put(job.elements(), job.content);
  }
  switch (job.what) {
    case kind::write_immediate:
      job.busy_before = std::exchange(busy_[job.block], sent_ + 1);
      [[fallthrough]];
    case kind::write:
      job.before = std::exchange(content_[job.block], job.content);
      if (job.what == kind::write) break;
      [[fallthrough]];
    case kind::send:
      ++sent_;
      break;
    case kind::read:
      ++readers_[job.block];
      break;
    case kind::add:
      job.number = any(1000);
      job.expected = sum_;
      sum_ += job.number;
      mine_.added_most = sum_;
      break;
    case kind::swap:
      // Every second one is to find something else.
      job.expected = swapped_;
      job.number = once_in(2) ? swapped_ : random_();
      job.before = swapped_;
      if (job.number == swapped_) swapped_ = mix(swapped_, connection_);
      break;
  }
  return true;
}

/// It was not posted, and neither was anything behind it.
void end::undo(work& job) {
  switch (job.what) {
    case kind::write_immediate:
      busy_[job.block] = job.busy_before;
      [[fallthrough]];
    case kind::write:
      content_[job.block] = job.before;
      if (job.what == kind::write) break;
      [[fallthrough]];
    case kind::send:
      sent_ = job.number;
      break;
    case kind::read:
      --readers_[job.block];
      break;
    case kind::add:
      sum_ = job.expected;
      mine_.added_most = sum_;
      break;
    case kind::swap:
      swapped_ = job.before;
      break;
  }
  if (job.slot >= 0) give_slot(std::exchange(job.slot, -1));
}

void end::count_posted(const work& job) {
  static constexpr std::array<const char*, 6> names{
      "sends", "writes", "writes with immediate", "reads", "fetch and adds", "compare and swaps"};
  ++counts_[names[static_cast<std::size_t>(job.what)]];
  ++mine_.operations;
}

/// The memory of a request that has succeeded holds what it should.
void end::check(const work& job) const {
  if (job.is_inline) return;
  if (job.what >= kind::add) {
    const range found = job.ranges[0];
    std::uint64_t value = 0;
    std::memcpy(&value, job.where.data + found.offset, sizeof(value));
    claim(value == job.expected, "an atomic found " + std::to_string(value) + " instead of " +
                                     std::to_string(job.expected));
    claim(job.where.holds(job.where.tag, 0, {0, found.offset}) &&
              job.where.holds(job.where.tag, found.offset + 8,
                              {found.offset + 8, job.where.size - found.offset - 8}),
          "an atomic wrote beside its result");
    return;
  }
  claim(job.where.is_as_filled(job.elements(), job.content, job.skipped, job.size),
        job.what == kind::read ? "a read brought other bytes than were written"
                               : "what was sent from has changed");
}

/// The request is done, and its memory the program's.
void end::settle(work& job, bool has_succeeded) {
  if (job.what == kind::read) --readers_[job.block];
  if (has_succeeded) {
    check(job);
    if (job.what == kind::add) {
      added_ += job.number;
      mine_.added = added_;
    }
  }
  if (job.slot >= 0) give_slot(std::exchange(job.slot, -1));
}

void end::settle_all(std::vector<work>& jobs, bool have_succeeded) {
  for (work& each : jobs) settle(each, have_succeeded);
  jobs.clear();
}

template <class Use>
auto end::with_operation(const work& job, Use use) {
  std::vector<gather_element> sources;
  std::vector<scatter_element> targets;
  const auto offset = [&](std::size_t i) {
    return static_cast<std::size_t>(job.where.data - arena_.data()) + job.ranges[i].offset;
  };
  const std::span<const std::byte> bytes = bytes_of(job.content, 0, job.size);
  if (job.what <= kind::write_immediate) {
    for (std::size_t i = 0; i < job.parts; ++i)
      sources.push_back(must(arena_.gather(offset(i), job.ranges[i].size), "name what is sent"));
  } else {
    for (std::size_t i = 0; i < job.parts; ++i)
      targets.push_back(must(arena_.scatter(offset(i), job.ranges[i].size), "name a target"));
  }
  const std::span<const gather_element> all(sources);
  const inline_payload copied(bytes.first(std::min<std::size_t>(job.size, inline_limit)));
  gather_list gathered = all;
  if (job.is_inline)
    gathered = copied;
  else if (sources.size() == 1)
    gathered = sources[0];
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  std::uint64_t at = words_size + gap_size;
  for (unsigned i = 0; i < job.block; ++i) at += (block_sizes[i] + 7) / 8 * 8 + gap_size;
  const auto far = [&] { return must(far_->slice(at + job.skipped, job.size), "name a block"); };
  switch (job.what) {
    case kind::send:
      return use(
          send_operation{.elements = gathered, .immediate = immediate, .fenced = job.is_fenced});
    case kind::write:
    case kind::write_immediate:
      return use(write_operation{
          .elements = gathered, .remote = far(), .immediate = immediate, .fenced = job.is_fenced});
    case kind::read:
      return use(read_operation{.elements = std::span<const scatter_element>(targets),
                                .remote = far(),
                                .fenced = job.is_fenced});
    case kind::add:
      return use(fetch_and_add_operation{
          .result = targets[0],
          .remote = must(remote_word::at(*far_, 0), "name the word to add to"),
          .addend = job.number,
          .fenced = job.is_fenced});
    case kind::swap:
      break;
  }
  return use(
      compare_and_swap_operation{.result = targets[0],
                                 .remote = must(remote_word::at(*far_, 8), "name the word to swap"),
                                 .expected = job.number,
                                 .desired = mix(job.before, connection_),
                                 .fenced = job.is_fenced});
}

void end::note_failure(const error& cause, const char* where) {
  const std::string text = cause.message();
  claim(!text.empty(), std::string(where) + ": an error without a message");
  claim(cause.kind() <= error_kind::driver, std::string(where) + ": an error of no kind");
  ++counts_[std::string("failures: ") + to_string(cause.kind())];
  if (why_.empty()) why_ = std::string(where) + ": " + text;
}

/// A request of a channel fails only together with the channel, which says why.
void end::must_be_broken(const char* where) const {
  const channel_state now = channel_.state();
  claim(now != channel_state::connected && now != channel_state::prepared,
        std::string(where) + " failed, but the channel says to be " + to_string(now));
  if (now == channel_state::empty) return;
  const auto failure = channel_.failure();
  claim(failure.has_value(), std::string(where) + " failed, and the channel does not say why");
  claim(!failure->message().empty() && !failure->root().message().empty(),
        "a broken channel that says nothing");
}

/// Posting is refused for want of room, by a device that fails, or by a channel that is broken.
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
      return wait_limit::forever();
    case 3:
    case 4:
    case 5:
      return wait_limit(token);
    default:
      return wait_limit(wanted_.patience, token);
  }
}

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
      claim(done.assume_value().byte_count() == job.size, "a read of another size");
    return settle(job, true);
  }
  note_failure(done.error(), "a blocking call");
  // The limit that watches the peer had passed before: then nothing is posted.
  if (channel_.is_connected() && peer_has_given_up() &&
      error(done.error()).kind() == error_kind::cancelled)
    return undo(job);
  if (wanted_.faults && channel_.is_connected()) return undo(job);
  must_be_broken("a blocking call");
  settle(job, false);
}

// Handles.

template <class Finished>
bool end::take_finished(held& one, Finished finished) {
  const transport_result<completed_work>& result = finished;
  if (result.has_value()) {
    if (one.job.what == kind::read)
      claim(result.assume_value().byte_count() == one.job.size, "a read of another size");
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

/// Drops the handle: then the memory is the program's, or that of the work alone.
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
  if (was_owned) {  // its memory is gone
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

/// Handles of connections that are over, and of channels that are gone: what came of their requests
/// is for them, whoever has their places now.
void end::take_late(bool all) {
  doing_ = "taking late";
  while (!late_.empty() && (all || once_in(3))) {
    held one = std::move(late_.back());
    late_.pop_back();
    const auto done = std::get<pending<>>(one.handle).poll();
    claim(done.has_value(), "a request is on its way though its connection is over");
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
      claim(!std::get<pending<>>(one.handle).has_request(), "a handle that was moved still has it");
      while (!take(moved, false))
        if (!channel_.is_connected()) check_failed();
      return;
    }
    case 4: {
      // Assigned over another one, which is dropped so.
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

/// A request whose memory goes with it.
void end::post_owned() {
  doing_ = "posting owned memory";
  work job;
  private_memory memory = take_owned(job.where);
  const std::uint64_t taken = other_.taken.load();
  const bool is_read = once_in(2);
  const unsigned block = static_cast<unsigned>(any(blocks));
  const message_plan plan = plan_of(connection_, which_, sent_);
  if (is_read) {
    job.what = kind::read;
    job.block = block;
    job.size = block_sizes[block];
    job.content = content_[block];
  } else {
    if (sent_ >= taken + credits) return give_owned(std::move(memory), job.where);
    job.what = kind::send;
    job.number = sent_;
    job.content = plan.content;
    job.size = plan.size;
    job.immediate = plan.immediate;
  }
  job.parts = 1;
  job.ranges[0] = {any(job.where.size - job.size + 1), job.size};
  if (is_read)
    ++readers_[block];
  else
    job.where.put(job.elements(), job.content), ++sent_;
  const bool is_whole = job.size == longest;
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  std::uint64_t at = words_size + gap_size;
  for (unsigned i = 0; i < job.block; ++i) at += (block_sizes[i] + 7) / 8 * 8 + gap_size;
  const auto far = must(far_->slice(at, is_read ? job.size : 0), "name a block");
  const auto use = [&](auto&& owner, auto back) {
    auto posted = is_read ? channel_.post_read(std::move(owner), {.remote = far})
                          : channel_.post_send(std::move(owner), {.immediate = immediate});
    if (!posted.has_value()) {
      note_failure(posted.error(), "posting owned memory");
      check_refused(posted.error(), "posting owned memory");
      undo(job);
      return give_owned(back(std::move(owner)), job.where);
    }
    count_posted(job);
    held one{job, std::move(posted).assume_value(), {}};
    if (once_in(6)) return drop(one);
    held_.push_back(std::move(one));
  };
  if (is_whole) {
    use(std::move(memory), [](private_memory&& same) { return std::move(same); });
  } else {
    auto part = must(std::move(memory).part(job.ranges[0].offset, job.size), "take a part");
    use(std::move(part), [](private_part&& same) { return std::move(same).buffer(); });
  }
}

/// A request that keeps its memory, whose handles go before it is done.
void end::post_shared() {
  doing_ = "posting shared memory";
  if (left_alone_.size() > 8) return look_after_shared();
  work job;
  shared_memory memory = must(take_owned(job.where).share(), "share a buffer");
  job.parts = 1;
  const std::uint64_t taken = other_.taken.load();
  const bool is_read = once_in(2) || sent_ >= taken + credits;
  if (is_read) {
    job.what = kind::read;
    job.block = static_cast<unsigned>(any(blocks));
    job.size = block_sizes[job.block];
    job.content = content_[job.block];
    ++readers_[job.block];
  } else {
    const message_plan plan = plan_of(connection_, which_, sent_);
    job.what = kind::send;
    job.number = sent_++;
    job.content = plan.content;
    job.size = plan.size;
    job.immediate = plan.immediate;
  }
  job.ranges[0] = {any(job.where.size - job.size + 1), job.size};
  if (!is_read) job.where.put(job.elements(), job.content);
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  std::uint64_t at = words_size + gap_size;
  for (unsigned i = 0; i < job.block; ++i) at += (block_sizes[i] + 7) / 8 * 8 + gap_size;
  const auto far = must(far_->slice(at, is_read ? job.size : 0), "name a block");
  auto part = must(memory.part(job.ranges[0].offset, job.size), "take a part");
  auto posted = is_read ? channel_.post_read(std::move(part), {.remote = far})
                        : channel_.post_send(std::move(part), {.immediate = immediate});
  if (!posted.has_value()) {
    note_failure(posted.error(), "posting shared memory");
    check_refused(posted.error(), "posting shared memory");
    return undo(job);
  }
  count_posted(job);
  if (!is_read && once_in(2)) {
    // Nobody but the work has it now: a use after free would show at the peer, or as a crash.
    const kept_pending gone = std::move(posted).assume_value();
    return;
  }
  held one{job, std::move(posted).assume_value(), std::move(memory)};
  if (once_in(2)) return drop(one);
  held_.push_back(std::move(one));
}

void end::use_scope(unsigned depth) {
  doing_ = "a scope";
  std::vector<work> jobs;
  std::vector<std::size_t> taken;  // jobs that are settled
  const std::uint64_t count = any(16);
  const std::uint64_t stop_at = once_in(4) ? any(count + 1) : UINT64_MAX;
  const bool throws = once_in(2);
  const bool is_manual = once_in(4);
  std::uint32_t left = 0;
  const error own(error_kind::permission, "the soak", "an error of the scope's function");
  bool was_refused = false;
  const auto body = [&](channel_scope& scope) -> result<int> {
    std::vector<std::pair<std::size_t, scoped_pending>> handles;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i == stop_at) {
        if (throws) throw thrown_in_scope();
        return own;
      }
      if (depth < 2 && once_in(30)) use_scope(depth + 1);
      if (once_in(5)) {
        // Some with one doorbell.
        const std::size_t first = jobs.size();
        const auto posted = scope.post_batch<4, 12, 4 * inline_limit>([&](auto& batch) {
          for (std::uint64_t k = any(4) + 1; k != 0; --k) {
            work job;
            if (!choose(job, true)) continue;
            with_operation(job, [&](const auto& what) { post(batch, what); });
            jobs.push_back(job);
          }
        });
        std::size_t accepted = jobs.size() - first;
        if (!posted.has_value()) {
          accepted = posted.error().accepted();
          note_failure(posted.error().cause(), "posting a batch");
          check_refused(posted.error().cause(), "posting a batch");
          was_refused = true;
        }
        for (std::size_t k = first; k < first + accepted; ++k) count_posted(jobs[k]);
        while (jobs.size() > first + accepted) {
          undo(jobs.back());
          jobs.pop_back();
        }
        if (was_refused) return posted.error().cause();
        continue;
      }
      work job;
      if (!choose(job, true)) continue;
      auto posted = with_operation(job, [&](const auto& what) { return post(scope, what); });
      if (!posted.has_value()) {
        note_failure(posted.error(), "posting in a scope");
        check_refused(posted.error(), "posting in a scope");
        undo(job);
        was_refused = true;
        return posted.error();
      }
      count_posted(job);
      jobs.push_back(job);
      ++left;
      if (once_in(2)) handles.emplace_back(jobs.size() - 1, std::move(posted).assume_value());
      while (!handles.empty() && once_in(3)) {
        const std::size_t at = any(handles.size());
        std::swap(handles[at], handles.back());
        auto [index, handle] = std::move(handles.back());
        handles.pop_back();
        if (once_in(3)) continue;  // dropped
        const auto done = handle.wait(patient_limit());
        --left;
        taken.push_back(index);
        if (!done.has_value()) {
          note_failure(done.error(), "a handle of a scope");
          must_be_broken("a request of a scope");
        }
        settle(jobs[index], done.has_value());
      }
    }
    return 7;
  };
  const auto settle_rest = [&](bool have_succeeded) {
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (std::find(taken.begin(), taken.end(), i) == taken.end()) settle(jobs[i], have_succeeded);
  };
  try {
    const wait_limit limit = patient_limit();
    const auto ended = is_manual    ? channel_.manual_scope(body, limit)
                       : once_in(8) ? channel_.scope(body)
                                    : channel_.scope(body, limit);
    if (ended.has_value()) {
      claim(ended.assume_value() == 7, "a scope returned something else than its function");
      claim(!is_manual || left == 0, "a manual scope does not say that something was left");
      settle_rest(true);
      return;
    }
    const scope_error& failure = ended.error();
    claim(!failure.message().empty(), "a scope's error without a message");
    if (failure.own()) {
      claim(was_refused || *failure.own() == error_kind::permission,
            "a scope tells of an error that its function did not return: " + failure.message());
    } else if (!failure.work()) {
      claim(is_manual && failure.left() == left, "a manual scope counts what was left as " +
                                                     std::to_string(failure.left()) +
                                                     " instead of " + std::to_string(left));
    }
    if (failure.work()) {
      note_failure(*failure.work(), "a scope");
      must_be_broken("a scope");
    }
    settle_rest(!failure.work() && channel_.is_connected());
  } catch (const thrown_in_scope&) {
    settle_rest(channel_.is_connected());
  }
}

void end::use_stream() {
  doing_ = "a stream";
  std::vector<work> jobs;
  const std::uint64_t count = any(60);
  const stream_options how{.signal_every = 1 + static_cast<std::uint32_t>(any(20))};
  bool was_refused = false;
  const auto ended = channel_.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::uint64_t i = 0; i < count && jobs.size() < 40; ++i) {
          work job;
          if (!choose(job, true)) continue;
          const auto posted =
              with_operation(job, [&](const auto& what) { return post(stream, what); });
          if (!posted.has_value()) {
            note_failure(posted.error(), "posting in a stream");
            undo(job);
            was_refused = true;
            return posted.error();
          }
          count_posted(job);
          jobs.push_back(job);
        }
        return success();
      },
      how, patient_limit());
  if (ended.has_value()) return settle_all(jobs, true);
  claim(!ended.error().message().empty(), "a stream's error without a message");
  note_failure(ended.error(), "a stream");
  if (ended.error().work()) must_be_broken("a stream");
  if (was_refused && !ended.error().work()) return settle_all(jobs, channel_.is_connected());
  settle_all(jobs, false);
}

/// A limit that has passed: nothing is posted, and the channel stays as it was.
void end::use_passed_limit() {
  doing_ = "a limit that has passed";
  std::stop_source source;
  source.request_stop();
  const bool is_stop = once_in(2);
  const wait_limit limit = is_stop ? wait_limit(source.get_token()) : wait_limit(clock::now() - 1s);
  channel_.poll();
  if (!channel_.is_connected()) return;
  work job;
  if (!choose(job, true)) return;
  const auto done =
      with_operation(job, [&](const auto& what) { return call(channel_, what, limit); });
  undo(job);
  claim(!done.has_value(), "a call succeeded whose limit had passed");
  claim(error(done.error()).kind() == (is_stop ? error_kind::cancelled : error_kind::timed_out),
        "a limit that had passed: " + done.error().message());
  claim(channel_.is_connected(), "a limit that had passed has broken the channel");
}

/// What is refused in words, and changes nothing.
void end::misuse() {
  doing_ = "misuse";
  channel other(std::move(channel_));
  claim(channel_.state() == channel_state::empty, "a channel that was moved from is not empty");
  const auto refused = channel_.post_send(send_operation{});
  claim(!refused.has_value() && refused.error().kind() == error_kind::not_connected,
        "an empty channel does not refuse work");
  claim(channel_.outstanding() == 0, "an empty channel has something outstanding");
  channel_ = std::move(other);
  if (channel_.is_connected()) {
    const auto again = channel_.handshake(channel_.endpoint());
    claim(!again.has_value() && again.error().kind() == error_kind::busy,
          "a connected channel does not refuse a handshake");
  }
}

// ---- Leases

void end::grant_lease() {
  doing_ = "granting a lease";
  place where;
  std::optional<leased_memory> memory;
  if (unleased_.size() > 3) {
    unleased last = std::move(unleased_.front());
    unleased_.pop_front();
    claim(last.where.is_untouched(), "bytes landed in memory whose lease was over");
    if (auto* owned = std::get_if<leased_memory>(&last.memory)) {
      memory.emplace(std::move(*owned));
      where = last.where;
    }
  }
  if (!memory) {
    memory.emplace(must(leased_memory::allocate(domain_, leased_size), "allocate what is leased"));
    where = {memory->data(), leased_size, random_()};
    where.fill();
  }
  if (has_windows_ && !once_in(4))
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
    ++counts_[std::string("leases by ") + to_string(By)];
    const auto far = leased.assume_value().remote();
    granted_.emplace(granted{std::move(leased).assume_value(), std::nullopt, where});
    (granted_->memory.emplace(std::move(kept)), ...);
    if (!far.has_value()) {  // something else has ended the connection meanwhile
      note_failure(far.error(), "naming what is leased");
      claim(far.error().kind() == error_kind::not_connected,
            "a lease that was granted: " + far.error().message());
      return must_be_broken("naming what is leased");
    }
    mine_.lease_address = far.assume_value().address();
    mine_.lease_key = far.assume_value().rkey().value();
    mine_.lease = ++leases_;
  };
  switch (any(3)) {
    case 0:
      return note(channel_.lease<leased_rights, By>(std::move(memory), patient_limit()));
    case 1: {
      auto shared = must(std::move(memory).share(), "share what is leased");
      auto leased = channel_.lease<leased_rights, By>(shared);
      return note(std::move(leased), std::move(shared));
    }
    default: {
      auto leased =
          once_in(2)
              ? channel_.post_lease<leased_rights, By>(memory.region(), 0, leased_size)
              : channel_.lease<leased_rights, By>(memory.region(), 0, leased_size, patient_limit());
      return note(std::move(leased), std::move(memory));
    }
  }
}

/// Takes it back: from then on no byte of the peer's lands there.
void end::end_lease() {
  doing_ = "ending a lease";
  mine_.lease = 0;
  granted ended = std::move(*granted_);
  granted_.reset();
  place where = ended.where;
  const bool was_connected = channel_.is_connected();
  const auto judge_result = [&](const result<void>& result) {
    if (result.has_value()) return;
    note_failure(result.error(), "revoking a lease");
    claim(result.error().kind() != error_kind::driver,
          "a lease was not taken back: " + result.error().message());
    claim(was_connected, "a lease whose connection was over: " + result.error().message());
    if (!(channel_.is_connected() && peer_has_given_up() &&
          result.error().kind() == error_kind::cancelled))
      must_be_broken("revoking a lease");
  };
  if (auto* owning = std::get_if<0>(&ended.right)) {
    if (once_in(4)) {
      const auto gone = std::move(*owning);  // and its memory
      return;
    }
    auto [result, memory] = std::move(*owning).revoke(patient_limit());
    where.fill();
    judge_result(result);
    claim(memory.data() == where.data, "a lease gave other memory back than it had");
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
  unleased_.push_back({std::move(*ended.memory), where});
}

void end::look_after_lease() {
  if (!wanted_.leases) return;
  if (!granted_) return grant_lease();
  if (granted_->is_closing) {
    // The peer has been told, and is not in the middle of it.
    if (other_.using_lease.load() == 0) end_lease();
    return;
  }
  if (once_in(2)) return;
  if (once_in(20)) {
    // While the peer uses it, which costs the connection.
    will_end("a lease revoked under way");
    return end_lease();
  }
  mine_.lease = 0;
  granted_->is_closing = true;
}

void end::use_lease() {
  doing_ = "using a lease";
  const std::uint64_t number = other_.lease.load();
  if (number == 0) return;
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
    // The last one reads what the one before has written.
    if (jobs.size() > 1) {
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
                  {.elements = must(arena_.gather(at, each.size), "name what is written"),
                   .remote = far}));
            } else {
              VERBSPP_TRYV(scope.post_read(
                  {.elements = must(arena_.scatter(at, each.size), "name a target"),
                   .remote = must(far.slice(each.skipped, each.size), "name a part")}));
            }
            ++counts_["requests by a lease"];
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
  }
  mine_.using_lease = 0;
}

// ---- Receives

void end::post_one_receive() {
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
    auto posted = channel_.post_receive(std::move(memory));
    return put(std::move(posted));
  }
  if (chance == 1) {
    shared_memory memory = must(take_owned(one.where).share(), "share a buffer");
    one.ranges[0] = {0, longest};
    auto posted = channel_.post_receive(memory);
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
  put(channel_.post_receive({.elements = std::span<const scatter_element>(targets)}));
}

void end::post_receives() {
  doing_ = "posting receives";
  while (receives_.size() < credits && channel_.state() != channel_state::broken &&
         channel_.state() != channel_state::closed && channel_.state() != channel_state::empty)
    post_one_receive();
}

void end::arrived(const awaited& one, const completed_work& done) {
  const message_plan plan = plan_of(connection_, 1 - which_, taken_);
  const std::string which = "message " + std::to_string(taken_);
  claim(done.is_receive(), which + ": the completion of a receive is none");
  if (done.operation() == work_operation::receive_of_rdma_write) {
    claim(done.immediate() == immediate_data(static_cast<std::uint32_t>(plan.content)),
          which + ": a write came with other immediate data");
    claim(one.where.is_untouched(), which + ": a write with immediate data changed the receive");
    const place& block = mine_blocks_[plan.block];
    claim(block.holds(plan.content, 0, {0, block.size}),
          which + ": a write with immediate data has brought other bytes");
    return;
  }
  claim(done.byte_count() == plan.size, which + ": it has another size");
  claim(plan.immediate ? done.immediate() == immediate_data(*plan.immediate)
                       : !done.immediate().has_value(),
        which + ": it has other immediate data");
  claim(one.where.is_as_filled({one.ranges.data(), one.parts}, plan.content, 0, plan.size),
        which + ": other bytes came than were sent");
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
  // Told when there are new ones in their place.
  mine_.taken = taken_;
}

/// The connection is over: takes what came of the receives, or drops their handles.
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

// ---- A connection's life

prepared_channel end::build() {
  const wait_mode mode = once_in(2)   ? wait_mode::spin()
                         : once_in(2) ? wait_mode::sleep()
                                      : wait_mode::spin_then_sleep(20us);
  const auto usual = domain_.build_channel()
                         .access(exposed_rights)
                         .max_receive_work_requests(32)
                         .max_send_elements(4)
                         .max_receive_elements(4)
                         .max_inline_data(inline_limit)
                         .default_limit(wanted_.patience)
                         .waiting(mode);
  for (;;) {
    const std::uint64_t chance = any(3);
    auto built = chance == 0   ? usual.max_send_work_requests(4).build()
                 : chance == 1 ? usual.max_send_work_requests(64).build()
                               : usual.build();
    if (!wanted_.faults || built.has_value()) return must(std::move(built), "build a channel");
    note_failure(built.error(), "building");
    check_failed();
  }
}

void end::prepare() {
  doing_ = "preparing";
  ++connection_;
  for (const place& each : mine_blocks_)
    claim(each.is_untouched(), "bytes landed in memory that peers had access to before");
  for (const place& each : gaps_) claim(each.is_untouched(), "bytes landed beside a block");
  for (std::size_t i = 0; i < words_size; ++i)
    claim(exposed_[i] == std::byte{0xa5}, "an atomic landed when the connection was over");
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
  if (channel_.state() != channel_state::empty && !once_in(4)) {
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
    ++counts_["channels built"];
  }
  mine_.endpoint = local.encode();
  mine_.memory = must(exposed_.remote(), "name what peers see").encode();
  reach(step::ready);
  await(step::ready);
  far_.emplace(must(peer_memory::decode(other_.memory), "read the peer's memory"));
  const endpoint remote = must(endpoint::decode(other_.endpoint), "read the peer's endpoint");
  if (prepared) {
    auto done = std::move(*prepared).handshake(remote);
    if (!done.has_value()) note_failure(done.error(), "shaking hands");
    if (done.has_value() || !wanted_.faults) channel_ = must(std::move(done), "shake hands");
  } else {
    const auto done = channel_.handshake(remote);
    if (!done.has_value()) note_failure(done.error(), "shaking hands again");
    if (!wanted_.faults) must(done, "shake hands again");
  }
  post_receives();
  reach(step::connected);
  await(step::connected);
}

void end::give_up_at_random() {
  const auto tiny = std::chrono::microseconds(any(2000));
  switch (any(kill_peer_ ? 10 : 8)) {
    case 0: {
      will_end("a short limit of a receive");
      if (receives_.empty()) return;
      awaited one = std::move(receives_.front());
      receives_.pop_front();
      std::visit(
          [&](auto& handle) {
            using type = std::remove_cvref_t<decltype(handle)>;
            if constexpr (std::is_same_v<type, std::monostate>) {
              return;
            } else if constexpr (std::is_same_v<type, pending<private_memory>>) {
              auto done = handle.wait(tiny);
              take_receive(one, done.result);
              give_owned(std::move(done.memory), one.where);
            } else {
              take_receive(one, handle.wait(tiny));
            }
          },
          one.handle);
      return;
    }
    case 1: {
      will_end("a stop that was requested");
      std::stop_source source;
      source.request_stop();
      if (held_.empty()) return;
      held one = std::move(held_.back());
      held_.pop_back();
      std::visit(
          [&](auto& handle) {
            using type = std::remove_cvref_t<decltype(handle)>;
            auto done = handle.wait(source.get_token());
            if constexpr (std::is_same_v<type, pending<private_memory>>) {
              take_finished(one, done.result);
              give_owned(std::move(done.memory), one.job.where);
            } else if constexpr (std::is_same_v<type, pending<private_part>>) {
              take_finished(one, done.result);
              give_owned(std::move(done.memory).buffer(), one.job.where);
            } else {
              take_finished(one, done);
            }
          },
          one.handle);
      return;
    }
    case 2:
      will_end("close");
      must(channel_.close(), "close");
      return;
    case 3:
      will_end("a channel destroyed");
      channel_ = channel();
      return;
    case 4: {
      will_end("ERR by the native handle");
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_ERR;
      if (channel_.native_handle() != nullptr)
        static_cast<void>(ibv_modify_qp(channel_.native_handle(), &attributes, IBV_QP_STATE));
      return;
    }
    case 5: {
      will_end("a short limit of a scope");
      std::vector<work> jobs;
      const auto ended = channel_.scope(
          [&](channel_scope& scope) -> result<void> {
            for (int i = 0; i < 12; ++i) {
              work job;
              if (!choose(job, true)) continue;
              const auto posted =
                  with_operation(job, [&](const auto& what) { return post(scope, what); });
              if (!posted.has_value()) {
                undo(job);
                return posted.error();
              }
              count_posted(job);
              jobs.push_back(job);
            }
            return success();
          },
          tiny / 8);
      if (!ended.has_value()) {
        note_failure(ended.error(), "a scope with a short limit");
        check_refused(ended.error(), "a scope with a short limit");
      }
      return settle_all(jobs,
                        ended.has_value() || (!ended.error().work() && channel_.is_connected()));
    }
    case 6: {
      will_end("renewed while connected");
      const auto renewed = channel_.renew();
      if (renewed.has_value()) must(channel_.close(), "close");
      return;
    }
    case 7: {
      will_end("a wrong key");
      const peer_memory wrong_key(far_->address(), far_->length(),
                                  remote_key(far_->rkey().value() ^ 0x5a5a));
      const std::uint64_t value = 0;
      const auto done = channel_.write({.elements = inline_payload(value), .remote = wrong_key});
      claim(!done.has_value(), "a write by a wrong key succeeded");
      note_failure(done.error(), "a write by a wrong key");
      check_refused(done.error(), "a write by a wrong key");
      return;
    }
    default:
      will_end("the peer killed");
      kill_peer_();
      peer_was_killed_ = true;
      other_.ended = other_.broken = connection_;
      other_.lease = other_.using_lease = 0;
      other_.reached = connection_ * 8 + static_cast<std::uint64_t>(step::closed);
  }
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

/// Ends a connection at which nothing was wrong: all that was posted has to arrive.
void end::take_leave() {
  doing_ = "taking leave";
  while (!held_.empty()) {
    take_receives();
    take(held_.back(), true);
    held_.pop_back();
  }
  while (!left_alone_.empty()) {
    check_failed();
    take_receives();
    channel_.poll();
    look_after_shared();
  }
  mine_.sent = sent_;
  reach(step::leaving);
  const auto deadline = clock::now() + wanted_.patience;
  const auto is_there = [&](step what) {
    return other_.reached.load() >= connection_ * 8 + static_cast<std::uint64_t>(what);
  };
  const auto meet = [&](step what, auto done) {
    while (channel_.is_connected() && !peer_has_given_up() && !(is_there(what) && done())) {
      check_failed();
      take_receives();
      doing_ = "taking leave";
      claim(clock::now() < deadline, "the other end does not take leave");
      std::this_thread::sleep_for(20us);
    }
  };
  meet(step::leaving, [&] { return taken_ >= other_.sent.load(); });
  reach(step::drained);
  meet(step::drained, [] { return true; });
  channel_.poll();
  if (!channel_.is_connected() || peer_has_given_up()) return;
  doing_ = "checking at the end";
  claim(taken_ == other_.sent.load(), "more messages came than were sent");
  const std::uint32_t outstanding = channel_.outstanding();
  claim(outstanding == receives_.size(), "outstanding are " + std::to_string(outstanding) +
                                             " requests instead of " +
                                             std::to_string(receives_.size()) + " receives");
  claim(!channel_.failure(), "a connected channel with a failure");
  judge(true);
  will_end("in good order");
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
              "a request is on its way though its connection is over");
    }
  };
  // What was flushed is found by looking.
  const auto drain = [&] {
    const auto deadline = clock::now() + wanted_.patience;
    while (channel_.outstanding() != 0) {
      claim(clock::now() < deadline, "a broken channel has requests that never finish");
      channel_.poll();
    }
  };
  const bool asks = once_in(2);
  const bool settles_before = once_in(2);
  // A connected channel has receives outstanding, which nothing would fill.
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
      claim(channel_.outstanding() == 0, "a closed channel has something outstanding");
      claim(channel_.state() == channel_state::closed || channel_.state() == channel_state::empty,
            "a closed channel says to be something else");
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
  // A lease has ended with its connection; it may be there for longer.
  mine_.lease = 0;
  if (granted_) {
    claim(granted_->where.data != nullptr, "a lease of nothing");
    if (once_in(2)) granted_->where.fill();
    end_lease();
  }
  claim(left_alone_.empty(), "work of a connection that is over still keeps memory");
  claim(free_.size() + late_.size() == slot_count, "memory is missing when all is over");
  judge(false);
  take_memory_back();
  copy_text(mine_.why, why_);
  ++counts_["connections"];
  // Both see the same when both have closed, and so end together.
  if (board_.is_over.load() ||
      mine_.operations.load() + other_.operations.load() >= wanted_.operations)
    mine_.wants_to_stop = true;
  reach(step::closed);
  await(step::closed);
  const bool is_explained =
      mine_.ended.load() >= connection_ || other_.ended.load() >= connection_ || wanted_.faults;
  if (!is_explained)
    throw wrong("connection " + std::to_string(connection_) +
                " broke for no reason that either end gave; this one says \"" + why_ +
                "\", the other \"" + other_.why.data() + '"');
}

/// What the peer's atomics did, which it knows in part, is what is here.
void end::judge(bool was_orderly) {
  if (peer_was_killed_) return;
  std::uint64_t word = 0;
  std::memcpy(&word, exposed_.data(), sizeof(word));
  const std::uint64_t least = other_.added.load();
  const std::uint64_t most = other_.added_most.load();
  claim(least <= word && word <= most && (!was_orderly || word == most),
        "the word has " + std::to_string(word) + ", the peer knows to have added " +
            std::to_string(least) + " of " + std::to_string(most));
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
      doing_ = "starting the peer again";
      revive_peer_();
    }
  }
  doing_ = "ending";
  take_late(true);
  channel_ = channel();
}

}  // namespace verbspp::soak
