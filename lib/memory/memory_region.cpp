// SPDX-License-Identifier: Apache-2.0
#include "memory/guarded_pages.hpp"
#include "memory/own_addresses.hpp"
#include "memory/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/on_demand_paging.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <ostream>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr const char* registering_dmabuf = "ibv_reg_dmabuf_mr";
constexpr const char* reregistering = "ibv_rereg_mr";

error registration_failure(int errnum, const char* operation, std::size_t length,
                           access_flags rights) noexcept {
  switch (errnum) {
    case ENOMEM: {
      if (rights.contains(access::on_demand))
        return error::from_errno(errnum, operation,
                                 "memory with access::on_demand is not locked, so usually the "
                                 "device or the machine is out of memory or of memory regions");
      rlimit limit{};
      const error failure = error::from_errno(
          errnum, operation,
          "registered memory is locked memory, except with access::on_demand: raise the limit "
          "(`ulimit -l`, /etc/security/limits.conf, LimitMEMLOCK= of systemd), which applies to "
          "all registrations of the process together; if it suffices, or the process has "
          "CAP_IPC_LOCK, the device or the machine is usually out of memory or of memory regions");
      if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return failure.against_limit(
            "bytes to lock, in addition to any already locked (RLIMIT_MEMLOCK)", length,
            limit.rlim_cur);
      return failure.as(error_kind::resource_exhausted,
                        "RLIMIT_MEMLOCK is unlimited, so usually the device or the machine is out "
                        "of memory or of memory regions");
    }
    case EFAULT:
      return error::from_errno(
          errnum, operation,
          "the memory is not mapped, is not accessible (PROT_NONE), is read-only although write "
          "rights or window_bind are requested, or maps a file or a device that cannot be "
          "registered");
    default:
      return error::from_errno(errnum, operation);
  }
}

/// Rejects ranges that no device would accept, before the driver is called.
result<void> check_range(const char* operation, std::uint64_t place, std::size_t length,
                         std::uint64_t start) noexcept {
  if (length == 0)
    return error(error_kind::invalid_input, operation, "memory of 0 bytes cannot be registered");
  if (length > std::numeric_limits<std::uint64_t>::max() - start)
    return error::out_of_range(operation, "start of the region", start,
                               "the end of the region would be at or beyond 2^64: check its start "
                               "and its length");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (((place ^ start) & (page - 1)) != 0)
    return error::out_of_range(operation, "start of the region", start,
                               "devices translate whole pages: the start and the memory's address "
                               "(or the offset in a dma-buf) must be equal modulo the page size");
  return success();
}

const char* usual_cause_of_staying(int errnum) noexcept {
  // Linux's software driver returns EINVAL instead of EBUSY.
  return errnum == EBUSY || errnum == EINVAL
             ? "the memory stays registered, and must not be freed; usually a memory window is "
               "still bound to it"
             : "the memory may still be registered, so it must not be freed";
}

error is_borrowed(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "the registration is borrowed: only its owner may change or deregister it"};
}

/// Returns true if the memory was deregistered; otherwise, reports the failure.
bool deregister_or_report(ibv_mr* native) noexcept {
  const int errnum = errno_of(ibv_dereg_mr(native));
  report_destroy(native, errnum, "ibv_dereg_mr", usual_cause_of_staying(errnum));
  return errnum == 0;
}

result<void> check_on_demand(const char* operation, const protection_domain& domain,
                             access_flags rights) noexcept {
  if (!rights.contains(access::on_demand)) return success();
  VERBSPP_TRY(paging, on_demand_paging::query(domain.context()));
  if (!paging.supported)
    return error(error_kind::not_supported, operation,
                 "the device, its driver or the kernel does not support on-demand paging: register "
                 "without access::on_demand; the memory is then pinned");
  return success();
}

}  // namespace

memory_registration::memory_registration() noexcept
    : domain_(reference<protection_domain_state>()),
      native_(nullptr),
      range_{},
      whose_(ownership::borrowed) {}

memory_registration::memory_registration(protection_domain domain, ibv_mr* native,
                                         std::uint64_t start, ownership whose) noexcept
    : domain_(std::move(domain)),
      native_(native),
      range_{start, native->length, native->lkey, native->rkey},
      whose_(whose) {
  if (start != reinterpret_cast<std::uintptr_t>(native->addr)) tell_of_addresses();
}

void memory_registration::tell_of_addresses() noexcept {
  if (!std::exchange(has_other_addresses_, true)) name_otherwise(range_.start, range_.length);
}

void memory_registration::forget_addresses() noexcept {
  if (std::exchange(has_other_addresses_, false)) name_no_more(range_.start, range_.length);
}

result<memory_registration> memory_registration::create(const protection_domain& domain,
                                                        void* address, std::size_t length,
                                                        std::uint64_t start,
                                                        access_flags rights) noexcept {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const char* const registering = start == place ? "ibv_reg_mr" : "ibv_reg_mr_iova";
  VERBSPP_TRYV(check_usable(registering, domain));
  VERBSPP_TRYV(check_range(registering, place, length, start));
  VERBSPP_TRYV(check_on_demand(registering, domain, rights));
  pages_are_registered(address, length, rights);
  errno = 0;
  // The macros ibv_reg_mr and ibv_reg_mr_iova also call this function if the rights are not
  // constants.
  ibv_mr* const native =
      ibv_reg_mr_iova2(domain.below().native_handle(), address, length, start, rights.bits);
  if (native == nullptr) return registration_failure(errno, registering, length, rights);
  trace(registering, native, native->lkey);
  return memory_registration(domain.below(), native, start);
}

result<memory_registration> memory_registration::create(const protection_domain& domain,
                                                        const dmabuf_part& part, std::size_t length,
                                                        std::uint64_t start,
                                                        access_flags rights) noexcept {
  VERBSPP_TRYV(check_usable(registering_dmabuf, domain));
  VERBSPP_TRYV(check_range(registering_dmabuf, part.offset, length, start));
  if (part.file_descriptor < 0)
    return error::out_of_range(registering_dmabuf, "file descriptor", part.file_descriptor,
                               "pass the descriptor of a dma-buf");
#if defined(VERBSPP_HAS_IBV_REG_DMABUF_MR)
  errno = 0;
  ibv_mr* const native =
      ibv_reg_dmabuf_mr(domain.below().native_handle(), part.offset, length, start,
                        part.file_descriptor, static_cast<int>(rights.bits));
  if (native != nullptr) {
    trace(registering_dmabuf, native, native->lkey);
    memory_registration made(domain.below(), native, start);
    made.tell_of_addresses();  // these are not virtual addresses of this process
    return made;
  }
  const int errnum = errno;
  if (kind_of_errno(errnum) == error_kind::not_supported)
    return error::from_errno(
        errnum, registering_dmabuf,
        "not every device can register a dma-buf, and the kernel must be Linux 5.12 or newer");
  if (errnum == EBADF || errnum == EINVAL)
    return error::from_errno(
        errnum, registering_dmabuf,
        "the file descriptor must be a dma-buf, offset and length must lie within it, and the "
        "rights must not include access::window_bind, on_demand, flush_global or "
        "flush_persistent");
  return error::from_errno(errnum, registering_dmabuf);
#else
  static_cast<void>(domain);
  static_cast<void>(rights);
  return error(error_kind::not_supported, registering_dmabuf,
               "verbspp was built with a libibverbs older than 1.12 (rdma-core 34), which cannot "
               "register a dma-buf");
#endif
}

result<memory_registration> memory_registration::from_native(
    const protection_domain& domain, ibv_mr* native, ownership whose,
    std::optional<std::uint64_t> start) noexcept {
  constexpr const char* operation = "memory_region::from_native";
  VERBSPP_TRYV(check_usable(operation, domain));
  if (native == nullptr) return error(error_kind::invalid_input, operation, "the ibv_mr is null");
  if (native->pd != domain.native_handle() && native->pd != domain.below().native_handle())
    return error(error_kind::invalid_input, operation,
                 "the memory is registered in another protection domain: pass the one in which it "
                 "is registered");
  return memory_registration(domain.below(), native,
                             start.value_or(reinterpret_cast<std::uintptr_t>(native->addr)), whose);
}

memory_registration::~memory_registration() {
  forget_addresses();
  if (native_ != nullptr && whose_ == ownership::taken) deregister_or_report(native_);
}

result<void> memory_registration::deregister() noexcept {
  constexpr const char* operation = "ibv_dereg_mr";
  if (native_ == nullptr) return region_is_gone(operation);
  if (whose_ == ownership::borrowed) return is_borrowed(operation);
  forget_addresses();
  range_ = {};
  ibv_mr* const native = std::exchange(native_, nullptr);
  const int errnum = errno_of(ibv_dereg_mr(native));
  if (errnum != 0) return error::from_errno(errnum, operation, usual_cause_of_staying(errnum));
  trace(operation, native);
  return success();
}

result<void> memory_registration::change(const registration_change& changes) noexcept {
  if (native_ == nullptr) return region_is_gone(reregistering);
  if (whose_ == ownership::borrowed) return is_borrowed(reregistering);
  int what = 0;
  ibv_pd* domain = nullptr;
  if (changes.domain) {
    VERBSPP_TRYV(check_usable(reregistering, *changes.domain));
    if (changes.domain->context() != domain_.context())
      return error(
          error_kind::invalid_input, reregistering,
          "the protection domain belongs to another context: pass one of the region's context");
    what |= IBV_REREG_MR_CHANGE_PD;
    domain = changes.domain->below().native_handle();
  }
  if (!changes.memory.empty()) what |= IBV_REREG_MR_CHANGE_TRANSLATION;
  access_flags rights{};
  if (changes.rights) {
    VERBSPP_TRYV(check_on_demand(reregistering, domain_, *changes.rights));
    what |= IBV_REREG_MR_CHANGE_ACCESS;
    rights = *changes.rights;
  }
  // The region's current pages were registered before, so the first call makes them writable
  // permanently, whichever attributes of the region change.
  pages_are_registered(native_->addr, native_->length, rights);
  pages_are_registered(changes.memory.data(), changes.memory.size(), rights);
  errno = 0;
  const int returned = ibv_rereg_mr(native_, what, domain, changes.memory.data(),
                                    changes.memory.size(), static_cast<int>(rights.bits));
  const int errnum = errno != 0 ? errno : EIO;
  if (returned == 0 || returned == IBV_REREG_MR_ERR_DO_FORK_OLD) {
    if (changes.domain) domain_ = changes.domain->below();
    if (!changes.memory.empty()) {
      forget_addresses();
      range_.start = reinterpret_cast<std::uintptr_t>(changes.memory.data());
    }
    range_.length = native_->length;
    range_.lkey = native_->lkey;
    range_.rkey = native_->rkey;
    if (returned != 0)
      report_release(errnum, reregistering,
                     "the call succeeded, but processes that are forked from now on will not have "
                     "the region's previous memory");
    return success();
  }
  if (returned == IBV_REREG_MR_ERR_DONT_FORK_NEW)
    return error::from_errno(errnum, reregistering,
                             "the new memory could not be withheld from forked processes (see "
                             "initialize_fork), usually because it is not mapped; the region is "
                             "unchanged");
  const error failure = registration_failure(
      errnum, reregistering, changes.memory.empty() ? native_->length : changes.memory.size(),
      rights);
  // If the driver lacks support, it has left the region unchanged, although libibverbs does not
  // report that.
  const bool is_as_before =
      returned == IBV_REREG_MR_ERR_INPUT || failure.kind() == error_kind::not_supported;
  if (is_as_before) {
    if (failure.kind() == error_kind::not_supported)
      return error::from_errno(errnum, reregistering,
                               "the driver cannot make this change, so the region is unchanged: "
                               "register a new region instead");
    return failure;
  }
  forget_addresses();
  range_ = {};
  const bool is_deregistered = deregister_or_report(std::exchange(native_, nullptr));
  return error::from_errno(
      errnum, reregistering,
      is_deregistered
          ? "the region became unusable, and was deregistered: register the memory again"
          : "the region became unusable, and deregistering it failed, too, so its memory must not "
            "be freed: register other memory");
}

error region_is_gone(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "this region or buffer was moved from, or deregistered"};
}

error no_such_part(const registered_range& range, const char* operation, std::size_t offset,
                   std::size_t length) noexcept {
  if (range.length == 0) return region_is_gone(operation);
  if (offset > range.length)
    return error::above_limit(operation, "offset in bytes", offset, range.length);
  if (length > range.length - offset)
    return error::above_limit(operation, "number of bytes from the given offset", length,
                              range.length - offset);
  return error::above_limit(operation, "length of one scatter-gather element in bytes", length,
                            UINT32_MAX, "split it into several elements or requests");
}

void print(std::ostream& out, const char* kind, const memory_registration& registration,
           access_flags rights) {
  const ibv_mr* const native = registration.native();
  if (native == nullptr) {
    out << kind << ", moved from or deregistered";
    return;
  }
  std::array<char, 112> text{};
  std::snprintf(text.data(), text.size(),
                " 0x%" PRIx64 "+%zu, lkey 0x%08" PRIx32 ", rkey 0x%08" PRIx32 ", ",
                registration.range().start, native->length, native->lkey, native->rkey);
  out << kind << text.data() << rights << ", device "
      << registration.domain().context().device_name();
}

}  // namespace verbspp::detail
