// SPDX-License-Identifier: Apache-2.0
// The entry points of completion counters, which were added in IBVERBS_1.18. They are defined by
// symbol name, because older headers don't declare them.
#include "completion/completion_counter.hpp"
#include "machine/engine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>

using namespace softverbs;

namespace {

constexpr std::uint32_t most_counters = 4096;

/// Calls the next library's function `name`. Returns EOPNOTSUPP if there is none.
template <typename... Parameters>
int call_next(int (*)(Parameters...), const char* name,
              std::type_identity_t<Parameters>... arguments) {
  if (void* const found = next_symbol(name))
    return reinterpret_cast<int (*)(Parameters...)>(found)(arguments...);
  return EOPNOTSUPP;
}

/// Applies `change` to one of the two numbers of a counter.
template <typename Change>
int with(newer::comp_cntr* counter, std::atomic<std::uint64_t> completion_counter::* number,
         Change change) {
  if (!device_context::of(counter->context).usable()) return EIO;
  change(static_cast<completion_counter*>(counter)->*number);
  return 0;
}

}  // namespace

SOFTVERBS_EXPORT int softverbs_query_comp_cntr_caps(
    ibv_context* verbs, newer::comp_cntr_caps* caps,
    std::size_t size) __asm__("_ibv_query_comp_cntr_caps");
SOFTVERBS_EXPORT newer::comp_cntr* softverbs_create_comp_cntr(
    ibv_context* verbs, newer::comp_cntr_init_attr* asked) __asm__("ibv_create_comp_cntr");
SOFTVERBS_EXPORT int softverbs_destroy_comp_cntr(newer::comp_cntr* counter) __asm__(
    "ibv_destroy_comp_cntr");
SOFTVERBS_EXPORT int softverbs_set_comp_cntr(newer::comp_cntr* counter,
                                             std::uint64_t value) __asm__("ibv_set_comp_cntr");
SOFTVERBS_EXPORT int softverbs_set_err_comp_cntr(
    newer::comp_cntr* counter, std::uint64_t value) __asm__("ibv_set_err_comp_cntr");
SOFTVERBS_EXPORT int softverbs_inc_comp_cntr(newer::comp_cntr* counter,
                                             std::uint64_t amount) __asm__("ibv_inc_comp_cntr");
SOFTVERBS_EXPORT int softverbs_inc_err_comp_cntr(
    newer::comp_cntr* counter, std::uint64_t amount) __asm__("ibv_inc_err_comp_cntr");
SOFTVERBS_EXPORT int softverbs_read_comp_cntr(newer::comp_cntr* counter,
                                              std::uint64_t* value) __asm__("ibv_read_comp_cntr");
SOFTVERBS_EXPORT int softverbs_read_err_comp_cntr(
    newer::comp_cntr* counter, std::uint64_t* value) __asm__("ibv_read_err_comp_cntr");
SOFTVERBS_EXPORT int softverbs_qp_attach_comp_cntr(
    ibv_qp* pair, newer::comp_cntr* counter,
    newer::comp_cntr_attach_attr* asked) __asm__("ibv_qp_attach_comp_cntr");

int softverbs_query_comp_cntr_caps(ibv_context* verbs, newer::comp_cntr_caps* caps,
                                   std::size_t size) {
  if (!is_soft(verbs))
    return call_next(&softverbs_query_comp_cntr_caps, "_ibv_query_comp_cntr_caps", verbs, caps,
                     size);
  const newer::comp_cntr_caps known{.max_value = std::numeric_limits<std::uint64_t>::max(),
                                    .max_counters = most_counters,
                                    .attach_operations = countable_operations};
  std::memset(static_cast<void*>(caps), 0, size);
  std::memcpy(static_cast<void*>(caps), &known, std::min(size, sizeof(known)));
  return 0;
}

newer::comp_cntr* softverbs_create_comp_cntr(ibv_context* verbs,
                                             newer::comp_cntr_init_attr* asked) {
  if (!is_soft(verbs)) {
    using create = newer::comp_cntr*(ibv_context*, newer::comp_cntr_init_attr*);
    auto* const next = reinterpret_cast<create*>(next_symbol("ibv_create_comp_cntr"));
    return next != nullptr ? next(verbs, asked) : failed<newer::comp_cntr>(EOPNOTSUPP);
  }
  if (asked->comp_mask != 0 || asked->flags != 0 || asked->type > newer::comp_cntr_of_bytes)
    return failed<newer::comp_cntr>(EINVAL);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  device_context& device = device_context::of(verbs);
  try {
    static std::uint32_t last_number = 0;
    const std::lock_guard held(device.engine().lock());
    if (device.completion_counters.size() >= most_counters) return failed<newer::comp_cntr>(ENOMEM);
    auto made = std::make_unique<completion_counter>(verbs, ++last_number,
                                                     asked->type == newer::comp_cntr_of_bytes);
    device.completion_counters.insert(made.get());
    return made.release();
  } catch (const std::bad_alloc&) {
    return failed<newer::comp_cntr>(ENOMEM);
  }
}

int softverbs_destroy_comp_cntr(newer::comp_cntr* counter) {
  if (!is_soft(counter))
    return call_next(&softverbs_destroy_comp_cntr, "ibv_destroy_comp_cntr", counter);
  device_context& device = device_context::of(counter->context);
  if (!device.usable()) return EIO;
  auto* const ours = static_cast<completion_counter*>(counter);
  const std::lock_guard held(device.engine().lock());
  if (ours->attached != 0) return EBUSY;
  device.completion_counters.erase(ours);
  delete ours;
  return 0;
}

int softverbs_set_comp_cntr(newer::comp_cntr* counter, std::uint64_t value) {
  if (!is_soft(counter))
    return call_next(&softverbs_set_comp_cntr, "ibv_set_comp_cntr", counter, value);
  return with(counter, &completion_counter::completed, [&](auto& number) { number = value; });
}

int softverbs_set_err_comp_cntr(newer::comp_cntr* counter, std::uint64_t value) {
  if (!is_soft(counter))
    return call_next(&softverbs_set_err_comp_cntr, "ibv_set_err_comp_cntr", counter, value);
  return with(counter, &completion_counter::failed, [&](auto& number) { number = value; });
}

int softverbs_inc_comp_cntr(newer::comp_cntr* counter, std::uint64_t amount) {
  if (!is_soft(counter))
    return call_next(&softverbs_inc_comp_cntr, "ibv_inc_comp_cntr", counter, amount);
  return with(counter, &completion_counter::completed, [&](auto& number) { number += amount; });
}

int softverbs_inc_err_comp_cntr(newer::comp_cntr* counter, std::uint64_t amount) {
  if (!is_soft(counter))
    return call_next(&softverbs_inc_err_comp_cntr, "ibv_inc_err_comp_cntr", counter, amount);
  return with(counter, &completion_counter::failed, [&](auto& number) { number += amount; });
}

int softverbs_read_comp_cntr(newer::comp_cntr* counter, std::uint64_t* value) {
  if (!is_soft(counter))
    return call_next(&softverbs_read_comp_cntr, "ibv_read_comp_cntr", counter, value);
  return with(counter, &completion_counter::completed, [&](auto& number) { *value = number; });
}

int softverbs_read_err_comp_cntr(newer::comp_cntr* counter, std::uint64_t* value) {
  if (!is_soft(counter))
    return call_next(&softverbs_read_err_comp_cntr, "ibv_read_err_comp_cntr", counter, value);
  return with(counter, &completion_counter::failed, [&](auto& number) { *value = number; });
}

int softverbs_qp_attach_comp_cntr(ibv_qp* pair, newer::comp_cntr* counter,
                                  newer::comp_cntr_attach_attr* asked) {
  if (!is_soft(pair))
    return call_next(&softverbs_qp_attach_comp_cntr, "ibv_qp_attach_comp_cntr", pair, counter,
                     asked);
  device_context& device = device_context::of(pair->context);
  if (!device.usable()) return EIO;
  if (asked->comp_mask != 0 || asked->op_mask == 0 || counter->context != pair->context)
    return EINVAL;
  if ((asked->op_mask & ~countable_operations) != 0 || pair->qp_type == IBV_QPT_XRC_RECV)
    return EOPNOTSUPP;
  auto* const ours = static_cast<queue_pair*>(pair);
  const std::lock_guard held(device.engine().lock());
  const std::lock_guard held_here(ours->lock());
  return ours->attach(*static_cast<completion_counter*>(counter), asked->op_mask);
}
