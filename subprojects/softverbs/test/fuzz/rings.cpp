// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Whatever the other end writes to a ring, and to the announcements
/// after it, this end must access only the shared memory, and must terminate. The first byte of the
/// input selects what is tested: a ring's reader, its writer, or the announcements. The rest
/// controls the actions of both ends, which take turns.

#include "input.hpp"
#include "machine/announcements.hpp"
#include "wire/greeting.hpp"
#include "wire/packet.hpp"
#include "wire/ring.hpp"

#include <cstdlib>
#include <cstring>
#include <span>

using namespace softverbs;
using fuzz::require;

namespace {

constexpr unsigned most_turns = 200;

/// The memory that the two ends of a ring share. It has exactly the length that they expect, so
/// that AddressSanitizer detects accesses beyond its end.
class pair_of_ends {
 public:
  pair_of_ends() {
    require(start_ != nullptr);
    std::memset(start_, 0, pair_memory::bytes);
  }

  std::span<std::byte> ring() const noexcept {
    return {start_ + pair_memory::ring, ring_end::bytes};
  }
  std::span<std::byte> data() const noexcept { return ring().subspan(ring_end::state_bytes); }
  std::span<std::byte> hazards() const noexcept {
    return {start_ + pair_memory::hazards, pair_memory::hazard_bytes};
  }
  ring_state& state() const noexcept { return *reinterpret_cast<ring_state*>(start_); }

 private:
  // All inputs use the same memory, because it would take more time to allocate memory for each
  // input than to run the test.
  std::byte* start_ = [] {
    static void* const memory = std::aligned_alloc(4096, pair_memory::bytes);
    return static_cast<std::byte*>(memory);
  }();
};

bool is_within(std::span<const std::byte> whole, const std::byte* start, std::size_t length) {
  return start >= whole.data() && length <= whole.size() &&
         start - whole.data() <= static_cast<std::ptrdiff_t>(whole.size() - length);
}

/// Returns a number that is often close to a limit.
std::uint64_t number(fuzz::input& said, std::uint64_t near) {
  switch (said.below(6)) {
    case 0:
      return said.take<std::uint64_t>();
    case 1:
      return near + said.take<std::uint8_t>() * std::uint64_t{64};
    case 2:
      return near + ring_end::data_bytes;
    case 3:
      return near + ring_end::data_bytes + 64;
    case 4:
      return near - 64;
    default:
      return near + said.take<std::uint16_t>();
  }
}

void scribble(fuzz::input& said, std::span<std::byte> memory, std::size_t step) {
  const std::size_t at = said.take<std::uint16_t>() * step % memory.size();
  const auto bytes = said.take_bytes(1 + said.below(16));
  std::memcpy(memory.data() + at, bytes.data(), std::min(bytes.size(), memory.size() - at));
}

void read(fuzz::input& said) {
  const pair_of_ends shared;
  ring_reader in(shared.ring());
  // The other end, which writes both messages and false data.
  ring_writer out(shared.ring());
  std::uint64_t position = 0;
  bool open = true;
  for (unsigned turn = 0; turn < most_turns && open && !said.is_empty(); ++turn) {
    switch (said.below(8)) {
      case 0:
        shared.state().filled = number(said, position);
        break;
      case 1:
        scribble(said, shared.data(), 64);
        break;
      case 2: {
        const std::uint32_t length = said.take<std::uint32_t>();
        std::memcpy(shared.data().data() + position % ring_end::data_bytes, &length,
                    sizeof(length));
        break;
      }
      case 3:
        if (const std::size_t length = said.take<std::uint16_t>();
            std::byte* to = out.prepare(length)) {
          require(is_within(shared.data(), to, length));
          out.publish();
        }
        break;
      case 4:
        shared.state().writer_waits = said.take<std::uint32_t>();
        in.release();
        break;
      case 5:
        in.sleep();
        break;
      case 6:
        if (said.below(8) == 0) in.end();
        break;
      default: {
        const auto message = in.next(open);
        if (message.empty()) break;
        require(open && is_within(shared.data(), message.data(), message.size()));
        position = static_cast<std::uint64_t>(message.data() - shared.data().data());
      }
    }
  }
  // Reading terminates, whatever data is left.
  for (unsigned left = 0; open; ++left) {
    const auto message = in.next(open);
    if (message.empty()) break;
    require(left <= ring_end::data_bytes / 64 &&
            is_within(shared.data(), message.data(), message.size()));
  }
}

void write(fuzz::input& said) {
  const pair_of_ends shared;
  ring_writer out(shared.ring());
  ring_reader in(shared.ring());
  for (unsigned turn = 0; turn < most_turns && !out.broken() && !said.is_empty(); ++turn) {
    switch (said.below(6)) {
      case 0:
        shared.state().emptied = number(said, shared.state().filled);
        break;
      case 1:
        shared.state().reader_sleeps = said.take<std::uint32_t>();
        shared.state().writer_waits = said.take<std::uint32_t>();
        break;
      case 2:
        out.has_room();
        out.is_unread();
        break;
      case 3: {
        bool open = true;
        in.next(open);
        in.release();
        break;
      }
      default: {
        const std::size_t length = said.take<std::uint16_t>() % (largest_packet + 1);
        std::byte* const to = out.prepare(length);
        if (to == nullptr) break;
        require(is_within(shared.data(), to, length));
        std::memset(to, 0x5a, length);
        out.publish();
      }
    }
  }
}

void hear_announcements(fuzz::input& said) {
  const pair_of_ends shared;
  const announcements own(shared.hazards());
  for (unsigned turn = 0; turn < most_turns && !said.is_empty(); ++turn) {
    if (said.below(4) != 0) {
      scribble(said, shared.hazards(), 8);
      continue;
    }
    const announcements::use of{
        said.below(2) == 0 ? announcements::any : said.take<std::uint16_t>(),
        said.below(2) == 0 ? announcements::any : said.take<std::uint32_t>()};
    // `wait` passes each announced use that matches `of` to the callback. The callback never waits
    // for one: it disbelieves the first three, and gives up the whole wait at the fourth.
    unsigned judged = 0;
    own.wait(of, [&](const announcements::use& what) {
      require(what.pair < 1U << 14 && what.region < 1U << 20);
      require(of.pair == announcements::any || of.pair == what.pair);
      require(of.region == announcements::any || of.region == what.region);
      require(++judged <= pair_memory::hazard_bytes / 64);
      return judged == 4 ? announcements::verdict::give_up : announcements::verdict::disbelieve;
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t length) {
  if (length == 0) return 0;
  fuzz::input said(bytes + 1, length - 1);
  switch (bytes[0] % 3) {
    case 'r' % 3:
      read(said);
      break;
    case 'w' % 3:
      write(said);
      break;
    default:
      hear_announcements(said);
  }
  return 0;
}
