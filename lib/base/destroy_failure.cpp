// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>

#include <array>
#include <atomic>
#include <cstdio>

namespace verbspp {

namespace {

void log_to_stderr(const error& failure) noexcept {
  std::array<char, 512> line{};
  failure.format(line);
  std::fprintf(stderr, "verbspp: a resource could not be fully released: %s\n", line.data());
}

std::atomic<destroy_failure_handler> current_destroy_failure_handler{&log_to_stderr};

}  // namespace

void detail::report_release(int errnum, const char* operation, const char* hint) noexcept {
  if (errnum == 0) return;
  current_destroy_failure_handler.load(std::memory_order_acquire)(
      error::from_errno(errnum, operation, hint));
}

void detail::report_destroy(const void* object, int errnum, const char* operation,
                            const char* hint) noexcept {
  if (errnum == 0) return trace(operation, object);
  report_release(errnum, operation, hint);
}

destroy_failure_handler set_destroy_failure_handler(destroy_failure_handler handler) noexcept {
  return current_destroy_failure_handler.exchange(handler != nullptr ? handler : &log_to_stderr,
                                                  std::memory_order_acq_rel);
}

}  // namespace verbspp
