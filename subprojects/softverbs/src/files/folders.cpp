// SPDX-License-Identifier: Apache-2.0
// Wrappers of the libc functions with which programs list the folders of a device. For other
// folders, the wrappers do little additional work: they compare the first characters of a path and,
// while a folder of a device is open, compare the stream with the streams of the open folders.
#include "files/device_files.hpp"
#include "files/libc_function.hpp"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

using softverbs::call;
using softverbs::libc_function;

namespace {

template <typename Entry>
using wanted_function = int (*)(const Entry*);
template <typename Entry>
using order_function = int (*)(const Entry**, const Entry**);
template <typename Entry>
using scan_function = int(const char*, Entry***, wanted_function<Entry>, order_function<Entry>);

using stream_function = int(DIR*);
constinit libc_function<DIR*(const char*)> next_opendir("opendir");
constinit libc_function<stream_function> next_closedir("closedir");
constinit libc_function<stream_function> next_dirfd("dirfd");
constinit libc_function<void(DIR*)> next_rewinddir("rewinddir");
constinit libc_function<long(DIR*)> next_telldir("telldir");
constinit libc_function<void(DIR*, long)> next_seekdir("seekdir");
constinit libc_function<dirent*(DIR*)> next_readdir("readdir");
constinit libc_function<dirent64*(DIR*)> next_readdir64("readdir64");
constinit libc_function<scan_function<dirent>> next_scandir("scandir");
constinit libc_function<scan_function<dirent64>> next_scandir64("scandir64");
constinit libc_function<int(DIR*, dirent*, dirent**)> next_readdir_r("readdir_r");
constinit libc_function<int(DIR*, dirent64*, dirent64**)> next_readdir64_r("readdir64_r");

/// The object that `opendir` returns for a folder of a device, instead of a DIR of libc.
struct device_folder {
  std::vector<std::string> names;
  std::size_t next = 0;
  union {
    dirent entry;
    dirent64 entry64;
  };
};

/// The number of folders that can be open at the same time.
constexpr std::size_t most_folders = 64;
constinit std::array<std::atomic<device_folder*>, most_folders> folders{};
constinit std::atomic<unsigned> folders_open{0};

/// Returns the folder behind `stream`, or null if it is a DIR of libc.
device_folder* ours(const void* stream) noexcept {
  if (folders_open.load(std::memory_order_acquire) == 0) return nullptr;
  for (const auto& each : folders)
    if (device_folder* folder = each.load(); folder == stream) return folder;
  return nullptr;
}

/// Returns all names in a folder, including those that belong to the kernel's devices.
std::vector<std::string> names_in(const char* path) {
  struct closed {
    void operator()(DIR* stream) const noexcept { call(next_closedir, stream); }
  };
  std::vector<std::string> names = softverbs::list_device_folder(path);
  const std::unique_ptr<DIR, closed> kernels(next_opendir.get()(path));
  if (kernels == nullptr) return names;
  while (const dirent* entry = next_readdir.get()(kernels.get()))
    if (std::ranges::find(names, entry->d_name) == names.end()) names.emplace_back(entry->d_name);
  return names;
}

/// Opens a folder of a device. Returns null with errno set on failure.
device_folder* open_folder(const char* path) noexcept {
  try {
    auto folder = std::make_unique<device_folder>();
    folder->names = names_in(path);
    if (folder->names.empty()) {
      errno = ENOENT;
      return nullptr;
    }
    for (auto& each : folders) {
      device_folder* none = nullptr;
      if (!each.compare_exchange_strong(none, folder.get())) continue;
      folders_open.fetch_add(1);
      return folder.release();
    }
    errno = EMFILE;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

/// Closes a folder of a device. Returns false if `stream` is a DIR of libc.
bool close_folder(const void* stream) noexcept {
  device_folder* const folder = ours(stream);
  if (folder == nullptr) return false;
  for (auto& each : folders) {
    device_folder* known = folder;
    if (each.compare_exchange_strong(known, nullptr)) folders_open.fetch_sub(1);
  }
  delete folder;
  return true;
}

/// Reads the next entry. Returns false at the end of the folder.
template <typename Entry>
bool read_folder(device_folder& folder, Entry& to) noexcept {
  if (folder.next >= folder.names.size()) return false;
  const std::string& name = folder.names[folder.next++];
  to = {};
  to.d_ino = 1;
  to.d_off = static_cast<decltype(to.d_off)>(folder.next);
  to.d_reclen = sizeof(Entry);
  to.d_type = DT_UNKNOWN;
  std::memcpy(to.d_name, name.c_str(), std::min(name.size() + 1, sizeof(to.d_name) - 1));
  return true;
}

bool is_folder_of_device(const char* path) {
  softverbs::file_text text;
  std::size_t size = 0;
  if (!softverbs::may_be_of_device(path)) return false;
  const softverbs::file_kind kind = softverbs::find_device_file(path, text, size);
  return kind == softverbs::file_kind::directory || kind == softverbs::file_kind::folder_of_devices;
}

/// Implements scandir for a folder of a device. The caller must free the entries and their list.
/// Returns -1 with errno set on failure.
template <typename Entry>
int scan_folder(const char* path, Entry*** found, wanted_function<Entry> is_wanted,
                order_function<Entry> order) try {
  struct freed {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  const auto room_for = [](std::size_t bytes) {
    void* const room = std::malloc(bytes);
    if (room == nullptr) throw std::bad_alloc();
    return room;
  };
  device_folder folder;
  folder.names = names_in(path);
  std::vector<std::unique_ptr<Entry, freed>> entries;
  for (Entry entry; read_folder(folder, entry);) {
    if (is_wanted != nullptr && is_wanted(&entry) == 0) continue;
    auto& kept = entries.emplace_back(static_cast<Entry*>(room_for(sizeof(entry))));
    std::memcpy(kept.get(), &entry, sizeof(entry));
  }
  if (order != nullptr)
    std::ranges::sort(entries, [order](const auto& left, const auto& right) {
      const Entry* first = left.get();
      const Entry* second = right.get();
      return order(&first, &second) < 0;
    });
  // The list has room for one more entry, so that its size is never zero.
  *found = static_cast<Entry**>(room_for((entries.size() + 1) * sizeof(Entry*)));
  std::ranges::transform(entries, *found, [](auto& each) { return each.release(); });
  return static_cast<int>(entries.size());
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return -1;
}

[[gnu::constructor]] void find_calls_of_folders() noexcept {
  const auto find = [](auto&... functions) { (functions.find(), ...); };
  find(next_opendir, next_closedir, next_dirfd, next_rewinddir, next_telldir, next_seekdir,
       next_readdir, next_readdir64, next_readdir_r, next_readdir64_r, next_scandir,
       next_scandir64);
}

template <typename Entry>
int read_into(libc_function<int(DIR*, Entry*, Entry**)>& next, DIR* stream, Entry* to,
              Entry** read) {
  device_folder* const folder = ours(stream);
  if (folder == nullptr) return call(next, stream, to, read);
  *read = read_folder(*folder, *to) ? to : nullptr;
  return 0;
}

}  // namespace

SOFTVERBS_INTERPOSED(DIR*, opendir, "opendir", (const char* path)) {
  if (is_folder_of_device(path)) return reinterpret_cast<DIR*>(open_folder(path));
  return next_opendir.get()(path);
}
SOFTVERBS_INTERPOSED(int, closedir, "closedir", (DIR * stream)) {
  return close_folder(stream) ? 0 : call(next_closedir, stream);
}
SOFTVERBS_INTERPOSED(int, dirfd, "dirfd", (DIR * stream)) {
  if (ours(stream) == nullptr) return call(next_dirfd, stream);
  // These folders have no descriptor.
  errno = ENOTSUP;
  return -1;
}
SOFTVERBS_INTERPOSED(void, rewinddir, "rewinddir", (DIR * stream)) {
  if (device_folder* const folder = ours(stream))
    folder->next = 0;
  else
    next_rewinddir.get()(stream);
}
SOFTVERBS_INTERPOSED(long, telldir, "telldir", (DIR * stream)) {
  const device_folder* const folder = ours(stream);
  return folder != nullptr ? static_cast<long>(folder->next) : call(next_telldir, stream);
}
SOFTVERBS_INTERPOSED(void, seekdir, "seekdir", (DIR * stream, long place)) {
  if (device_folder* const folder = ours(stream))
    folder->next = static_cast<std::size_t>(place);
  else
    next_seekdir.get()(stream, place);
}
SOFTVERBS_INTERPOSED(dirent*, readdir, "readdir", (DIR * stream)) {
  device_folder* const folder = ours(stream);
  if (folder == nullptr) return next_readdir.get()(stream);
  return read_folder(*folder, folder->entry) ? &folder->entry : nullptr;
}
SOFTVERBS_INTERPOSED(dirent64*, readdir64, "readdir64", (DIR * stream)) {
  device_folder* const folder = ours(stream);
  if (folder == nullptr) return next_readdir64.get()(stream);
  return read_folder(*folder, folder->entry64) ? &folder->entry64 : nullptr;
}
SOFTVERBS_INTERPOSED(int, readdir_r, "readdir_r", (DIR * stream, dirent* to, dirent** read)) {
  return read_into(next_readdir_r, stream, to, read);
}
SOFTVERBS_INTERPOSED(int, readdir64_r, "readdir64_r",
                     (DIR * stream, dirent64* to, dirent64** read)) {
  return read_into(next_readdir64_r, stream, to, read);
}
SOFTVERBS_INTERPOSED(int, scandir, "scandir",
                     (const char* path, dirent*** found, wanted_function<dirent> is_wanted,
                      order_function<dirent> order)) {
  return is_folder_of_device(path) ? scan_folder(path, found, is_wanted, order)
                                   : call(next_scandir, path, found, is_wanted, order);
}
SOFTVERBS_INTERPOSED(int, scandir64, "scandir64",
                     (const char* path, dirent64*** found, wanted_function<dirent64> is_wanted,
                      order_function<dirent64> order)) {
  return is_folder_of_device(path) ? scan_folder(path, found, is_wanted, order)
                                   : call(next_scandir64, path, found, is_wanted, order);
}
