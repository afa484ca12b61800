// SPDX-License-Identifier: Apache-2.0
#include "connections/devices.hpp"

#include "device/device.hpp"
#include "faults/faults.hpp"

#include <fcntl.h>

#include <array>

namespace softverbs {
namespace {

struct manager_device {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_xrcd* xrc_domain = nullptr;
};
std::array<manager_device, max_devices> manager_devices;

}  // namespace

bool serves_connections() { return faults::read_environment() && device_count() != 0; }

ibv_context* manager_context(unsigned device) {
  manager_device& ours = manager_devices[device];
  if (ours.context == nullptr) ours.context = ibv_open_device(&device_at(device).verbs);
  return ours.context;
}

ibv_pd* manager_domain(unsigned device) {
  manager_device& ours = manager_devices[device];
  if (ours.domain == nullptr)
    if (ibv_context* const context = manager_context(device)) ours.domain = ibv_alloc_pd(context);
  return ours.domain;
}

ibv_xrcd* manager_xrc_domain(unsigned device) {
  manager_device& ours = manager_devices[device];
  if (ours.xrc_domain == nullptr)
    if (ibv_context* const context = manager_context(device)) {
      // The domain has no file, so it belongs to this process only.
      ibv_xrcd_init_attr asked{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
      ours.xrc_domain = ibv_open_xrcd(context, &asked);
    }
  return ours.xrc_domain;
}

void abandon_devices() noexcept { manager_devices = {}; }

}  // namespace softverbs
