// SPDX-License-Identifier: Apache-2.0
#include "device/environment.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace softverbs {
namespace {

bool parse_devices(const char* text, unsigned& devices) noexcept {
  const char* const end = text + std::strlen(text);
  unsigned value = 0;
  const auto [stopped, failed] = std::from_chars(text, end, value);
  if (failed != std::errc() || stopped != end || value > max_devices) return false;
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

bool parse_sharing(const char* text, bool& shares) noexcept {
  if (std::strcmp(text, "yes") != 0 && std::strcmp(text, "no") != 0) return false;
  shares = *text == 'y';
  return true;
}

/// Returns the contents of the file, or nothing with errno set.
std::optional<std::string> contents_of(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  int error = 0;
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file)) {
    text.append(piece.data(), got);
    // Some files never end, for example /dev/zero.
    if (text.size() > longest_configuration) {
      error = EFBIG;
      break;
    }
  }
  if (std::ferror(file) != 0) error = errno;
  std::fclose(file);
  errno = error;
  return error == 0 ? std::optional(std::move(text)) : std::nullopt;
}

constexpr const char* consequence = "there will be no soft device";

/// Reads a configuration file. If it can't be read or is not valid, returns nothing, and reports
/// the cause on stderr.
std::optional<configuration> read_file(const char* path, link_layer usual) {
  const auto text = contents_of(path);
  if (!text) {
    std::fprintf(stderr, "softverbs: SOFTVERBS_CONFIG: %s: %s; %s\n", path, std::strerror(errno),
                 consequence);
    return std::nullopt;
  }
  configuration_problem problem;
  auto result = read_configuration(*text, usual, problem);
  if (!result)
    std::fprintf(stderr, "softverbs: %s:%u: %s; %s\n", path, problem.line, problem.text.c_str(),
                 consequence);
  return result;
}

struct environment {
  configuration devices;
  /// The default description of a device if there is no configuration file. It also describes
  /// devices that only other processes have.
  std::optional<device_description> usual;
};

environment read_environment() {
  environment result;
  bool valid = true;
  unsigned devices = 1;
  link_layer layer = link_layer::ethernet;
  const char* count = std::getenv("SOFTVERBS_DEVICES");
  if (count != nullptr && !parse_devices(count, devices)) {
    std::fprintf(stderr,
                 "softverbs: SOFTVERBS_DEVICES is \"%s\", but must be a number from 0 to %u; %s\n",
                 count, max_devices, consequence);
    valid = false;
  }
  if (const char* text = std::getenv("SOFTVERBS_LINK_LAYER");
      text != nullptr && !parse_layer(text, layer)) {
    std::fprintf(stderr,
                 "softverbs: SOFTVERBS_LINK_LAYER is \"%s\", but must be \"ethernet\" or "
                 "\"infiniband\"; %s\n",
                 text, consequence);
    valid = false;
  }
  if (const char* text = std::getenv("SOFTVERBS_SHARED_MEMORY");
      text != nullptr && !parse_sharing(text, result.devices.shares_memory)) {
    std::fprintf(
        stderr, "softverbs: SOFTVERBS_SHARED_MEMORY is \"%s\", but must be \"yes\" or \"no\"; %s\n",
        text, consequence);
    valid = false;
  }
  const char* file = std::getenv("SOFTVERBS_CONFIG");
  // Some programs can't remove a variable from the environment of a program that they start, and
  // set it to an empty string instead.
  if (file != nullptr && *file == '\0') file = nullptr;
  if (file != nullptr && count != nullptr) {
    std::fprintf(
        stderr,
        "softverbs: SOFTVERBS_CONFIG and SOFTVERBS_DEVICES can't both be set, because both "
        "define the number of devices; %s\n",
        consequence);
    valid = false;
  }
  if (!valid) return result;
  if (file != nullptr) {
    if (auto read = read_file(file, layer)) {
      read->shares_memory = result.devices.shares_memory;
      result.devices = std::move(*read);
    }
    return result;
  }
  result.usual.emplace();
  for (port_description& port : result.usual->ports) port.layer = layer;
  result.devices.devices.assign(devices, *result.usual);
  return result;
}

/// Divides the queue pairs and receive work queues of a process among its devices. Each device
/// reports at most its share as its limit.
void share_queue_pairs(configuration& all) noexcept {
  for (device_description& each : all.devices) {
    const auto share = limits::queue_pairs / static_cast<std::uint32_t>(all.devices.size());
    each.most.queue_pairs = std::min(each.most.queue_pairs, share);
    each.most.receive_work_queues = std::min(each.most.receive_work_queues, share);
  }
}

const environment& the_environment() noexcept {
  static const environment result = [] {
    environment all = read_environment();
    share_queue_pairs(all.devices);
    return all;
  }();
  return result;
}

}  // namespace

const configuration& configured() noexcept { return the_environment().devices; }

const device_description* described(unsigned number) noexcept {
  const environment& all = the_environment();
  if (number < all.devices.devices.size()) return &all.devices.devices[number];
  return number < max_devices && all.usual ? &*all.usual : nullptr;
}

}  // namespace softverbs
