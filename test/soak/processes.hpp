// SPDX-License-Identifier: Apache-2.0
/// \file
/// Processes that run this program with different arguments, and the memory that they share.
#pragma once

#include "outcome.hpp"
#include "soak.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern char** environ;

namespace verbspp::soak {

/// A child process that runs this program with different arguments.
class other_process {
 public:
  other_process() = default;
  ~other_process() { kill(); }
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;

  void start(std::vector<std::string> words) {
    std::array<char, PATH_MAX> program{};
    if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0)
      throw wrong("there is no /proc/self/exe");
    words.insert(words.begin(), program.data());
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    if (::posix_spawn(&process_, program.data(), nullptr, nullptr, arguments.data(), environ) != 0)
      throw wrong("cannot start another process");
  }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
  }
  /// Waits until the process exits, for `patience` at most. \returns a description of its failure,
  /// or an empty string if it succeeded
  [[nodiscard]] std::string end(std::chrono::seconds patience) {
    const auto deadline = clock::now() + patience;
    while (process_ > 0) {
      int status = 0;
      if (::waitpid(process_, &status, WNOHANG) == 0) {
        if (clock::now() > deadline) return "another process does not exit";
        // steady: this pause is not critical, because the loop polls until its deadline
        std::this_thread::sleep_for(1ms);
        continue;
      }
      process_ = -1;
      if (status != 0) return "another process exited with status " + std::to_string(status);
    }
    return {};
  }

 private:
  pid_t process_ = -1;
};

/// Memory that another process can map.
template <class Shared>
class mapped {
 public:
  /// Creates the memory, or maps memory that already exists. Such memory contains either zeros or
  /// an object that another process has created.
  explicit mapped(int descriptor = -1) : is_new_(descriptor < 0), descriptor_(descriptor) {
    if (is_new_) {
      descriptor_ = ::memfd_create("soak", 0);
      if (descriptor_ < 0 || ::ftruncate(descriptor_, sizeof(Shared)) != 0)
        throw wrong("no memory to share with another process");
    }
    void* const at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (at == MAP_FAILED) throw wrong("no memory to share with another process");
    shared_ = is_new_ ? ::new (at) Shared : static_cast<Shared*>(at);
  }
  ~mapped() {
    ::munmap(shared_, sizeof(Shared));
    ::close(descriptor_);
  }
  mapped(const mapped&) = delete;
  mapped& operator=(const mapped&) = delete;

  [[nodiscard]] Shared& get() const { return *shared_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  bool is_new_;
  int descriptor_;
  Shared* shared_ = nullptr;
};

/// Ends this process when its parent has exited. A parent-death signal would not do, because it is
/// sent as soon as the thread that started this process ends.
inline void end_with_parent() {
  std::thread([parent = ::getppid()] {
    // steady: this pause is not critical, because the loop polls until the parent has exited
    while (::getppid() == parent) std::this_thread::sleep_for(100ms);
    ::_exit(EXIT_FAILURE);
  }).detach();
}

}  // namespace verbspp::soak
