// SPDX-License-Identifier: Apache-2.0
#include "failing_verb.hpp"

#include "device.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace {

struct verb {
  std::string_view name;
  std::atomic<int> errnum{0};  // 0: calls go on to the device
  std::atomic<int> calls{0};
};

enum : std::size_t {
  create_comp_channel,
  destroy_comp_channel,
  create_cq,
  destroy_cq,
  get_cq_event,
  get_async_event,
  reg_mr,
  dereg_mr,
};

std::array<verb, 8> verbs{{
    {"ibv_create_comp_channel"},
    {"ibv_destroy_comp_channel"},
    {"ibv_create_cq"},
    {"ibv_destroy_cq"},
    {"ibv_get_cq_event"},
    {"ibv_get_async_event"},
    {"ibv_reg_mr"},
    {"ibv_dereg_mr"},
}};

std::optional<ibv_async_event> injected;
std::function<void()> before_destroy_cq;

/// Whether this call has to fail; then errno is set.
bool fails(std::size_t index) {
  const int errnum = verbs[index].errnum;
  if (errnum == 0) return false;
  ++verbs[index].calls;
  errno = errnum;
  return true;
}

/// The definition that would be called without this file.
template <class Function>
Function* next(Function*, const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s behind the tests' own one\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define VERBSPP_TEST_NEXT(name) next(&name, #name)

}  // namespace

namespace verbspp::test {

failing_verb::failing_verb(std::string_view name, int errnum) : index_(0) {
  while (index_ < verbs.size() && verbs[index_].name != name) ++index_;
  if (index_ == verbs.size()) std::abort();
  verbs[index_].calls = 0;
  verbs[index_].errnum = errnum;
}

failing_verb::~failing_verb() { verbs[index_].errnum = 0; }

int failing_verb::calls() const { return verbs[index_].calls; }

failing_device::failing_device(const char* fault) {
  auto* const inject_fault =
      reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_DEFAULT, "softverbs_inject"));
  if (inject_fault == nullptr || !device_name().starts_with("soft"))
    SKIP("only the software device fails on demand");
  REQUIRE(inject_fault(fault) == 0);
}

failing_device::~failing_device() {
  reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "softverbs_reset_faults"))();
}

void before_next_destroy_cq(std::function<void()> call) { before_destroy_cq = std::move(call); }

void inject(const ibv_async_event& event) { injected = event; }

}  // namespace verbspp::test

// What libverbspp calls instead of libibverbs' or softverbs' own.
extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (fails(create_comp_channel)) return nullptr;
  return VERBSPP_TEST_NEXT(ibv_create_comp_channel)(context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (fails(destroy_comp_channel)) return errno;
  return VERBSPP_TEST_NEXT(ibv_destroy_comp_channel)(channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user_context,
                      ibv_comp_channel* channel, int vector) {
  if (fails(create_cq)) return nullptr;
  return VERBSPP_TEST_NEXT(ibv_create_cq)(context, entries, user_context, channel, vector);
}

int ibv_destroy_cq(ibv_cq* queue) {
  if (fails(destroy_cq)) return errno;
  if (before_destroy_cq) std::exchange(before_destroy_cq, nullptr)();
  return VERBSPP_TEST_NEXT(ibv_destroy_cq)(queue);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user_context) {
  if (fails(get_cq_event)) return -1;
  return VERBSPP_TEST_NEXT(ibv_get_cq_event)(channel, queue, user_context);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (fails(get_async_event)) return -1;
  if (injected) {
    *event = *injected;
    injected.reset();
    return 0;
  }
  return VERBSPP_TEST_NEXT(ibv_get_async_event)(context, event);
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int access) {
  if (fails(reg_mr)) return nullptr;
  return VERBSPP_TEST_NEXT(ibv_reg_mr)(domain, address, length, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  if (fails(reg_mr)) return nullptr;
  return VERBSPP_TEST_NEXT(ibv_reg_mr_iova2)(domain, address, length, iova, access);
}

int ibv_dereg_mr(ibv_mr* region) {
  if (fails(dereg_mr)) return errno;
  return VERBSPP_TEST_NEXT(ibv_dereg_mr)(region);
}
}
