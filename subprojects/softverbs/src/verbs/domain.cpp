// SPDX-License-Identifier: Apache-2.0
// The entry points for protection domains, thread domains and parent domains.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "memory/protection_domain.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

template <typename Result>
Result* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

/// A domain of that kind, which `prepare` fills in; null with errno set.
template <typename Prepare>
ibv_pd* allocate(ibv_context* verbs, Prepare prepare) {
  device_context& device = device_context::of(verbs);
  if (!device.usable()) return failed<ibv_pd>(EIO);
  try {
    auto domain = std::make_unique<protection_domain>();
    domain->context = verbs;
    const std::lock_guard held(device.engine().lock());
    if (device.domains.size() >= device.device().most().protection_domains)
      return failed<ibv_pd>(ENOMEM);
    device.domains.insert(domain.get());
    static std::uint32_t last_number = 0;
    domain->number = ++last_number;
    prepare(*domain);
    return domain.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_pd>(ENOMEM);
  }
}

}  // namespace

SOFTVERBS_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* verbs) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_alloc_pd)(verbs);
  SOFTVERBS_FAULT(ibv_alloc_pd, verbs);
  return allocate(verbs, [](protection_domain&) {});
}

ibv_pd* inline_calls::alloc_parent_domain(ibv_context* verbs,
                                          ibv_parent_domain_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_parent_domain, verbs);
  // Nothing here is allocated for the device to look at, so a program's allocator would never be
  // called.
  if ((attributes->comp_mask & ~std::uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT}) != 0 ||
      attributes->pd == nullptr || attributes->pd->context != verbs ||
      (attributes->td != nullptr && attributes->td->context != verbs))
    return failed<ibv_pd>(EINVAL);
  return allocate(verbs, [&](protection_domain& domain) {
    domain.below = static_cast<protection_domain*>(attributes->pd);
    ++domain.below->children;
    domain.number = domain.below->number;
    domain.thread = static_cast<thread_domain*>(attributes->td);
    if (domain.thread != nullptr) ++domain.thread->children;
  });
}

SOFTVERBS_EXPORT int ibv_dealloc_pd(ibv_pd* domain) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_dealloc_pd)(domain);
  SOFTVERBS_FAULT(ibv_dealloc_pd, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<protection_domain*>(domain);
  if (ours->children != 0) return EBUSY;
  if (ours->is_parent_domain()) --ours->below->children;
  if (ours->thread != nullptr) --ours->thread->children;
  device.domains.erase(ours);
  delete ours;
  return 0;
}

ibv_td* inline_calls::alloc_td(ibv_context* verbs, ibv_td_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_td, verbs);
  device_context& device = device_context::of(verbs);
  if (!device.usable()) return failed<ibv_td>(EIO);
  if (attributes->comp_mask != 0) return failed<ibv_td>(EINVAL);
  try {
    auto domain = std::make_unique<thread_domain>();
    domain->context = verbs;
    const std::lock_guard held(device.engine().lock());
    device.thread_domains.insert(domain.get());
    return domain.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_td>(ENOMEM);
  }
}

int inline_calls::dealloc_td(ibv_td* domain) {
  SOFTVERBS_FAULT(ibv_dealloc_td, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<thread_domain*>(domain);
  if (ours->children != 0) return EBUSY;
  device.thread_domains.erase(ours);
  delete ours;
  return 0;
}
