// SPDX-License-Identifier: Apache-2.0
// The entry points of IBVERBS_1.15 to IBVERBS_1.18 that this library defines, except those of
// completion counters. They are defined by symbol name, because older headers don't declare them.
// libibverbs itself refuses calls of the other new entry points, through the table in
// libibverbs_operations.hpp.
#include "base/newer_verbs.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/next_library.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_set>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace softverbs;

namespace {

/// A buffer that a program has allocated for a domain; opaque to the program.
struct domain_buffer {
  ibv_pd* domain;
  std::byte* start;
  std::size_t size;
};

/// All buffers that this library has allocated; other buffers belong to libibverbs. Thread-safe.
class buffer_list {
 public:
  void add(domain_buffer* buffer) {
    const std::lock_guard held(lock_);
    buffers_.insert(buffer);
  }
  bool has(const domain_buffer* buffer) {
    const std::lock_guard held(lock_);
    return buffers_.contains(buffer);
  }
  bool remove(const domain_buffer* buffer) {
    const std::lock_guard held(lock_);
    return buffers_.erase(buffer) != 0;
  }

 private:
  std::mutex lock_;
  std::unordered_set<const domain_buffer*> buffers_;
};

buffer_list& buffers() {
  static auto* const all = new buffer_list;
  return *all;
}

/// True if the range is in the buffer, and the buffer belongs to the domain.
bool is_part_of(const domain_buffer& buffer, const ibv_pd* domain, const void* address,
                std::size_t length) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(buffer.start);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return domain == buffer.domain && at >= start && at - start <= buffer.size &&
         length <= buffer.size - (at - start);
}

ibv_mr* register_as_asked(ibv_pd* domain, const newer::mr_init_attr& asked) {
  const auto given = [&asked](std::uint64_t field) { return (asked.comp_mask & field) != 0; };
  if ((asked.comp_mask & ~newer::known_mr_fields) != 0) return failed<ibv_mr>(EOPNOTSUPP);
  if (given(newer::mr_buffer)) {
    const auto* const buffer = static_cast<const domain_buffer*>(asked.buffer);
    if (!given(newer::mr_address) || given(newer::mr_descriptor) || given(newer::mr_offset) ||
        !buffers().has(buffer) || !is_part_of(*buffer, domain, asked.address, asked.length))
      return failed<ibv_mr>(EINVAL);
  }
  if (given(newer::mr_descriptor)) {
    if (given(newer::mr_address) || !given(newer::mr_offset) || !given(newer::mr_iova))
      return failed<ibv_mr>(EINVAL);
    return ibv_reg_dmabuf_mr(domain, asked.offset, asked.length, asked.iova, asked.descriptor,
                             asked.access);
  }
  if (!given(newer::mr_address) || given(newer::mr_offset)) return failed<ibv_mr>(EINVAL);
  const std::uint64_t iova =
      given(newer::mr_iova) ? asked.iova : reinterpret_cast<std::uintptr_t>(asked.address);
  return ibv_reg_mr_iova2(domain, asked.address, asked.length, iova,
                          static_cast<unsigned>(asked.access));
}

/// Returns the next library's function `name`, or null if libibverbs is too old to have it.
template <typename Function>
Function* next_of(Function*, const char* name) noexcept {
  return reinterpret_cast<Function*>(next_symbol(name));
}

}  // namespace

SOFTVERBS_EXPORT ibv_mr* softverbs_reg_mr_ex(
    ibv_pd* domain, newer::mr_init_attr* attributes) __asm__("ibv_reg_mr_ex");
SOFTVERBS_EXPORT void* softverbs_alloc_buf(ibv_pd* domain, std::size_t size,
                                           void** buffer) __asm__("ibv_alloc_buf");
SOFTVERBS_EXPORT void softverbs_free_buf(void* buffer) __asm__("ibv_free_buf");
SOFTVERBS_EXPORT ibv_mr* softverbs_reg_buf_mr(ibv_pd* domain, void* buffer, void* address,
                                              std::size_t length,
                                              int access) __asm__("ibv_reg_buf_mr");
SOFTVERBS_EXPORT int softverbs_export_buf_dmabuf_fd(void* buffer) __asm__(
    "ibv_export_buf_dmabuf_fd");
SOFTVERBS_EXPORT int softverbs_query_port_speed(
    ibv_context* verbs, std::uint32_t port, std::uint64_t* speed) __asm__("ibv_query_port_speed");

ibv_mr* softverbs_reg_mr_ex(ibv_pd* domain, newer::mr_init_attr* attributes) {
  if (is_soft(domain)) return register_as_asked(domain, *attributes);
  const auto next = next_of(&softverbs_reg_mr_ex, "ibv_reg_mr_ex");
  return next != nullptr ? next(domain, attributes) : failed<ibv_mr>(EOPNOTSUPP);
}

void* softverbs_alloc_buf(ibv_pd* domain, std::size_t size, void** buffer) {
  if (!is_soft(domain)) {
    const auto next = next_of(&softverbs_alloc_buf, "ibv_alloc_buf");
    return next != nullptr ? next(domain, size, buffer) : failed<void>(EOPNOTSUPP);
  }
  if (!device_context::of(domain->context).usable()) return failed<void>(EIO);
  void* start = nullptr;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (const int error = ::posix_memalign(&start, page, size)) return failed<void>(error);
  try {
    auto made = std::make_unique<domain_buffer>(
        domain_buffer{domain, static_cast<std::byte*>(start), size});
    buffers().add(made.get());
    *buffer = made.release();
    return start;
  } catch (const std::bad_alloc&) {
    std::free(start);
    return failed<void>(ENOMEM);
  }
}

void softverbs_free_buf(void* buffer) {
  auto* const ours = static_cast<domain_buffer*>(buffer);
  if (buffers().remove(ours)) {
    std::free(ours->start);
    delete ours;
  } else if (const auto next = next_of(&softverbs_free_buf, "ibv_free_buf")) {
    next(buffer);
  }
}

ibv_mr* softverbs_reg_buf_mr(ibv_pd* domain, void* buffer, void* address, std::size_t length,
                             int access) {
  if (!is_soft(domain)) {
    const auto next = next_of(&softverbs_reg_buf_mr, "ibv_reg_buf_mr");
    return next != nullptr ? next(domain, buffer, address, length, access)
                           : failed<ibv_mr>(EOPNOTSUPP);
  }
  newer::mr_init_attr asked{};
  asked.length = length;
  asked.access = access;
  asked.comp_mask = newer::mr_buffer | newer::mr_address;
  asked.address = address;
  asked.buffer = buffer;
  return register_as_asked(domain, asked);
}

int softverbs_export_buf_dmabuf_fd(void* buffer) {
  const auto next = next_of(&softverbs_export_buf_dmabuf_fd, "ibv_export_buf_dmabuf_fd");
  const bool is_ours = buffers().has(static_cast<domain_buffer*>(buffer));
  if (!is_ours && next != nullptr) return next(buffer);
  // A buffer of this library is ordinary memory, not a dma-buf.
  errno = is_ours ? ENODATA : EOPNOTSUPP;
  return -1;
}

int softverbs_query_port_speed(ibv_context* verbs, std::uint32_t port, std::uint64_t* speed) {
  const soft_device* const soft = soft_device_of(verbs);
  if (soft == nullptr) {
    const auto next = next_of(&softverbs_query_port_speed, "ibv_query_port_speed");
    return next != nullptr ? next(verbs, port, speed) : EOPNOTSUPP;
  }
  if (!soft->has_port(port)) return EINVAL;
  // Four lanes of 25 Gb/s, in units of 100 Mb/s.
  constexpr std::uint64_t full_speed = 1000;
  *speed = full_speed;
  return 0;
}
