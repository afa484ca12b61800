// SPDX-License-Identifier: Apache-2.0
#include "connections/devices.hpp"

#include "device/device.hpp"
#include "faults/faults.hpp"

#include <array>

namespace softverbs {
namespace {

struct manager_device {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
};
std::array<manager_device, max_devices> devices;

}  // namespace

bool serves_connections() { return faults::read_environment() && device_count() != 0; }

ibv_context* manager_context(unsigned device) {
  manager_device& ours = devices[device];
  if (ours.context == nullptr) ours.context = ibv_open_device(&device_at(device).verbs);
  return ours.context;
}

ibv_pd* manager_domain(unsigned device) {
  manager_device& ours = devices[device];
  if (ours.domain == nullptr)
    if (ibv_context* const context = manager_context(device)) ours.domain = ibv_alloc_pd(context);
  return ours.domain;
}

void abandon_devices() noexcept { devices = {}; }

}  // namespace softverbs
