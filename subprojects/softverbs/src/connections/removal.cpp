// SPDX-License-Identifier: Apache-2.0
#include "connections/removal.hpp"

#include "connections/identifier.hpp"
#include "faults/faults.hpp"

namespace softverbs {
namespace {

/// Notifies identifiers when their device has broken. All channels watch the descriptor that
/// reports this. `on_ready` checks all identifiers, so the channel that is polled first does the
/// work for all channels.
class breakage_watch final : public channel_member {
 public:
  void on_ready() override {
    for_each_identifier([](identifier& each) { each.look_at_device(); });
  }
  void on_time() override {}
};

}  // namespace

std::unique_ptr<event_channel> open_channel() {
  static breakage_watch devices;
  const int breakages = faults::breakage_descriptor();
  if (breakages < 0) return nullptr;
  auto opened = event_channel::open();
  if (opened && !opened->watch_edges(breakages, devices)) return nullptr;
  return opened;
}

}  // namespace softverbs
