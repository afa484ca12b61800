// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/verbspp.hpp>

#include <optional>
#include <string>

namespace common {

/// Opens the device with the given name, or the first device if no name is given.
inline verbspp::result<verbspp::context> open(const std::optional<std::string>& device) {
  using namespace verbspp;
  if (device) return open_device(*device);
  VERBSPP_TRY(devices, device_list::query());
  if (devices.empty())
    return error(error_kind::not_found, "choose device",
                 "libibverbs reports no RDMA device: check `rdma link` and the driver, or preload "
                 "libsoftverbs.so");
  return devices[0].open();
}

}  // namespace common
