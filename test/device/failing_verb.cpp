// SPDX-License-Identifier: Apache-2.0
#include "failing_verb.hpp"

#include "device.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

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
  reg_dmabuf_mr,
};

std::array<verb, 9> verbs{{
    {"ibv_create_comp_channel"},
    {"ibv_destroy_comp_channel"},
    {"ibv_create_cq"},
    {"ibv_destroy_cq"},
    {"ibv_get_cq_event"},
    {"ibv_get_async_event"},
    {"ibv_reg_mr"},
    {"ibv_dereg_mr"},
    {"ibv_reg_dmabuf_mr"},
}};

std::optional<ibv_async_event> injected;
std::function<void()> before_destroy_cq;
std::function<void()> before_dereg_mr;
std::optional<int> reregistration_returns;
int reregistration_errno = 0;
std::byte* dmabuf_memory = nullptr;
unsigned replaced_capabilities = 0;
unsigned claimed_capability_flags = 0;

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

claimed_capabilities::claimed_capabilities(unsigned capabilities, unsigned claimed) {
  replaced_capabilities = capabilities;
  claimed_capability_flags = claimed;
}

claimed_capabilities::~claimed_capabilities() { replaced_capabilities = 0; }

void before_next_destroy_cq(std::function<void()> call) { before_destroy_cq = std::move(call); }

void before_next_dereg_mr(std::function<void()> call) { before_dereg_mr = std::move(call); }

failing_reregistration::failing_reregistration(int returned, int errnum) {
  reregistration_returns = returned;
  reregistration_errno = errnum;
}

failing_reregistration::~failing_reregistration() { reregistration_returns.reset(); }

dmabuf_stand_in::dmabuf_stand_in(std::size_t size)
    : file_descriptor_(::memfd_create("dma-buf", MFD_CLOEXEC)),
      size_(size),
      memory_(static_cast<std::byte*>(MAP_FAILED)) {
  REQUIRE(file_descriptor_ >= 0);
  REQUIRE(::ftruncate(file_descriptor_, static_cast<off_t>(size)) == 0);
  memory_ = static_cast<std::byte*>(
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_descriptor_, 0));
  REQUIRE(memory_ != MAP_FAILED);
  dmabuf_memory = memory_;
}

dmabuf_stand_in::~dmabuf_stand_in() {
  dmabuf_memory = nullptr;
  ::munmap(memory_, size_);
  ::close(file_descriptor_);
}

void inject(const ibv_async_event& event) { injected = event; }

}  // namespace verbspp::test

// What libverbspp calls instead of libibverbs' or softverbs' own.
extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const int returned = VERBSPP_TEST_NEXT(ibv_query_device)(context, attributes);
  if (returned == 0 && replaced_capabilities != 0)
    attributes->device_cap_flags =
        (attributes->device_cap_flags & ~replaced_capabilities) | claimed_capability_flags;
  return returned;
}

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

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                          std::uint64_t iova, int fd, int access) {
  if (fails(reg_dmabuf_mr)) return nullptr;
  if (dmabuf_memory == nullptr)
    return VERBSPP_TEST_NEXT(ibv_reg_dmabuf_mr)(domain, offset, length, iova, fd, access);
  return VERBSPP_TEST_NEXT(ibv_reg_mr_iova2)(domain, dmabuf_memory + offset, length, iova,
                                             static_cast<unsigned>(access));
}

int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* domain, void* address, std::size_t length,
                 int access) {
  if (reregistration_returns) {
    errno = reregistration_errno;
    return *reregistration_returns;
  }
  return VERBSPP_TEST_NEXT(ibv_rereg_mr)(region, flags, domain, address, length, access);
}

int ibv_dereg_mr(ibv_mr* region) {
  if (fails(dereg_mr)) return errno;
  if (before_dereg_mr) std::exchange(before_dereg_mr, nullptr)();
  return VERBSPP_TEST_NEXT(ibv_dereg_mr)(region);
}
}
