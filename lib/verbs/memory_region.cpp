// SPDX-License-Identifier: Apache-2.0
#include <verbspp/verbs/memory_region.hpp>

#include <sys/resource.h>

#include <cerrno>

namespace verbspp::detail {

namespace {

constexpr const char* operation = "ibv_reg_mr";

error registration_failure(int errnum, std::size_t length) noexcept {
  switch (errnum) {
    case ENOMEM: {
      rlimit limit{};
      const error failure = error::from_errno(
          errnum, operation,
          "registered memory is locked memory: raise the limit (`ulimit -l`, "
          "/etc/security/limits.conf, LimitMEMLOCK= of systemd), which counts all registrations of "
          "the process together");
      if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return failure.against_limit("locked memory (RLIMIT_MEMLOCK), bytes", length,
                                     limit.rlim_cur);
      return failure.as(error_kind::resource_exhausted,
                        "RLIMIT_MEMLOCK is unlimited, so the device or the machine is out of "
                        "memory or of memory regions");
    }
    case EFAULT:
      return error::from_errno(errnum, operation,
                               "the memory is not mapped, or is read-only although local write is "
                               "asked for");
    default:
      return error::from_errno(errnum, operation);
  }
}

}  // namespace

result<memory_registration> memory_registration::create(const protection_domain& domain,
                                                        void* address, std::size_t length,
                                                        access_flags rights) noexcept {
  if (length == 0)
    return error(error_kind::invalid_input, operation, "there is no memory of 0 bytes to register");
  errno = 0;
  ibv_mr* const native =
      ibv_reg_mr(domain.native_handle(), address, length, static_cast<int>(rights.bits));
  if (native == nullptr) return registration_failure(errno, length);
  return memory_registration(domain, native);
}

memory_registration::~memory_registration() {
  if (native_ != nullptr)
    report_destroy(errno_of(ibv_dereg_mr(native_)), "ibv_dereg_mr", "the memory stays registered");
}

result<void> memory_registration::release() noexcept {
  const int errnum = errno_of(ibv_dereg_mr(std::exchange(native_, nullptr)));
  if (errnum != 0) return error::from_errno(errnum, "ibv_dereg_mr", "the memory stays registered");
  return success();
}

}  // namespace verbspp::detail
