// SPDX-License-Identifier: Apache-2.0
#include "device/environment.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softverbs {
namespace {

bool parse_devices(const char* text, unsigned& devices) noexcept {
  const std::size_t length = std::strlen(text);
  if (length == 0 || length > 2) return false;
  unsigned value = 0;
  for (const char* digit = text; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9') return false;
    value = value * 10 + static_cast<unsigned>(*digit - '0');
  }
  if (value > max_devices) return false;
  devices = value;
  return true;
}

bool parse_layer(const char* text, link_layer& layer) noexcept {
  if (std::strcmp(text, "ethernet") == 0) {
    layer = link_layer::ethernet;
    return true;
  }
  if (std::strcmp(text, "infiniband") == 0) {
    layer = link_layer::infiniband;
    return true;
  }
  return false;
}

configuration read_environment() noexcept {
  configuration result;
  bool valid = true;
  if (const char* text = std::getenv("SOFTVERBS_DEVICES");
      text != nullptr && !parse_devices(text, result.devices)) {
    std::fprintf(stderr,
                 "softverbs: SOFTVERBS_DEVICES is \"%s\", but must be a number from 0 to %u; "
                 "there will be no soft device\n",
                 text, max_devices);
    valid = false;
  }
  if (const char* text = std::getenv("SOFTVERBS_LINK_LAYER");
      text != nullptr && !parse_layer(text, result.layer)) {
    std::fprintf(stderr,
                 "softverbs: SOFTVERBS_LINK_LAYER is \"%s\", but must be \"ethernet\" or "
                 "\"infiniband\"; there will be no soft device\n",
                 text);
    valid = false;
  }
  if (!valid) result.devices = 0;
  return result;
}

}  // namespace

const configuration& configured() noexcept {
  static const configuration result = read_environment();
  return result;
}

}  // namespace softverbs
