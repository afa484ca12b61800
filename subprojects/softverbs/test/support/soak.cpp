// SPDX-License-Identifier: Apache-2.0
#include "support/soak.hpp"

#include "support/descriptors.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace soak {
namespace {

using steady = std::chrono::steady_clock;

/// The time limit for a completion. It allows for a machine that is overloaded, and for processes
/// that are stopped.
constexpr auto longest_wait = std::chrono::seconds(60);

constexpr std::size_t table_bytes = std::size_t{64} * 1024;

const std::vector<unsigned char>& table() {
  static const std::vector<unsigned char> result = [] {
    std::vector<unsigned char> made(table_bytes + area_bytes);
    std::minstd_rand random(1);
    for (auto& each : made) each = static_cast<unsigned char>(random() >> 8);
    return made;
  }();
  return result;
}

bool is_all(const unsigned char* from, std::size_t length, unsigned char value) {
  return std::all_of(from, from + length, [value](unsigned char each) { return each == value; });
}

/// A connection to another worker. Each of the two workers offers memory, which is called a `lane`,
/// to the other.
class link {
 public:
  link(board& all, std::size_t self, std::size_t other, std::minstd_rand& random);
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  ~link() { withdraw_regions(); }

  /// Takes the next step on this connection. Posts at most one request.
  void step();
  /// Deregisters a part of this side's lane, checks that no later write arrives, and registers that
  /// part again. Another thread calls this.
  void withdraw(std::minstd_rand& random);
  /// Returns the slot of this process, which is a part of the numbers of its queue pairs.
  std::uint32_t slot() const { return end_.pair->qp_num >> 14; }

 private:
  void complain(const char* format, ...) __attribute__((format(printf, 2, 3)));
  bool renew();
  void one_request();
  bool succeeds(ibv_send_wr request, std::uint32_t length);
  void write();
  void read();
  void count();
  void settle();
  bool read_into_buffer(std::uint32_t offset, std::uint32_t length);
  void offer();
  void withdraw_regions();
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_()) % limit; }

  board& all_;
  std::minstd_rand& random_;
  side& here_;
  side& there_;
  keys& offered_;
  lane& own_;
  const keys& keys_;
  knowledge& known_;
  endpoint end_;
  ibv_mr* area_ = nullptr;
  ibv_mr* counter_ = nullptr;
  std::uint32_t epoch_;
  std::uint64_t requests_ = 0;
  bool connected_ = false;
  bool broken_ = true;
  /// The keys and addresses that were read before the request was posted.
  std::uint32_t area_key_ = 0;
  std::uint32_t counter_key_ = 0;
  std::uint64_t area_at_ = 0;
  std::uint64_t counter_at_ = 0;
};

options of_links() {
  options wanted = with_atomics();
  wanted.memory = area_bytes + 2 * guard_bytes;
  // The code 8 requests an ACK timeout of about 1 ms, but the device waits at least 4 ms, and
  // longer for a process that is stopped.
  wanted.timeout = 8;
  wanted.retry_count = 5;
  return wanted;
}

link::link(board& all, std::size_t self, std::size_t other, std::minstd_rand& random)
    : all_(all),
      random_(random),
      here_(all.sides[self][other]),
      there_(all.sides[other][self]),
      offered_(all.keys_to[self][other]),
      own_(all.lanes[self][other]),
      keys_(all.keys_to[other][self]),
      known_(all.known[self][other]),
      end_(of_links()),
      epoch_(here_.epoch) {
  // The process that ran this worker before may have died while the area was withdrawn, so the area
  // is restored. This process, too, may be killed while it does so.
  if (offered_.withdrawn != 0) own_.area = offered_.saved;
  offered_.withdrawn = 0;
  offer();
}

void link::complain(const char* format, ...) {
  if (all_.wrong.exchange(true)) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(all_.complaint.data(), all_.complaint.size(), format, arguments);
  va_end(arguments);
}

void link::offer() {
  constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                         IBV_ACCESS_REMOTE_ATOMIC;
  if (area_ == nullptr) area_ = ibv_reg_mr(end_.domain, own_.area.data(), area_bytes, access);
  if (counter_ == nullptr)
    counter_ = ibv_reg_mr(end_.domain, &own_.counter, sizeof(own_.counter), access);
  if (area_ == nullptr || counter_ == nullptr)
    return complain("ibv_reg_mr failed with errno %d", errno);
  offered_.version.fetch_add(offered_.version.load() % 2 == 0 ? 1 : 2);
  std::atomic_thread_fence(std::memory_order_release);
  offered_.area = area_->rkey;
  offered_.counter = counter_->rkey;
  offered_.area_at = reinterpret_cast<std::uintptr_t>(own_.area.data());
  offered_.counter_at = reinterpret_cast<std::uintptr_t>(&own_.counter);
  offered_.version.fetch_add(1);
}

void link::withdraw_regions() {
  for (ibv_mr** each : {&area_, &counter_}) {
    while (*each != nullptr && ibv_dereg_mr(*each) == EBUSY) ++all_.total.busy;
    *each = nullptr;
  }
}

void link::withdraw(std::minstd_rand& random) {
  if (!has_guards(own_)) complain("something was written beyond a region");
  const bool of_area = random() % 4 != 0;
  ibv_mr*& region = of_area ? area_ : counter_;
  const int error = ibv_dereg_mr(region);
  if (error == EBUSY) {
    // This is expected: the call returns EBUSY if a process was stopped in the middle of a request.
    ++all_.total.busy;
    return;
  }
  if (error != 0) return complain("ibv_dereg_mr returned %d", error);
  region = nullptr;
  ++all_.total.withdrawn;
  const auto pause = std::chrono::microseconds(random() % 3000);
  if (of_area) {
    constexpr unsigned char nobody = 0xee;
    offered_.saved = own_.area;
    offered_.withdrawn = 1;
    own_.area.fill(nobody);
    // steady: this pause only gives a mistake time to show: a correct device passes after any pause
    std::this_thread::sleep_for(pause);
    if (!is_all(own_.area.data(), area_bytes, nobody))
      complain("something was written to a region that had been deregistered");
    own_.area = offered_.saved;
    offered_.withdrawn = 0;
  } else {
    const std::uint64_t before = *static_cast<volatile std::uint64_t*>(&own_.counter);
    // steady: this pause only gives a mistake time to show: a correct device passes after any pause
    std::this_thread::sleep_for(pause);
    if (*static_cast<volatile std::uint64_t*>(&own_.counter) != before)
      complain("something was counted in a region that had been deregistered");
  }
  offer();
}

bool link::renew() {
  if (const int error = ibv_destroy_qp(end_.pair)) {
    if (error != EBUSY) complain("ibv_destroy_qp returned %d", error);
    ++all_.total.busy;
    return false;
  }
  ibv_wc left{};
  while (ibv_poll_cq(end_.queue, 1, &left) > 0)
    complain("a destroyed queue pair still has a completion");
  ibv_qp_init_attr attributes = pair_with(end_.queue, {16, 1, 1, 1, 0});
  end_.pair = ibv_create_qp(end_.domain, &attributes);
  if (end_.pair == nullptr) {
    complain("ibv_create_qp failed with errno %d", errno);
    return false;
  }
  end_.psn = below(1 << 24);
  return true;
}

void link::step() {
  const std::uint32_t asked = there_.epoch;
  if (broken_ || epoch_ < asked) {
    if (!renew()) return;
    epoch_ = std::max(asked, epoch_) + (broken_ ? 1 : 0);
    broken_ = connected_ = false;
    here_.epoch = 0;
    here_.where = end_.here();
    here_.epoch = epoch_;
  }
  if (!connected_) {
    if (there_.epoch != epoch_) return;
    const address where = there_.where;
    if (there_.epoch != epoch_) return;
    end_.connect(where);
    here_.connected = epoch_;
    connected_ = true;
  }
  if (there_.connected == epoch_) one_request();
}

void link::one_request() {
  const std::uint32_t version = keys_.version;
  area_key_ = keys_.area;
  counter_key_ = keys_.counter;
  area_at_ = keys_.area_at;
  counter_at_ = keys_.counter_at;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (version % 2 != 0 || keys_.version != version) return;
  if (known_.writes != 0) return settle();
  switch (below(8)) {
    case 0:
    case 1:
      return count();
    case 2:
    case 3:
      return read();
    default:
      return write();
  }
}

bool link::succeeds(ibv_send_wr request, std::uint32_t length) {
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr_id = ++requests_;
  if (const int error = end_.post(request, {end_.piece(guard_bytes, length)})) {
    complain("ibv_post_send returned %d", error);
    broken_ = true;
    return false;
  }
  ibv_wc completion{};
  const auto start = steady::now();
  for (unsigned looks = 0;; ++looks) {
    const int count = ibv_poll_cq(end_.queue, 1, &completion);
    if (count == 1) break;
    if (count < 0 || steady::now() - start > longest_wait) {
      complain(count < 0 ? "ibv_poll_cq fails" : "a request doesn't complete");
      broken_ = true;
      return false;
    }
    // steady: this pause is not critical, because the loop polls until its deadline
    if (looks > 200) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (completion.wr_id != requests_) complain("a completion belongs to another request");
  if (completion.status == IBV_WC_SUCCESS) {
    all_.total.bytes += length;
    ++known_.done;
    return true;
  }
  // The peer has died, is stopped, has withdrawn its memory, or has replaced its queue pair.
  // IBV_WC_WR_FLUSH_ERR means that one of the peer's requests failed at this end because it arrived
  // after the region had been deregistered.
  if (completion.status != IBV_WC_RETRY_EXC_ERR && completion.status != IBV_WC_REM_ACCESS_ERR &&
      completion.status != IBV_WC_WR_FLUSH_ERR)
    complain("a request fails with status %d", completion.status);
  ++all_.total.failed;
  broken_ = true;
  return false;
}

void link::write() {
  const std::uint32_t most =
      below(4) == 0 ? static_cast<std::uint32_t>(area_bytes) : std::uint32_t{5000};
  const std::uint32_t length = 1 + below(most);
  const std::uint32_t offset = below(static_cast<std::uint32_t>(area_bytes) - length + 1);
  known_.offset = offset;
  known_.length = length;
  ++known_.number;
  const unsigned char* data = data_of(known_.number);
  std::memcpy(end_.memory.data() + guard_bytes, data, length);
  known_.writes = 1;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {area_at_ + offset, area_key_};
  if (!succeeds(request, length)) return;
  std::memcpy(known_.area.data() + offset, data, length);
  known_.writes = 0;
  ++all_.total.writes;
}

bool link::read_into_buffer(std::uint32_t offset, std::uint32_t length) {
  auto& memory = end_.memory;
  std::fill_n(memory.begin(), guard_bytes, guard);
  std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(guard_bytes + length), guard_bytes,
              guard);
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma = {area_at_ + offset, area_key_};
  if (!succeeds(request, length)) return false;
  if (!is_all(memory.data(), guard_bytes, guard) ||
      !is_all(memory.data() + guard_bytes + length, guard_bytes, guard))
    complain("a read wrote beyond its memory");
  ++all_.total.reads;
  return true;
}

void link::read() {
  const std::uint32_t length = 1 + below(below(4) == 0 ? area_bytes : 5000);
  const std::uint32_t offset = below(static_cast<std::uint32_t>(area_bytes) - length + 1);
  if (read_into_buffer(offset, length) &&
      std::memcmp(end_.memory.data() + guard_bytes, known_.area.data() + offset, length) != 0)
    complain("a read of %u bytes at %u differs from the data written", length, offset);
}

void link::settle() {
  // Checks a write that is known to be over, but that may have been executed only in part.
  const std::uint32_t offset = known_.offset;
  const std::uint32_t length = known_.length;
  if (!read_into_buffer(offset, length)) return;
  const unsigned char* found = end_.memory.data() + guard_bytes;
  const unsigned char* data = data_of(known_.number);
  for (std::uint32_t at = 0; at < length; ++at)
    if (found[at] != data[at] && found[at] != known_.area[offset + at])
      return complain("byte %u of a failed write of %u bytes is %02x, neither %02x nor %02x", at,
                      length, found[at], known_.area[offset + at], data[at]);
  std::memcpy(known_.area.data() + offset, found, length);
  known_.writes = 0;
}

void link::count() {
  const std::uint32_t doubts = known_.counts.fetch_add(1);
  // If a worker doesn't know the value of the counter, it can only add to it.
  const bool swaps = doubts == 0 && below(2) == 0;
  ibv_send_wr request{};
  request.opcode = swaps ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic = {counter_at_, swaps ? known_.counted : 1, known_.counted + 1, counter_key_};
  if (!succeeds(request, sizeof(std::uint64_t))) return;
  std::uint64_t before = 0;
  std::memcpy(&before, end_.memory.data() + guard_bytes, sizeof(before));
  if (before < known_.counted || before - known_.counted > doubts)
    complain("a counter is %llu, but its last known value is %llu",
             static_cast<unsigned long long>(before),
             static_cast<unsigned long long>(known_.counted));
  known_.counted = before + 1;
  known_.counts = 0;
  ++all_.total.atomics;
}

}  // namespace

const unsigned char* data_of(std::uint64_t number) {
  return table().data() + number * 4099 % table_bytes;
}

bool agrees(const lane& found, const knowledge& known) {
  const std::uint64_t doubts = known.counts;
  if (found.counter < known.counted || found.counter - known.counted > doubts) return false;
  const bool doubted = known.writes != 0;
  const unsigned char* data = data_of(known.number);
  for (std::size_t at = 0; at < area_bytes; ++at) {
    if (found.area[at] == known.area[at]) continue;
    if (!doubted || at < known.offset || at - known.offset >= known.length ||
        found.area[at] != data[at - known.offset])
      return false;
  }
  return true;
}

bool has_guards(const lane& found) {
  return is_all(found.before.data(), found.before.size(), guard) &&
         is_all(found.behind.data(), found.behind.size(), guard) &&
         is_all(found.end.data(), found.end.size(), guard);
}

int work() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int descriptor = -1;
  std::size_t self = 0;
  const char* said = std::getenv("SOFTVERBS_SOAKER");
  if (said == nullptr || std::sscanf(said, "%d:%zu", &descriptor, &self) != 2) return 2;
  void* memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return 3;
  ::close(descriptor);
  board& all = *static_cast<board*>(memory);
  std::minstd_rand random(all.seeds[self]);
  std::vector<std::unique_ptr<link>> links;
  for (std::size_t other = 0; other < workers; ++other)
    if (other != self) links.push_back(std::make_unique<link>(all, self, other, random));
  all.slots[self] = links.front()->slot();
  all.descriptors_alone[self] = descriptors_open();
  std::thread withdrawer([&] {
    std::minstd_rand chance(all.seeds[self] + 1);
    while (!all.stops && !all.wrong) {
      links[chance() % links.size()]->withdraw(chance);
      // steady: this pause spreads the deregistrations, which may come at any point
      std::this_thread::sleep_for(std::chrono::microseconds(chance() % 20000));
    }
  });
  for (unsigned rounds = 0; !all.stops && !all.wrong; ++rounds) {
    for (const auto& each : links) each->step();
    if (rounds % 64 == 0) all.descriptors[self] = descriptors_open();
  }
  withdrawer.join();
  return 0;
}

}  // namespace soak
