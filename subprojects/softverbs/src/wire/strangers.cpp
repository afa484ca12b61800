// SPDX-License-Identifier: Apache-2.0
#include "wire/strangers.hpp"

#include "base/clock.hpp"
#include "device/environment.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace softverbs {
namespace {

/// The version of the packets, and of everything else that processes send to each other.
constexpr unsigned protocol_version = 7;

constexpr std::string_view everybody = "softverbs/";

/// The minimum time between two searches of the kernel's list of sockets, which may be long.
/// Without this limit, a process that keeps trying to reach an exited peer would search the list
/// each time.
constexpr nanoseconds between_looks = 1'000'000'000;

/// True if this line of /proc/net/unix describes a socket that has this slot, but a different
/// prefix. Such a line ends with the socket's name, in which `@` stands for the initial zero byte.
bool is_stranger(std::string_view line, std::uint32_t slot) noexcept {
  line = line.substr(0, line.find('\n'));
  const std::size_t start = line.find(" @softverbs/");
  if (start == std::string_view::npos) return false;
  const std::string_view name = line.substr(start + 2);
  const std::size_t end = name.rfind('/');
  const std::string_view digits = name.substr(end + 1);
  std::uint32_t number = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return end > everybody.size() && name.substr(0, end) != own_kind() && error == std::errc{} &&
         rest == digits.data() + digits.size() && number == slot;
}

}  // namespace

const char* own_kind() noexcept {
  static const auto text = [] {
    std::array<char, 40> result{};
    if (const std::uint32_t fingerprint = configured().fingerprint)
      std::snprintf(result.data(), result.size(), "softverbs/%u.%08x", protocol_version,
                    fingerprint);
    else
      std::snprintf(result.data(), result.size(), "softverbs/%u", protocol_version);
    return result;
  }();
  return text.data();
}

void tell_of_stranger(std::uint32_t slot) noexcept {
  // The engine's lock protects these variables; callers hold it.
  static bool told = false;
  static nanoseconds next_look = 0;
  if (told || now() < next_look) return;
  next_look = now() + between_looks;
  std::FILE* sockets = std::fopen("/proc/net/unix", "re");
  if (sockets == nullptr) return;
  std::array<char, 256> line;
  while (!told && std::fgets(line.data(), line.size(), sockets) != nullptr)
    told = is_stranger(line.data(), slot);
  std::fclose(sockets);
  if (told)
    std::fprintf(
        stderr,
        "softverbs: a peer of this process can't be reached, probably because it has another "
        "version or configuration of softverbs: use the same version, the same file in "
        "SOFTVERBS_CONFIG (or none), and the same SOFTVERBS_LINK_LAYER for both processes\n");
}

}  // namespace softverbs
