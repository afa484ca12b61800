// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "support/fabric.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

/// Memory that an endpoint has registered, and that a test can unmap although the region still
/// exists.
class registered_page {
 public:
  static constexpr std::size_t usual_size = 4096;

  explicit registered_page(const endpoint& owner,
                           int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                           std::size_t bytes = usual_size)
      : size(bytes), memory(map(nullptr, PROT_READ | PROT_WRITE, 0)), owner_(owner) {
    region = ibv_reg_mr(owner.domain, memory, size, access);
    if (region == nullptr) throw std::runtime_error("can't register a page");
  }
  registered_page(const registered_page&) = delete;
  registered_page& operator=(const registered_page&) = delete;
  ~registered_page() {
    if (region != nullptr) CHECK(ibv_dereg_mr(region) == 0);
    ::munmap(memory, size);
  }

  /// Unmaps the memory, but keeps its addresses reserved, so that no other mapping gets them.
  void take_away() const { map(memory, PROT_NONE, MAP_FIXED); }
  void forbid_writes() const {
    if (::mprotect(memory, size, PROT_READ) != 0) throw std::runtime_error("mprotect failed");
  }
  /// Returns the address of the memory for a peer that is connected to its owner.
  address there() const {
    address result = owner_.here();
    result.memory = reinterpret_cast<std::uintptr_t>(memory);
    result.rkey = region->rkey;
    return result;
  }
  ibv_sge piece(std::uint32_t length) const {
    return {reinterpret_cast<std::uintptr_t>(memory), length, region->lkey};
  }

  const std::size_t size;
  unsigned char* const memory;
  ibv_mr* region = nullptr;

 private:
  unsigned char* map(void* at, int protection, int flags) const {
    void* const mapped = ::mmap(at, size, protection, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("mmap failed");
    return static_cast<unsigned char*>(mapped);
  }

  const endpoint& owner_;
};
