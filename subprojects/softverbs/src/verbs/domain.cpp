// SPDX-License-Identifier: Apache-2.0
// The entry points for protection domains, thread domains and parent domains.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "memory/protection_domain.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// Creates a domain, and calls `prepare` to initialize it; `prepare` returns 0 or an errno value.
/// Returns null with errno set on failure.
template <typename Prepare>
ibv_pd* allocate(ibv_context* verbs, Prepare prepare) {
  device_context& device = device_context::of(verbs);
  if (!device.usable()) return failed<ibv_pd>(EIO);
  try {
    auto domain = std::make_unique<protection_domain>();
    domain->context = verbs;
    const std::lock_guard held(device.engine().lock());
    if (device.file->domains_alive >= device.device().most().protection_domains)
      return failed<ibv_pd>(ENOMEM);
    device.file->domains.insert(domain.get());
    static std::uint32_t last_number = 0;
    domain->number = ++last_number;
    if (const int error = prepare(*domain)) {
      device.file->domains.erase(domain.get());
      return failed<ibv_pd>(error);
    }
    // ibv_import_pd finds the domain by this handle. A parent domain has the handle of the domain
    // below it.
    domain->handle = domain->number;
    ++device.file->domains_alive;
    return domain.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_pd>(ENOMEM);
  }
}

}  // namespace

SOFTVERBS_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* verbs) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_alloc_pd)(verbs);
  SOFTVERBS_FAULT(ibv_alloc_pd, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  return allocate(verbs, [](protection_domain&) { return 0; });
}

ibv_pd* inline_calls::alloc_parent_domain(ibv_context* verbs,
                                          ibv_parent_domain_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_parent_domain, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  constexpr std::uint32_t known =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  const auto given = [&](std::uint32_t attribute) {
    return (attributes->comp_mask & attribute) != 0;
  };
  const bool allocates = given(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS);
  if ((attributes->comp_mask & ~known) != 0) return failed<ibv_pd>(EOPNOTSUPP);
  if (attributes->pd == nullptr || attributes->pd->context != verbs ||
      (attributes->td != nullptr && attributes->td->context != verbs) ||
      (allocates && (attributes->alloc == nullptr || attributes->free == nullptr)))
    return failed<ibv_pd>(EINVAL);
  return allocate(verbs, [&](protection_domain& domain) {
    auto* below = static_cast<protection_domain*>(attributes->pd);
    if (below->of->destroyed) return EINVAL;
    domain.below = below;
    ++domain.below->children;
    domain.number = domain.below->number;
    domain.thread = static_cast<thread_domain*>(attributes->td);
    if (domain.thread != nullptr) ++domain.thread->children;
    if (allocates) {
      domain.allocate = attributes->alloc;
      domain.free = attributes->free;
    }
    if (given(IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
      domain.allocators_context = attributes->pd_context;
    return 0;
  });
}

SOFTVERBS_EXPORT int ibv_dealloc_pd(ibv_pd* domain) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_dealloc_pd)(domain);
  SOFTVERBS_FAULT(ibv_dealloc_pd, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<protection_domain*>(domain);
  if (ours->of->destroyed) return ENOENT;
  if (ours->children != 0) return EBUSY;
  if (ours->is_parent_domain()) --ours->below->children;
  if (ours->thread != nullptr) --ours->thread->children;
  ours->of->destroyed = true;
  --device.file->domains_alive;
  if (ours->of.use_count() == 1) {
    device.file->domains.erase(ours);
    delete ours;
    return 0;
  }
  // Also deletes the domain's other structures that the program has already unimported.
  const auto of = ours->of;
  std::erase_if(device.file->domains, [&](protection_domain* each) {
    if (each != ours && (each->of != of || !each->unimported)) return false;
    delete each;
    return true;
  });
  return 0;
}

ibv_td* inline_calls::alloc_td(ibv_context* verbs, ibv_td_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_td, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
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
