// SPDX-License-Identifier: Apache-2.0
#include "failing_verb.hpp"

#include "device.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#undef ibv_get_device_list

namespace verbspp::test {

/// A libibverbs function that this file replaces, and that a `failing_verb` can make fail. These
/// objects form a list, which is complete before `main` starts.
struct verb {
  verb(std::string_view function, convention usual) noexcept
      : name(function.substr(function.starts_with('_') ? 1 : 0)),
        own(usual),
        next(std::exchange(first_of_all, this)) {}

  /// Returns true if this call must fail. Counts the calls while a failure is requested.
  [[nodiscard]] bool fails() noexcept { return errnum != 0 && --calls_until_failure <= 0; }
  [[nodiscard]] answer told() const { return answer_by(by, errnum); }

  std::string_view name;
  convention own;
  verb* next;
  static inline verb* first_of_all = nullptr;

  std::atomic<int> errnum{0};  // 0 if the calls do not fail
  std::atomic<convention> by{};
  std::atomic<int> calls_until_failure{0};
};

}  // namespace verbspp::test

namespace {

using namespace verbspp::test;

std::atomic<int> live{0};
std::optional<ibv_async_event> injected;
std::optional<ibv_async_event> injected_later;
std::function<void()> before_destroy_qp;
std::function<void()> before_destroy_cq;
std::function<void()> before_dereg_mr;
std::optional<int> reregistration_returns;
int reregistration_errno = 0;
std::byte* dmabuf_memory = nullptr;
unsigned replaced_capabilities = 0;
unsigned claimed_capability_flags = 0;

std::uint16_t second_lid = 0;  // 0 unless a second port is simulated
int (*query_real_port)(ibv_context*, std::uint8_t, ibv_port_attr*, std::size_t) = nullptr;

std::uint8_t real_port(unsigned number) {
  return static_cast<std::uint8_t>(second_lid != 0 && number == 2 ? 1 : number);
}

int query_second_port(ibv_context* context, std::uint8_t number, ibv_port_attr* port,
                      std::size_t size) {
  const int errnum = query_real_port(context, real_port(number), port, size);
  if (errnum == 0 && number == 2) {
    port->lid = second_lid;
    port->link_layer = IBV_LINK_LAYER_INFINIBAND;
  }
  return errnum;
}

/// Returns the attributes to pass to the device. If they name the simulated second port, replaces
/// its number with 1.
ibv_qp_attr* at_real_port(ibv_qp_attr* attributes) {
  static ibv_qp_attr altered;
  if (second_lid == 0) return attributes;
  altered = *attributes;
  altered.port_num = real_port(altered.port_num);
  return &altered;
}

verb& find(std::string_view name) {
  for (verb* each = verb::first_of_all; each != nullptr; each = each->next)
    if (each->name == name) return *each;
  std::fprintf(stderr, "no verb that the tests define has the name %.*s\n",
               static_cast<int>(name.size()), name.data());
  std::abort();
}

/// Returns the next definition of the function: the one that would be called if this file did not
/// define it.
template <class Function>
Function* next(Function*, const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no library defines %s, which the tests replace\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define VERBSPP_TEST_NEXT(name) next(&name, #name)

/// If a call succeeded, counts the object that it created (`change` is 1) or destroyed (`change` is
/// -1).
template <class Outcome>
Outcome counted(Outcome outcome, int change) {
  if constexpr (std::is_pointer_v<Outcome>) {
    if (outcome != nullptr) live += change;
  } else {
    if (outcome == 0) live += change;
  }
  return outcome;
}

}  // namespace

namespace verbspp::test {

answer answer_by(convention told, int errnum) {
  switch (told) {
    case convention::returns_errno:
      return {errnum};
    case convention::negative_errno:
      return {-errnum};
    case convention::minus_one:
    case convention::null:
      errno = errnum;
      return {-1};
    case convention::minus_one_alone:
      return {-1};
  }
  std::abort();
}

failing_verb::failing_verb(std::string_view name, int errnum)
    : failing_verb(name, errnum, find(name).own) {}

failing_verb::failing_verb(std::string_view name, int errnum, convention told, int first)
    : verb_(find(name)) {
  verb_.by = told;
  verb_.calls_until_failure = first;
  verb_.errnum = errnum;
}

failing_verb::~failing_verb() { verb_.errnum = 0; }

int failing_verb::calls() const {
  const int left = verb_.calls_until_failure;
  return left > 0 ? 0 : 1 - left;
}

int live_objects() { return live; }

claimed_capabilities::claimed_capabilities(unsigned capabilities, unsigned claimed) {
  replaced_capabilities = capabilities;
  claimed_capability_flags = claimed;
}

claimed_capabilities::~claimed_capabilities() { replaced_capabilities = 0; }

second_port_stand_in::second_port_stand_in(ibv_context* device, std::uint16_t lid)
    : device_(device) {
  verbs_context* const operations = verbs_get_ctx(device);
  REQUIRE(operations != nullptr);
  query_real_port = std::exchange(operations->query_port, &query_second_port);
  second_lid = lid;
}

second_port_stand_in::~second_port_stand_in() {
  verbs_get_ctx(device_)->query_port = query_real_port;
  second_lid = 0;
}

void before_next_destroy_qp(std::function<void()> call) { before_destroy_qp = std::move(call); }
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

void inject(const ibv_async_event& event, const std::optional<ibv_async_event>& later) {
  injected = event;
  injected_later = later;
}

void withdraw_injected() {
  injected.reset();
  injected_later.reset();
}

}  // namespace verbspp::test

// Defines a verb. The definition takes precedence over those in libibverbs and softverbs, so calls
// from libverbspp reach it.
#define VERBSPP_TEST_VERB(returned, name, own, change, parameters, arguments) \
  namespace {                                                                 \
  verb name##_calls(#name, convention::own);                                  \
  }                                                                           \
  extern "C" returned name parameters {                                       \
    if (name##_calls.fails()) return name##_calls.told();                     \
    return counted(VERBSPP_TEST_NEXT(name) arguments, change);                \
  }

VERBSPP_TEST_VERB(ibv_device**, ibv_get_device_list, null, 0, (int* count), (count))
VERBSPP_TEST_VERB(ibv_context*, ibv_open_device, null, 1, (ibv_device * device), (device))
VERBSPP_TEST_VERB(int, ibv_close_device, minus_one, -1, (ibv_context * context), (context))
VERBSPP_TEST_VERB(int, _ibv_query_gid_ex, returns_errno, 0,
                  (ibv_context * context, std::uint32_t port, std::uint32_t index,
                   ibv_gid_entry* entry, std::uint32_t flags, std::size_t size),
                  (context, real_port(port), index, entry, flags, size))
VERBSPP_TEST_VERB(ssize_t, _ibv_query_gid_table, negative_errno, 0,
                  (ibv_context * context, ibv_gid_entry* entries, std::size_t most,
                   std::uint32_t flags, std::size_t size),
                  (context, entries, most, flags, size))
VERBSPP_TEST_VERB(int, ibv_fork_init, returns_errno, 0, (), ())

VERBSPP_TEST_VERB(ibv_pd*, ibv_alloc_pd, null, 1, (ibv_context * context), (context))
VERBSPP_TEST_VERB(int, ibv_dealloc_pd, returns_errno, -1, (ibv_pd * domain), (domain))
VERBSPP_TEST_VERB(ibv_ah*, ibv_create_ah, null, 1, (ibv_pd * domain, ibv_ah_attr* attributes),
                  (domain, attributes))
VERBSPP_TEST_VERB(int, ibv_destroy_ah, returns_errno, -1, (ibv_ah * handle), (handle))
VERBSPP_TEST_VERB(int, ibv_init_ah_from_wc, minus_one, 0,
                  (ibv_context * context, std::uint8_t port, ibv_wc* completion, ibv_grh* route,
                   ibv_ah_attr* attributes),
                  (context, port, completion, route, attributes))

VERBSPP_TEST_VERB(ibv_comp_channel*, ibv_create_comp_channel, null, 1, (ibv_context * context),
                  (context))
VERBSPP_TEST_VERB(int, ibv_destroy_comp_channel, returns_errno, -1, (ibv_comp_channel * channel),
                  (channel))
VERBSPP_TEST_VERB(int, ibv_get_cq_event, minus_one, 0,
                  (ibv_comp_channel * channel, ibv_cq** queue, void** user_context),
                  (channel, queue, user_context))
VERBSPP_TEST_VERB(ibv_cq*, ibv_create_cq, null, 1,
                  (ibv_context * context, int entries, void* user_context,
                   ibv_comp_channel* channel, int vector),
                  (context, entries, user_context, channel, vector))

VERBSPP_TEST_VERB(ibv_qp*, ibv_create_qp, null, 1, (ibv_pd * domain, ibv_qp_init_attr* initial),
                  (domain, initial))
VERBSPP_TEST_VERB(int, ibv_modify_qp, returns_errno, 0,
                  (ibv_qp * pair, ibv_qp_attr* attributes, int mask),
                  (pair, at_real_port(attributes), mask))
VERBSPP_TEST_VERB(int, ibv_query_qp, returns_errno, 0,
                  (ibv_qp * pair, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial),
                  (pair, attributes, mask, initial))
VERBSPP_TEST_VERB(int, ibv_attach_mcast, returns_errno, 0,
                  (ibv_qp * pair, const ibv_gid* group, std::uint16_t lid), (pair, group, lid))
VERBSPP_TEST_VERB(int, ibv_detach_mcast, returns_errno, 0,
                  (ibv_qp * pair, const ibv_gid* group, std::uint16_t lid), (pair, group, lid))

VERBSPP_TEST_VERB(ibv_srq*, ibv_create_srq, null, 1, (ibv_pd * domain, ibv_srq_init_attr* initial),
                  (domain, initial))
VERBSPP_TEST_VERB(int, ibv_modify_srq, returns_errno, 0,
                  (ibv_srq * queue, ibv_srq_attr* attributes, int mask), (queue, attributes, mask))
VERBSPP_TEST_VERB(int, ibv_query_srq, returns_errno, 0, (ibv_srq * queue, ibv_srq_attr* attributes),
                  (queue, attributes))
VERBSPP_TEST_VERB(int, ibv_destroy_srq, returns_errno, -1, (ibv_srq * queue), (queue))

VERBSPP_TEST_VERB(ibv_mr*, ibv_reg_mr_iova2, null, 1,
                  (ibv_pd * domain, void* address, std::size_t length, std::uint64_t iova,
                   unsigned access),
                  (domain, address, length, iova, access))

// These verbs are defined below without the macro, because they do more than fail on request.
namespace {
verb query_device_calls("ibv_query_device", convention::returns_errno);
verb destroy_qp_calls("ibv_destroy_qp", convention::returns_errno);
verb destroy_cq_calls("ibv_destroy_cq", convention::returns_errno);
verb dereg_mr_calls("ibv_dereg_mr", convention::returns_errno);
verb reg_dmabuf_mr_calls("ibv_reg_dmabuf_mr", convention::null);
verb get_async_event_calls("ibv_get_async_event", convention::minus_one);
}  // namespace

extern "C" {

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (query_device_calls.fails()) return query_device_calls.told();
  const int returned = VERBSPP_TEST_NEXT(ibv_query_device)(context, attributes);
  if (returned == 0 && replaced_capabilities != 0)
    attributes->device_cap_flags =
        (attributes->device_cap_flags & ~replaced_capabilities) | claimed_capability_flags;
  return returned;
}

int ibv_destroy_qp(ibv_qp* pair) {
  if (destroy_qp_calls.fails()) return destroy_qp_calls.told();
  if (before_destroy_qp) std::exchange(before_destroy_qp, nullptr)();
  return counted(VERBSPP_TEST_NEXT(ibv_destroy_qp)(pair), -1);
}

int ibv_destroy_cq(ibv_cq* queue) {
  if (destroy_cq_calls.fails()) return destroy_cq_calls.told();
  if (before_destroy_cq) std::exchange(before_destroy_cq, nullptr)();
  return counted(VERBSPP_TEST_NEXT(ibv_destroy_cq)(queue), -1);
}

int ibv_dereg_mr(ibv_mr* region) {
  if (dereg_mr_calls.fails()) return dereg_mr_calls.told();
  if (before_dereg_mr) std::exchange(before_dereg_mr, nullptr)();
  return counted(VERBSPP_TEST_NEXT(ibv_dereg_mr)(region), -1);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                          std::uint64_t iova, int fd, int access) {
  if (reg_dmabuf_mr_calls.fails()) return reg_dmabuf_mr_calls.told();
  ibv_mr* const region =
      VERBSPP_TEST_NEXT(ibv_reg_dmabuf_mr)(domain, offset, length, iova, fd, access);
  if (region == nullptr && dmabuf_memory != nullptr)
    return ibv_reg_mr_iova2(domain, dmabuf_memory + offset, length, iova,
                            static_cast<unsigned>(access));
  return counted(region, 1);
}

int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* domain, void* address, std::size_t length,
                 int access) {
  if (reregistration_returns) {
    errno = reregistration_errno;
    return *reregistration_returns;
  }
  return VERBSPP_TEST_NEXT(ibv_rereg_mr)(region, flags, domain, address, length, access);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (get_async_event_calls.fails()) return get_async_event_calls.told();
  if (injected) {
    *event = *injected;
    injected.reset();
    return 0;
  }
  if (injected_later) {
    injected = std::exchange(injected_later, std::nullopt);
    errno = EAGAIN;
    return -1;
  }
  return VERBSPP_TEST_NEXT(ibv_get_async_event)(context, event);
}
}
