// SPDX-License-Identifier: Apache-2.0
// Wrappers of the libc functions with which programs access the files of a device. Most of them
// call the original function, and pass it another path if the path belongs to a soft device. For
// most such paths, the wrappers of readlink and realpath return the result themselves. For paths
// outside of the folders of devices, their only additional work is to compare the first characters.
//
// The wrappers have libc's names only for the linker, because libc's headers declare some of these
// names conditionally, define others inline, and rename some. The wrappers don't access the
// contents of a `stat` structure, so its layout doesn't matter. No wrapper is noexcept, because the
// cancellation of a thread unwinds through it.
#include "files/libc_function.hpp"
#include "files/stand_in.hpp"

#include <fcntl.h>
#include <sys/types.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

using softverbs::call;
using softverbs::libc_function;
using softverbs::stand_in;

namespace {

#if defined(__O_TMPFILE)
constexpr int unnamed_file = __O_TMPFILE;
#else
constexpr int unnamed_file = 020000000 | O_DIRECTORY;
#endif

/// True if open has a mode argument. It has one only if it may create a file.
bool needs_mode(int flags) noexcept {
  return (flags & O_CREAT) != 0 || (flags & unnamed_file) == unnamed_file;
}

using open_function = int(const char*, int, ...);
using checked_open_function = int(const char*, int);
using openat_function = int(int, const char*, int, ...);
using checked_openat_function = int(int, const char*, int);
using fopen_function = FILE*(const char*, const char*);
using access_function = int(const char*, int);
using faccessat_function = int(int, const char*, int, int);
using stat_function = int(const char*, void*);
using fstatat_function = int(int, const char*, void*, int);
using statx_function = int(int, const char*, int, unsigned, void*);
using get_attribute_function = ssize_t(const char*, const char*, void*, std::size_t);
using list_attributes_function = ssize_t(const char*, char*, std::size_t);
using read_link_function = ssize_t(const char*, char*, std::size_t);
using checked_read_link_function = ssize_t(const char*, char*, std::size_t, std::size_t);
using read_link_at_function = ssize_t(int, const char*, char*, std::size_t);
using checked_read_link_at_function = ssize_t(int, const char*, char*, std::size_t, std::size_t);
using real_path_function = char*(const char*, char*);
using checked_real_path_function = char*(const char*, char*, std::size_t);
using old_stat_function = int(int, const char*, void*);
using old_fstatat_function = int(int, int, const char*, void*, int);

constinit libc_function<open_function> next_open("open");
constinit libc_function<open_function> next_open64("open64");
constinit libc_function<checked_open_function> next_open_2("__open_2");
constinit libc_function<checked_open_function> next_open64_2("__open64_2");
constinit libc_function<openat_function> next_openat("openat");
constinit libc_function<openat_function> next_openat64("openat64");
constinit libc_function<checked_openat_function> next_openat_2("__openat_2");
constinit libc_function<checked_openat_function> next_openat64_2("__openat64_2");
constinit libc_function<fopen_function> next_fopen("fopen");
constinit libc_function<fopen_function> next_fopen64("fopen64");
constinit libc_function<access_function> next_access("access");
constinit libc_function<faccessat_function> next_faccessat("faccessat");
constinit libc_function<stat_function> next_stat("stat");
constinit libc_function<stat_function> next_stat64("stat64");
constinit libc_function<stat_function> next_lstat("lstat");
constinit libc_function<stat_function> next_lstat64("lstat64");
constinit libc_function<fstatat_function> next_fstatat("fstatat");
constinit libc_function<fstatat_function> next_fstatat64("fstatat64");
constinit libc_function<statx_function> next_statx("statx");
constinit libc_function<get_attribute_function> next_getxattr("getxattr");
constinit libc_function<get_attribute_function> next_lgetxattr("lgetxattr");
constinit libc_function<list_attributes_function> next_listxattr("listxattr");
constinit libc_function<list_attributes_function> next_llistxattr("llistxattr");
constinit libc_function<read_link_function> next_readlink("readlink");
constinit libc_function<checked_read_link_function> next_readlink_chk("__readlink_chk");
constinit libc_function<read_link_at_function> next_readlinkat("readlinkat");
constinit libc_function<checked_read_link_at_function> next_readlinkat_chk("__readlinkat_chk");
constinit libc_function<real_path_function> next_realpath("realpath");
constinit libc_function<checked_real_path_function> next_realpath_chk("__realpath_chk");
constinit libc_function<char*(const char*)> next_canonicalize("canonicalize_file_name");
constinit libc_function<old_stat_function> next_xstat("__xstat");
constinit libc_function<old_stat_function> next_xstat64("__xstat64");
constinit libc_function<old_stat_function> next_lxstat("__lxstat");
constinit libc_function<old_stat_function> next_lxstat64("__lxstat64");
constinit libc_function<old_fstatat_function> next_fxstatat("__fxstatat");
constinit libc_function<old_fstatat_function> next_fxstatat64("__fxstatat64");

[[gnu::constructor]] void find_calls_of_files() noexcept {
  const auto find = [](auto&... functions) { (functions.find(), ...); };
  find(next_open, next_open64, next_open_2, next_open64_2, next_openat, next_openat64,
       next_openat_2, next_openat64_2, next_fopen, next_fopen64, next_access, next_faccessat,
       next_stat, next_stat64, next_statx, next_lstat, next_lstat64, next_fstatat, next_fstatat64,
       next_getxattr, next_lgetxattr, next_listxattr, next_llistxattr, next_readlink,
       next_readlink_chk, next_readlinkat, next_readlinkat_chk, next_realpath, next_realpath_chk,
       next_canonicalize, next_xstat, next_xstat64, next_lxstat, next_lxstat64, next_fxstatat,
       next_fxstatat64);
}

int open_at(libc_function<openat_function>& next, int folder, const char* path, int flags,
            mode_t mode) {
  const stand_in shown(path, stand_in::purpose::open);
  return shown.failed() ? -1 : call(next, folder, shown.path(), flags, mode);
}

int open_one(libc_function<open_function>& next, const char* path, int flags, mode_t mode) {
  const stand_in shown(path, stand_in::purpose::open);
  return shown.failed() ? -1 : call(next, shown.path(), flags, mode);
}

FILE* open_stream(libc_function<fopen_function>& next, const char* path, const char* mode) {
  const stand_in shown(path, stand_in::purpose::open);
  if (shown.failed()) return nullptr;
  auto* function = next.get();
  if (function != nullptr) return function(shown.path(), mode);
  errno = ENOSYS;
  return nullptr;
}

/// Examines the file at a path by calling `link`. For a stand-in, which may be a symbolic link,
/// calls `target` instead, which follows links.
int stat_one(libc_function<stat_function>& link, libc_function<stat_function>& target,
             const char* path, void* to) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(shown.replaces() ? target : link, shown.path(), to);
}

int old_stat_one(libc_function<old_stat_function>& link, libc_function<old_stat_function>& target,
                 int version, const char* path, void* to) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(shown.replaces() ? target : link, version, shown.path(), to);
}

int stat_at(libc_function<fstatat_function>& next, int folder, const char* path, void* to,
            int flags) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(next, folder, shown.path(), to,
              shown.replaces() ? flags & ~AT_SYMLINK_NOFOLLOW : flags);
}

int old_stat_at(libc_function<old_fstatat_function>& next, int version, int folder,
                const char* path, void* to, int flags) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(next, version, folder, shown.path(), to,
              shown.replaces() ? flags & ~AT_SYMLINK_NOFOLLOW : flags);
}

/// Implements realpath for the files of a device, whose paths contain no symbolic links. Dots are
/// only allowed at the end of the path. Returns null if the path doesn't belong to a file of a
/// device, if it belongs to the folder of all devices, or if memory is exhausted; the caller then
/// calls libc's function.
char* real_path(const char* path, char* to) noexcept {
  if (!softverbs::may_be_of_device(path)) return nullptr;
  softverbs::file_text text;
  std::size_t size = 0;
  const auto kind = softverbs::find_device_file(path, text, size);
  if (kind == softverbs::file_kind::none || kind == softverbs::file_kind::folder_of_devices)
    return nullptr;
  const std::string_view real = softverbs::without_slashes(path);
  if (to == nullptr) to = static_cast<char*>(std::malloc(real.size() + 1));
  if (to == nullptr) return nullptr;
  std::memcpy(to, real.data(), real.size());
  to[real.size()] = '\0';
  return to;
}

/// True if readlink must fail, with errno set. No file of a device is a link, even if its stand-in
/// is one.
bool is_no_link(const stand_in& shown) noexcept {
  if (shown.replaces()) errno = EINVAL;
  return shown.replaces() || shown.failed();
}

}  // namespace

#define SOFTVERBS_OPEN(own, libc_name)                                            \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (const char* path, int flags, ...)) { \
    mode_t mode = 0;                                                              \
    if (needs_mode(flags)) {                                                      \
      std::va_list more;                                                          \
      va_start(more, flags);                                                      \
      mode = va_arg(more, mode_t);                                                \
      va_end(more);                                                               \
    }                                                                             \
    return open_one(next_##own, path, flags, mode);                               \
  }
SOFTVERBS_OPEN(open, "open")
SOFTVERBS_OPEN(open64, "open64")

#define SOFTVERBS_OPENAT(own, libc_name)                                                      \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (int folder, const char* path, int flags, ...)) { \
    mode_t mode = 0;                                                                          \
    if (needs_mode(flags)) {                                                                  \
      std::va_list more;                                                                      \
      va_start(more, flags);                                                                  \
      mode = va_arg(more, mode_t);                                                            \
      va_end(more);                                                                           \
    }                                                                                         \
    return open_at(next_##own, folder, path, flags, mode);                                    \
  }
SOFTVERBS_OPENAT(openat, "openat")
SOFTVERBS_OPENAT(openat64, "openat64")

// Programs that were built with _FORTIFY_SOURCE call these if the flags weren't known at compile
// time.
#define SOFTVERBS_CHECKED_OPEN(own, libc_name)                               \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (const char* path, int flags)) { \
    const stand_in shown(path, stand_in::purpose::open);                     \
    return shown.failed() ? -1 : call(next_##own, shown.path(), flags);      \
  }
SOFTVERBS_CHECKED_OPEN(open_2, "__open_2")
SOFTVERBS_CHECKED_OPEN(open64_2, "__open64_2")

#define SOFTVERBS_CHECKED_OPENAT(own, libc_name)                                         \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (int folder, const char* path, int flags)) { \
    const stand_in shown(path, stand_in::purpose::open);                                 \
    return shown.failed() ? -1 : call(next_##own, folder, shown.path(), flags);          \
  }
SOFTVERBS_CHECKED_OPENAT(openat_2, "__openat_2")
SOFTVERBS_CHECKED_OPENAT(openat64_2, "__openat64_2")

SOFTVERBS_INTERPOSED(FILE*, fopen, "fopen", (const char* path, const char* mode)) {
  return open_stream(next_fopen, path, mode);
}
SOFTVERBS_INTERPOSED(FILE*, fopen64, "fopen64", (const char* path, const char* mode)) {
  return open_stream(next_fopen64, path, mode);
}

SOFTVERBS_INTERPOSED(int, access, "access", (const char* path, int rights)) {
  const stand_in shown(path, stand_in::purpose::look);
  return shown.failed() ? -1 : call(next_access, shown.path(), rights);
}
SOFTVERBS_INTERPOSED(int, faccessat, "faccessat",
                     (int folder, const char* path, int rights, int flags)) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(next_faccessat, folder, shown.path(), rights,
              shown.replaces() ? flags & ~AT_SYMLINK_NOFOLLOW : flags);
}

#define SOFTVERBS_STAT(own, libc_name, target)                              \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (const char* path, void* to)) { \
    return stat_one(next_##own, next_##target, path, to);                   \
  }
SOFTVERBS_STAT(stat, "stat", stat)
SOFTVERBS_STAT(stat64, "stat64", stat64)
SOFTVERBS_STAT(lstat, "lstat", stat)
SOFTVERBS_STAT(lstat64, "lstat64", stat64)

#define SOFTVERBS_FSTATAT(own, libc_name)                                                          \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (int folder, const char* path, void* to, int flags)) { \
    return stat_at(next_##own, folder, path, to, flags);                                           \
  }
SOFTVERBS_FSTATAT(fstatat, "fstatat")
SOFTVERBS_FSTATAT(fstatat64, "fstatat64")

SOFTVERBS_INTERPOSED(int, statx, "statx",
                     (int folder, const char* path, int flags, unsigned mask, void* to)) {
  const stand_in shown(path, stand_in::purpose::look);
  if (shown.failed()) return -1;
  return call(next_statx, folder, shown.path(),
              shown.replaces() ? flags & ~AT_SYMLINK_NOFOLLOW : flags, mask, to);
}

#define SOFTVERBS_ATTRIBUTE(own, libc_name)                                                \
  SOFTVERBS_INTERPOSED(ssize_t, own, libc_name,                                            \
                       (const char* path, const char* name, void* to, std::size_t size)) { \
    const stand_in shown(path, stand_in::purpose::look);                                   \
    return shown.failed() ? -1 : call(next_##own, shown.path(), name, to, size);           \
  }
SOFTVERBS_ATTRIBUTE(getxattr, "getxattr")
SOFTVERBS_ATTRIBUTE(lgetxattr, "lgetxattr")

#define SOFTVERBS_ATTRIBUTES(own, libc_name)                                                      \
  SOFTVERBS_INTERPOSED(ssize_t, own, libc_name, (const char* path, char* to, std::size_t size)) { \
    const stand_in shown(path, stand_in::purpose::look);                                          \
    return shown.failed() ? -1 : call(next_##own, shown.path(), to, size);                        \
  }
SOFTVERBS_ATTRIBUTES(listxattr, "listxattr")
SOFTVERBS_ATTRIBUTES(llistxattr, "llistxattr")

SOFTVERBS_INTERPOSED(ssize_t, readlink, "readlink",
                     (const char* path, char* to, std::size_t size)) {
  const stand_in shown(path, stand_in::purpose::look);
  return is_no_link(shown) ? -1 : call(next_readlink, path, to, size);
}
SOFTVERBS_INTERPOSED(ssize_t, readlink_chk, "__readlink_chk",
                     (const char* path, char* to, std::size_t size, std::size_t room)) {
  const stand_in shown(path, stand_in::purpose::look);
  return is_no_link(shown) ? -1 : call(next_readlink_chk, path, to, size, room);
}
SOFTVERBS_INTERPOSED(ssize_t, readlinkat, "readlinkat",
                     (int folder, const char* path, char* to, std::size_t size)) {
  const stand_in shown(path, stand_in::purpose::look);
  return is_no_link(shown) ? -1 : call(next_readlinkat, folder, path, to, size);
}
SOFTVERBS_INTERPOSED(ssize_t, readlinkat_chk, "__readlinkat_chk",
                     (int folder, const char* path, char* to, std::size_t size, std::size_t room)) {
  const stand_in shown(path, stand_in::purpose::look);
  return is_no_link(shown) ? -1 : call(next_readlinkat_chk, folder, path, to, size, room);
}

SOFTVERBS_INTERPOSED(char*, realpath, "realpath", (const char* path, char* to)) {
  char* const ours = real_path(path, to);
  return ours != nullptr ? ours : next_realpath.get()(path, to);
}
SOFTVERBS_INTERPOSED(char*, realpath_chk, "__realpath_chk",
                     (const char* path, char* to, std::size_t size)) {
  char* const ours = size < PATH_MAX ? nullptr : real_path(path, to);
  return ours != nullptr ? ours : next_realpath_chk.get()(path, to, size);
}
SOFTVERBS_INTERPOSED(char*, canonicalize, "canonicalize_file_name", (const char* path)) {
  char* const ours = real_path(path, nullptr);
  return ours != nullptr ? ours : next_canonicalize.get()(path);
}

// Programs that were built with headers of glibc before 2.33 call these.
#define SOFTVERBS_OLD_STAT(own, libc_name, target)                                       \
  SOFTVERBS_INTERPOSED(int, own, libc_name, (int version, const char* path, void* to)) { \
    return old_stat_one(next_##own, next_##target, version, path, to);                   \
  }
SOFTVERBS_OLD_STAT(xstat, "__xstat", xstat)
SOFTVERBS_OLD_STAT(xstat64, "__xstat64", xstat64)
SOFTVERBS_OLD_STAT(lxstat, "__lxstat", xstat)
SOFTVERBS_OLD_STAT(lxstat64, "__lxstat64", xstat64)

#define SOFTVERBS_OLD_FSTATAT(own, libc_name)                                              \
  SOFTVERBS_INTERPOSED(int, own, libc_name,                                                \
                       (int version, int folder, const char* path, void* to, int flags)) { \
    return old_stat_at(next_##own, version, folder, path, to, flags);                      \
  }
SOFTVERBS_OLD_FSTATAT(fxstatat, "__fxstatat")
SOFTVERBS_OLD_FSTATAT(fxstatat64, "__fxstatat64")
