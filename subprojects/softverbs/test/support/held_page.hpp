// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "support/fabric.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// A page of memory that is not present at first. If `may_hold()` returns true, a thread that reads
/// it is blocked until the test fills the page.
class held_page {
 public:
  static constexpr std::size_t size = 4096;

  /// Afterwards, `may_hold()` returns false if the kernel doesn't permit the process to handle its
  /// own page faults.
  explicit held_page(ibv_pd* domain)
      : memory_(static_cast<std::byte*>(
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        faults_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    REQUIRE(static_cast<void*>(memory_) != MAP_FAILED);
    region_ = ibv_reg_mr(domain, memory_, size, int{IBV_ACCESS_LOCAL_WRITE});
    REQUIRE(region_ != nullptr);
    // The registration may have brought in the page, so it must be removed again.
    REQUIRE(::madvise(memory_, size, MADV_DONTNEED) == 0);
    uffdio_api version{UFFD_API, 0, 0};
    uffdio_register watched{{place(), size}, UFFDIO_REGISTER_MODE_MISSING, 0};
    may_hold_ = faults_ >= 0 && ::ioctl(faults_, UFFDIO_API, &version) == 0 &&
                ::ioctl(faults_, UFFDIO_REGISTER, &watched) == 0;
  }
  held_page(const held_page&) = delete;
  held_page& operator=(const held_page&) = delete;
  ~held_page() {
    if (faults_ >= 0) ::close(faults_);
    CHECK(ibv_dereg_mr(region_) == 0);
    ::munmap(memory_, size);
  }

  bool may_hold() const noexcept { return may_hold_; }
  ibv_sge piece(std::uint32_t length) const noexcept { return {place(), length, region_->lkey}; }
  /// Waits until a thread is blocked because it reads the page.
  void wait_for_reader() const {
    REQUIRE(is_readable(faults_, patience));
    uffd_msg fault{};
    REQUIRE(::read(faults_, &fault, sizeof(fault)) == sizeof(fault));
    CHECK(fault.event == UFFD_EVENT_PAGEFAULT);
  }
  /// Fills the page with this byte, which lets the blocked thread continue.
  void let_go(unsigned char content) const {
    std::array<unsigned char, size> bytes{};
    bytes.fill(content);
    uffdio_copy copied{place(), reinterpret_cast<std::uintptr_t>(bytes.data()), size, 0, 0};
    CHECK(::ioctl(faults_, UFFDIO_COPY, &copied) == 0);
  }

 private:
  std::uint64_t place() const noexcept { return reinterpret_cast<std::uintptr_t>(memory_); }

  std::byte* memory_;
  int faults_;
  ibv_mr* region_ = nullptr;
  bool may_hold_ = false;
};
