// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

/// The most that a file of sysfs has.
inline constexpr std::size_t file_bytes = 4096;
using file_text = std::array<char, file_bytes>;

/// What a kernel's device would have at a path. The one above the devices has those of the kernel
/// in it, too, where there are any.
enum class file_kind { none, folder_of_devices, directory, text, command_device };

namespace detail {
inline constexpr std::string_view sysfs_folder = "/sys/class/infiniband";
inline constexpr std::string_view command_folder = "/dev/infiniband";

inline bool starts_with(const char* path, std::string_view start) noexcept {
  // Path and start part at the latest where the path ends.
  for (const char each : start)
    if (*path++ != each) return false;
  return true;
}
}  // namespace detail

/// Whether a path may be one of a soft device. All other files cost no more than this.
inline bool may_be_of_device(const char* path) noexcept {
  if (path == nullptr || path[0] != '/') return false;
  return detail::starts_with(path, detail::sysfs_folder) ||
         detail::starts_with(path, detail::command_folder);
}

/// What may stand behind the name of a folder goes.
inline std::string_view without_slashes(std::string_view path) noexcept {
  while (path.ends_with('/') || path.ends_with("/.")) path.remove_suffix(1);
  return path;
}

/// What the soft devices of this process have there; the text of a file, if it is one.
file_kind find_device_file(const char* path, file_text& text, std::size_t& size) noexcept;

/// The names of theirs in a folder, with those of itself and of the one above. None if it isn't
/// one.
std::vector<std::string> list_device_folder(const char* path);

}  // namespace softverbs
