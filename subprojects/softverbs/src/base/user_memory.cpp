// SPDX-License-Identifier: Apache-2.0
#include "base/user_memory.hpp"

#include "base/as_a_device.hpp"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>

#if defined(__x86_64__) && !defined(__ILP32__)
#include <x86intrin.h>
#define SOFTVERBS_HAS_QUICK_ACCESS
#endif

#if defined(SOFTVERBS_HAS_QUICK_ACCESS)
// Each instruction that accesses the program's memory has a label, and a second label at which
// execution continues if the instruction faults.
asm(R"(
  .pushsection .text
  .p2align 4
  .hidden softverbs_copy, softverbs_add, softverbs_compare_and_swap, softverbs_exchange
  .hidden softverbs_copies, softverbs_adds, softverbs_swaps, softverbs_exchanges
  .hidden softverbs_copied, softverbs_failed
  .globl softverbs_copy, softverbs_add, softverbs_compare_and_swap, softverbs_exchange
  .globl softverbs_copies, softverbs_adds, softverbs_swaps, softverbs_exchanges
  .globl softverbs_copied, softverbs_failed
  .type softverbs_copy, @function
  .type softverbs_add, @function
  .type softverbs_compare_and_swap, @function
  .type softverbs_exchange, @function

softverbs_copy:
  .cfi_startproc
  mov %rdx, %rcx
softverbs_copies:
  rep movsb
softverbs_copied:
  mov %rcx, %rax
  ret
  .cfi_endproc
  .size softverbs_copy, .-softverbs_copy

softverbs_add:
  .cfi_startproc
  mov (%rsi), %rax
softverbs_adds:
  lock xadd %rax, (%rdi)
  mov %rax, (%rsi)
  xor %eax, %eax
  ret
  .cfi_endproc
  .size softverbs_add, .-softverbs_add

softverbs_compare_and_swap:
  .cfi_startproc
  mov (%rsi), %rax
softverbs_swaps:
  lock cmpxchg %rdx, (%rdi)
  mov %rax, (%rsi)
  xor %eax, %eax
  ret
  .cfi_endproc
  .size softverbs_compare_and_swap, .-softverbs_compare_and_swap

softverbs_exchange:
  .cfi_startproc
  mov (%rsi), %rax
softverbs_exchanges:
  xchg %rax, (%rdi)
  mov %rax, (%rsi)
  xor %eax, %eax
  ret
softverbs_failed:
  mov $1, %eax
  ret
  .cfi_endproc
  .size softverbs_exchange, .-softverbs_exchange
  .popsection
)");

extern "C" {
/// Returns the number of bytes that were not copied because of a fault; 0 without a fault.
std::size_t softverbs_copy(void* to, const void* from, std::size_t length) noexcept;
// The following functions return 0, or 1 after a fault. The second operand is an input, and
// receives the previous value of the word.
int softverbs_add(void* word, std::uint64_t* amount) noexcept;
int softverbs_compare_and_swap(void* word, std::uint64_t* compare, std::uint64_t swap) noexcept;
int softverbs_exchange(void* word, std::uint64_t* next) noexcept;
extern const char softverbs_copies[], softverbs_adds[], softverbs_swaps[], softverbs_exchanges[];
extern const char softverbs_copied[], softverbs_failed[];
}
#endif

namespace softverbs::user_memory {
namespace {

#if defined(SOFTVERBS_HAS_QUICK_ACCESS)

constexpr std::array signals{SIGSEGV, SIGBUS};

/// The handlers that were installed before `on_fault`.
std::array<struct sigaction, signals.size()> before;
std::atomic<bool> prepared{false};
/// Incremented to make all threads check again which handlers are installed.
std::atomic<std::uint32_t> looks{0};

/// The interval at which a thread checks which handlers are installed, in processor cycles: at most
/// a millisecond if the processor runs at 1 GHz or more.
constexpr std::uint64_t cycles_between_looks = 1'000'000;

struct site {
  const char* faults;
  const char* goes_on;
};

void hand_on(int signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction& next = before[signal == signals[0] ? 0 : 1];
  if ((next.sa_flags & SA_SIGINFO) != 0) return next.sa_sigaction(signal, info, context);
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(signal);
  // Restores the disposition of the signal. An instruction that faulted then faults again. If the
  // signal was not caused by a fault, it is raised again here.
  ::sigaction(signal, &next, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  static constexpr std::array sites{
      site{softverbs_copies, softverbs_copied}, site{softverbs_adds, softverbs_failed},
      site{softverbs_swaps, softverbs_failed}, site{softverbs_exchanges, softverbs_failed}};
  auto& counter = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  if (info->si_code > 0)
    for (const site& each : sites)
      if (counter == reinterpret_cast<greg_t>(each.faults)) {
        counter = reinterpret_cast<greg_t>(each.goes_on);
        return;
      }
  hand_on(signal, info, context);
}

bool is_first(int signal) noexcept {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
         now.sa_sigaction == &on_fault;
}

/// True if a fault of the calling thread would reach `on_fault`.
bool reaches_handler() noexcept {
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int signal : signals)
    if (::sigismember(&blocked, signal) != 0 || !is_first(signal)) return false;
  return true;
}

bool may_fault() noexcept {
  struct look {
    std::uint64_t cycles = 0;
    std::uint32_t number = 0;
    bool result = false;
  };
  static thread_local look last;
  if (!prepared.load(std::memory_order_acquire)) return false;
  const std::uint64_t cycles = __rdtsc();
  const std::uint32_t number = looks.load(std::memory_order_relaxed);
  if (number == last.number && cycles - last.cycles < cycles_between_looks) return last.result;
  last = {cycles, number, reaches_handler()};
  return last.result;
}

#endif

SOFTVERBS_AS_A_DEVICE std::uint64_t* word_at(std::byte* memory) noexcept {
  return reinterpret_cast<std::uint64_t*>(memory);
}

/// True if the memory can be written. FUTEX_WAKE_OP makes the kernel modify a word atomically, and
/// fails if the word isn't writable. Here, it adds zero to the word.
bool is_writable(std::byte* memory) noexcept {
  std::uint32_t nobody = 0;
  constexpr auto add_nothing = static_cast<std::uint32_t>(FUTEX_OP(FUTEX_OP_ADD, 0, 0, 0));
  return ::syscall(SYS_futex, &nobody, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0UL, 0UL, memory,
                   add_nothing) >= 0;
}

SOFTVERBS_AS_A_DEVICE std::uint64_t add(std::uint64_t* value, std::uint64_t amount) noexcept {
  return __atomic_fetch_add(value, amount, __ATOMIC_SEQ_CST);
}

SOFTVERBS_AS_A_DEVICE std::uint64_t swap_if_equal(std::uint64_t* value, std::uint64_t compare,
                                                  std::uint64_t swap) noexcept {
  __atomic_compare_exchange_n(value, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return compare;
}

SOFTVERBS_AS_A_DEVICE std::uint64_t replace(std::uint64_t* value, std::uint64_t next) noexcept {
  return __atomic_exchange_n(value, next, __ATOMIC_SEQ_CST);
}

}  // namespace

#if defined(SOFTVERBS_HAS_QUICK_ACCESS)

void prepare() noexcept {
  // Under Valgrind, the handlers aren't installed: Memcheck would report the accesses of single
  // instructions to memory that the program has marked as inaccessible.
  if (is_emulated() || prepared) return;
  for (std::size_t at = 0; at < signals.size(); ++at) {
    struct sigaction ours{};
    ours.sa_sigaction = &on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&ours.sa_mask);
    if (is_first(signals[at])) continue;
    if (::sigaction(signals[at], nullptr, &before[at]) != 0 ||
        ::sigaction(signals[at], &ours, nullptr) != 0)
      return;
  }
  prepared = true;
  look_again();
  prepare_thread();
}

void leave() noexcept {
  prepared = false;
  look_again();
  for (std::size_t at = 0; at < signals.size(); ++at)
    if (is_first(signals[at])) ::sigaction(signals[at], &before[at], nullptr);
}

void prepare_thread() noexcept {
  static thread_local bool tried = false;
  if (!may_fault() || tried || !is_thread_sanitized()) return;
  tried = true;
  std::byte nowhere{};
  softverbs_copy(&nowhere, reinterpret_cast<const void*>(sizeof(nowhere)), sizeof(nowhere));
}

void look_again() noexcept { looks.fetch_add(1, std::memory_order_relaxed); }

#else

void prepare() noexcept {}
void leave() noexcept {}
void prepare_thread() noexcept {}
void look_again() noexcept {}

#endif

bool copy(void* to, const void* from, std::size_t length) noexcept {
#if defined(SOFTVERBS_HAS_QUICK_ACCESS)
  if (may_fault()) {
    // `softverbs_copy` uses an instruction that may write its bytes in any order. Programs may poll
    // the last byte, so it is copied after all others.
    const std::size_t most = length == 0 ? 0 : length - 1;
    return softverbs_copy(to, from, most) == 0 &&
           softverbs_copy(static_cast<std::byte*>(to) + most,
                          static_cast<const std::byte*>(from) + most, length - most) == 0;
  }
#endif
  const unwatched device;
  const iovec source{const_cast<void*>(from), length};
  const iovec target{to, length};
  // This is a direct system call, because sanitizers intercept libc's function.
  const long copied =
      ::syscall(SYS_process_vm_writev, ::getpid(), &source, 1, &target, 1, no_flags);
  if (copied != static_cast<long>(length)) return false;
  mark_as_written(to, length);
  return true;
}

std::optional<std::uint64_t> fetch_add(std::byte* word, std::uint64_t amount) noexcept {
#if defined(SOFTVERBS_HAS_QUICK_ACCESS)
  if (may_fault()) return softverbs_add(word, &amount) == 0 ? std::optional(amount) : std::nullopt;
#endif
  const unwatched device;
  return is_writable(word) ? std::optional(add(word_at(word), amount)) : std::nullopt;
}

std::optional<std::uint64_t> compare_and_swap(std::byte* word, std::uint64_t compare,
                                              std::uint64_t swap) noexcept {
#if defined(SOFTVERBS_HAS_QUICK_ACCESS)
  if (may_fault())
    return softverbs_compare_and_swap(word, &compare, swap) == 0 ? std::optional(compare)
                                                                 : std::nullopt;
#endif
  const unwatched device;
  return is_writable(word) ? std::optional(swap_if_equal(word_at(word), compare, swap))
                           : std::nullopt;
}

std::optional<std::uint64_t> exchange(std::byte* word, std::uint64_t next) noexcept {
#if defined(SOFTVERBS_HAS_QUICK_ACCESS)
  if (may_fault()) return softverbs_exchange(word, &next) == 0 ? std::optional(next) : std::nullopt;
#endif
  const unwatched device;
  return is_writable(word) ? std::optional(replace(word_at(word), next)) : std::nullopt;
}

}  // namespace softverbs::user_memory
