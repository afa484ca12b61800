// SPDX-License-Identifier: Apache-2.0
#include "soak.hpp"

#include "end.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <thread>

extern char** environ;

namespace verbspp::soak {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif
#else
constexpr bool is_sanitized = false;
#endif

std::atomic<unsigned> release_failures{0};

void count_release_failure(const error& cause) noexcept {
  std::fprintf(stderr, "could not be released: %s\n", cause.message().c_str());
  ++release_failures;
}

void fail(board& shared, const std::string& what) {
  if (shared.failed.load()) return;
  const std::size_t size = std::min(what.size(), shared.failure.size() - 1);
  std::memcpy(shared.failure.data(), what.data(), size);
  shared.failed = true;
}

/// What must not grow while connections come and go.
struct footprint {
  std::size_t resident = 0;   ///< bytes
  std::size_t allocated = 0;  ///< bytes, by malloc
  std::size_t descriptors = 0;

  [[nodiscard]] static footprint now() {
    footprint found;
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0;
    statm >> all >> found.resident;
    found.resident *= static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    found.allocated = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      ++found.descriptors;
    return found;
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(resident / 1024) + " KiB resident, " + std::to_string(allocated / 1024) +
           " KiB allocated, " + std::to_string(descriptors) + " descriptors";
  }
};

/// Runs one end on this thread, and tells the board what is wrong.
void run_end(end& own, board& shared, unsigned which, std::uint64_t first) {
  try {
    own.run(first);
  } catch (const stopped&) {
    // The other end has told.
  } catch (const std::exception& caught) {
    fail(shared, std::string(which == 0 ? "left: " : "right: ") + caught.what());
  }
}

/// The other end as a process, which is this program once more.
class peer_process {
 public:
  peer_process(const options& wanted, int board_descriptor)
      : wanted_(wanted), descriptor_(board_descriptor) {}
  ~peer_process() { kill(); }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  void start() {
    std::array<char, PATH_MAX> program{};
    if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0)
      throw wrong("there is no /proc/self/exe");
    std::vector<std::string> words{program.data(),
                                   "--peer=" + std::to_string(descriptor_),
                                   "--device=" + wanted_.device,
                                   "--seed=" + std::to_string(mix(wanted_.seed, ++started_)),
                                   "--operations=" + std::to_string(wanted_.operations),
                                   "--patience=" + std::to_string(wanted_.patience.count())};
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&process_, program.data(), nullptr, nullptr, arguments.data(), environ) != 0)
      throw wrong("the other process cannot be started");
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
  }
  /// Waits until it ends by itself. \returns what was wrong with that, or nothing
  [[nodiscard]] std::string end(std::chrono::seconds patience) {
    const auto deadline = clock::now() + patience;
    while (process_ > 0) {
      int status = 0;
      if (::waitpid(process_, &status, WNOHANG) == 0) {
        if (clock::now() > deadline) return "the other process does not end";
        std::this_thread::sleep_for(1ms);
        continue;
      }
      process_ = -1;
      if (status != 0) return "the other process ended with status " + std::to_string(status);
    }
    return {};
  }

 private:
  const options& wanted_;
  int descriptor_;
  pid_t process_ = -1;
  std::uint64_t started_ = 0;
};

/// The board at memory that another process can map.
class mapped_board {
 public:
  /// A new one, or that of the process which started this one.
  explicit mapped_board(int descriptor = -1) : is_new_(descriptor < 0), descriptor_(descriptor) {
    if (is_new_) {
      descriptor_ = ::memfd_create("soak", 0);
      if (descriptor_ < 0 || ::ftruncate(descriptor_, sizeof(board)) != 0)
        throw wrong("no memory to share with another process");
    }
    void* const at =
        ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (at == MAP_FAILED) throw wrong("no memory to share with another process");
    board_ = is_new_ ? ::new (at) board : static_cast<board*>(at);
  }
  ~mapped_board() {
    ::munmap(board_, sizeof(board));
    ::close(descriptor_);
  }
  mapped_board(const mapped_board&) = delete;
  mapped_board& operator=(const mapped_board&) = delete;

  [[nodiscard]] board& get() const { return *board_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  bool is_new_;
  int descriptor_;
  board* board_ = nullptr;
};

/// Sets a fault at random, where the device is softverbs.
class fault_maker {
 public:
  explicit fault_maker(std::uint64_t seed) : random_(seed) {
    inject_ = reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_DEFAULT, "softverbs_inject"));
    reset_ = reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "softverbs_reset_faults"));
    if (inject_ == nullptr || reset_ == nullptr)
      throw wrong("faults are those of softverbs, which is not there");
  }
  ~fault_maker() { reset_(); }
  fault_maker(const fault_maker&) = delete;
  fault_maker& operator=(const fault_maker&) = delete;

  void set_one() {
    static constexpr std::array<const char*, 14> all{
        "packet:%u=lost",
        "packet:%u=lost",
        "packet:%u=lost",
        "completion:%u=3ms",
        "receive-completion:%u=1ms",
        "send-completion:%u=rem_access_err",
        "completion:%u=rem_op_err/0x89",
        "send-completion:%u=retry_exc_err",
        "receive-completion:%u=loc_len_err",
        "ibv_post_send:%u=ENOMEM",
        "ibv_post_recv:%u=ENOMEM",
        "ibv_modify_qp:%u=EIO",
        "ibv_poll_cq:%u=EIO",
        "ibv_poll_cq:%u=2ms",
    };
    std::array<char, 100> text{};
    std::snprintf(text.data(), text.size(), all[random_() % all.size()],
                  static_cast<unsigned>(random_() % 300 + 1));
    if (inject_(text.data()) != 0) throw wrong(std::string("softverbs refuses ") + text.data());
    ++set_;
  }
  [[nodiscard]] std::uint64_t count() const { return set_; }

 private:
  std::mt19937_64 random_;
  int (*inject_)(const char*) = nullptr;
  void (*reset_)() = nullptr;
  std::uint64_t set_ = 0;
};

/// Looks on until both ends are done: ends them when it is time, and stops the program when nothing
/// happens any more, since what hangs cannot be asked to end.
class watcher {
 public:
  watcher(const options& wanted, board& shared) : wanted_(wanted), board_(shared) {}

  template <class IsDone, class Doing, class Each>
  void watch(IsDone is_done, Doing doing, Each each_moment) {
    const auto started = clock::now();
    auto last_change = started;
    auto last_word = started;
    std::uint64_t before = 0;
    while (!is_done()) {
      std::this_thread::sleep_for(2ms);
      each_moment();
      const auto now = clock::now();
      const std::uint64_t count = operations();
      if (now - started >= wanted_.time) board_.is_over = true;
      if (count != before) last_change = now;
      before = count;
      if (now - last_change > 2 * wanted_.patience + 30s) {
        std::fprintf(stderr, "soak: nothing happens any more, after %llu operations; %s\n",
                     static_cast<unsigned long long>(count), doing().c_str());
        std::abort();
      }
      if (!has_base_ && (count > wanted_.operations / 4 || now - started > wanted_.time / 4)) {
        base_ = footprint::now();
        has_base_ = true;
      }
      if (wanted_.talks && now - last_word > 5s) {
        last_word = now;
        std::printf("%llu operations, %s\n", static_cast<unsigned long long>(count),
                    footprint::now().text().c_str());
        std::fflush(stdout);
      }
    }
    last_ = footprint::now();
  }
  [[nodiscard]] std::uint64_t operations() const {
    return board_.ends[0].operations.load() + board_.ends[1].operations.load();
  }
  /// What has grown that must not.
  [[nodiscard]] std::string growth(std::uint64_t kills) const {
    // A sleeping channel has some, and softverbs keeps a socket to each process that it ever sent
    // to.
    const std::size_t sockets = 8 + kills;
    // What the allocator keeps comes and goes; a leak of any object per connection, or of a byte
    // per operation, is more than that.
    constexpr std::size_t wavering = 4 << 20;
    if (!has_base_) return {};
    if (last_.descriptors > base_.descriptors + sockets ||
        (!is_sanitized && (last_.resident > base_.resident + 2 * wavering ||
                           last_.allocated > base_.allocated + wavering)))
      return "memory is not constant: " + base_.text() + ", and later " + last_.text();
    return {};
  }
  [[nodiscard]] std::string text() const { return base_.text() + "; at the end " + last_.text(); }

 private:
  const options& wanted_;
  board& board_;
  footprint base_{};
  footprint last_{};
  bool has_base_ = false;
};

void append_counts(std::ostream& out, const char* whose,
                   const std::map<std::string, std::uint64_t>& counts) {
  for (const auto& [name, count] : counts) out << whose << name << ": " << count << '\n';
}

}  // namespace

summary run(const options& wanted) {
  summary found;
  const auto handler = set_destroy_failure_handler(count_release_failure);
  release_failures = 0;
  std::ostringstream text;
  std::uint64_t kills = 0;
  const mapped_board mapped;
  board& shared = mapped.get();
  watcher looking(wanted, shared);
  try {
    peer_process peer(wanted, mapped.descriptor());
    std::optional<fault_maker> faults;
    if (wanted.faults) faults.emplace(mix(wanted.seed, 99));
    std::unique_ptr<end> left;
    std::unique_ptr<end> right;
    const auto kill = [&] { ++kills, peer.kill(); };
    const auto revive = [&] {
      shared.ends[1].wants_to_stop = false;
      peer.start();
    };
    left = wanted.kills ? std::make_unique<end>(wanted, shared, 0U, kill, revive)
                        : std::make_unique<end>(wanted, shared, 0U, nullptr, nullptr);
    if (wanted.kills)
      peer.start();
    else
      right = std::make_unique<end>(wanted, shared, 1U, nullptr, nullptr);
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      run_end(*left, shared, 0, 1);
      ++done;
    });
    if (right)
      threads.emplace_back([&] {
        run_end(*right, shared, 1, 1);
        ++done;
      });
    std::mt19937_64 chance(mix(wanted.seed, 7));
    looking.watch([&] { return done == static_cast<int>(threads.size()); },
                  [&] {
                    return std::string("left: ") + left->doing() +
                           (right ? std::string("; right: ") + right->doing() : "");
                  },
                  [&] {
                    if (faults && chance() % 5 == 0) faults->set_one();
                  });
    for (std::thread& each : threads) each.join();
    if (wanted.kills && !shared.failed.load())
      if (const std::string problem = peer.end(wanted.patience); !problem.empty())
        fail(shared, problem);
    append_counts(text, "left: ", left->counts());
    if (right) append_counts(text, "right: ", right->counts());
    if (wanted.kills) text << "kills: " << kills << '\n';
    if (faults) text << "faults set: " << faults->count() << '\n';
  } catch (const std::exception& caught) {
    fail(shared, caught.what());
  }
  set_destroy_failure_handler(handler);
  found.operations = looking.operations();
  text << "memory after a quarter: " << looking.text() << '\n';
  found.text = text.str();
  if (shared.failed.load())
    found.failure = shared.failure.data();
  else if (release_failures != 0 && !wanted.faults)
    found.failure = "something could not be released";
  else
    found.failure = looking.growth(kills);
  return found;
}

int run_peer(const options& wanted, int board_descriptor) {
  // Without the process that started this one there is nothing to do. (Its death is not asked for
  // as a signal, which would come when the thread ends that has started this process.)
  std::thread([parent = ::getppid()] {
    while (::getppid() == parent) std::this_thread::sleep_for(100ms);
    ::_exit(EXIT_FAILURE);
  }).detach();
  const mapped_board mapped(board_descriptor);
  board& shared = mapped.get();
  try {
    end right(wanted, shared, 1, nullptr, nullptr);
    run_end(right, shared, 1, shared.ends[1].reached.load() / 8 + 1);
  } catch (const std::exception& caught) {
    fail(shared, std::string("right: ") + caught.what());
  }
  return shared.failed.load() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace verbspp::soak
