// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

/// A thread in another process that can be stopped at any of its system calls. The destructor lets
/// the thread continue, unless it was killed. All calls must come from the same thread in this
/// process.
class tracee {
 public:
  explicit tracee(pid_t thread) : thread_(thread) {
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0 ||
        ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 || !stops())
      throw std::runtime_error("the thread can't be traced");
  }
  tracee(const tracee&) = delete;
  tracee& operator=(const tracee&) = delete;
  ~tracee() { let_go(); }

  /// Returns true if this process has the right to trace `thread`. The thread continues afterwards.
  static bool may_trace(pid_t thread) {
    try {
      const tracee tried(thread);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  /// Lets the thread continue until it is about to make a system call. Returns false if it exits
  /// before that.
  bool reaches_call() {
    for (;;) {
      if (::ptrace(PTRACE_SYSCALL, thread_, nullptr, signal_) != 0 || !stops()) return false;
      if (signal_ == 0 && is_at_entry()) return true;
    }
  }
  /// Lets the thread continue until it is about to make the system call with this number. Returns
  /// false if it exits before that.
  bool reaches(long call) {
    while (reaches_call())
      if (call_ == static_cast<std::uint64_t>(call)) return true;
    return false;
  }

  void let_go() {
    if (thread_ > 0) ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    thread_ = -1;
  }

 private:
  /// The beginning of the structure in which the kernel describes why a thread has stopped.
  struct stop {
    std::uint8_t kind;
    std::uint8_t unused[3];
    std::uint32_t architecture;
    std::uint64_t at;
    std::uint64_t stack;
    std::uint64_t call;
  };
  static constexpr std::uint8_t entry = 1;

  bool stops() {
    int status = 0;
    if (::waitpid(thread_, &status, __WALL) != thread_ || !WIFSTOPPED(status)) return false;
    const int reason = WSTOPSIG(status);
    at_call_ = reason == (SIGTRAP | 0x80);
    // A signal must be passed on to the thread, whereas stops for other reasons concern only the
    // tracer.
    signal_ = at_call_ || status >> 16 != 0 ? 0 : reason;
    return true;
  }
  bool is_at_entry() {
    stop found{};
    if (!at_call_ || ::ptrace(PTRACE_GET_SYSCALL_INFO, thread_,
                              reinterpret_cast<void*>(sizeof(found)), &found) <= 0)
      return false;
    call_ = found.call;
    return found.kind == entry;
  }

  pid_t thread_;
  long signal_ = 0;
  bool at_call_ = false;
  std::uint64_t call_ = 0;
};

/// Returns the thread with this name in the process, or -1 if there is none.
inline pid_t thread_of(pid_t process, const std::string& name) {
  for (const auto& each :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::string found;
    std::getline(std::ifstream(each.path() / "comm"), found);
    if (found == name) return static_cast<pid_t>(std::stoi(each.path().filename().string()));
  }
  return -1;
}
