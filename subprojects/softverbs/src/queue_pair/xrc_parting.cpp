// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/xrc_parting.hpp"

#include "machine/machine.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/shared_receive_queue.hpp"

#include <mutex>

namespace softverbs {

void part(xrc_target& target) {
  --target.domain.children;
  queue_pair& pair = target.pair;
  {
    const std::lock_guard held(pair.lock());
    if (pair.closed_by(target)) return;
  }
  pair.leave_machine();
  target.domain.domain->queue_pairs.erase(pair.number());
  delete &pair;
}

void part(shared_receive_queue& queue, machine& from) {
  if (!queue.is_of_xrc()) return;
  xrc_domain& domain = *queue.xrc.domain->domain;
  for (const auto& [number, each] : domain.queue_pairs) {
    queue_pair& pair = *static_cast<queue_pair*>(each);
    const std::lock_guard held(pair.lock());
    pair.responses.forget(queue);
  }
  from.xrc_domains.remove(domain, queue.xrc.number);
  --queue.xrc.completions->queue_pairs;
  --queue.xrc.domain->children;
}

void part(xrc_opening& opening, machine& from) noexcept { from.xrc_domains.close(*opening.domain); }

}  // namespace softverbs
