// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

/// The space for the text of a file, in bytes.
inline constexpr std::size_t file_bytes = 4096;
using file_text = std::array<char, file_bytes>;

/// The kind of file that a kernel device would have at a path. The folder of devices also contains
/// the kernel's devices, if any.
enum class file_kind { none, folder_of_devices, directory, text, command_device };

namespace detail {
inline constexpr std::string_view sysfs_folder = "/sys/class/infiniband";
inline constexpr std::string_view command_folder = "/dev/infiniband";

inline bool starts_with(const char* path, std::string_view start) noexcept {
  // The loop never reads beyond the path's terminating null, which equals no character of `start`.
  for (const char each : start)
    if (*path++ != each) return false;
  return true;
}
}  // namespace detail

/// True if a path may belong to a soft device. Calls with other paths cost only this check.
inline bool may_be_of_device(const char* path) noexcept {
  if (path == nullptr || path[0] != '/') return false;
  return detail::starts_with(path, detail::sysfs_folder) ||
         detail::starts_with(path, detail::command_folder);
}

/// Removes `/` and `/.` from the end of a path.
inline std::string_view without_slashes(std::string_view path) noexcept {
  while (path.ends_with('/') || path.ends_with("/.")) path.remove_suffix(1);
  return path;
}

/// Returns the kind of file that the soft devices of this process have at a path. If it is a text
/// file, sets `text` and `size`.
file_kind find_device_file(const char* path, file_text& text, std::size_t& size) noexcept;

/// Returns the names of the soft devices' files in a folder, with `.` and `..`, or nothing if
/// `path` isn't a folder of theirs.
std::vector<std::string> list_device_folder(const char* path);

}  // namespace softverbs
