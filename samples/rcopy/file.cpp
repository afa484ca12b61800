// SPDX-License-Identifier: Apache-2.0
#include "file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

namespace rcopy {

using verbspp::error;
using verbspp::error_kind;
using verbspp::result;
using verbspp::success;

namespace {

constexpr error changed{error_kind::invalid_input, "read the file",
                        "it has become shorter: another program is changing it"};

result<tcp::descriptor> open(const std::string& name, int flags, const char* operation) {
  tcp::descriptor opened(::open(name.c_str(), flags | O_CLOEXEC, 0666));
  if (!opened.is_open()) return error::from_errno(errno, operation);
  return opened;
}

result<void> check(int returned, const char* operation) {
  if (returned != 0) return error::from_errno(errno, operation);
  return success();
}

}  // namespace

result<file> file::open_to_read(const std::string& name) {
  VERBSPP_TRY(opened, open(name, O_RDONLY, "open the source"));
  return file(std::move(opened));
}

result<file> file::open_to_write(const std::string& name) {
  VERBSPP_TRY(opened, open(name, O_RDWR | O_CREAT, "open the target"));
  return file(std::move(opened));
}

result<std::uint64_t> file::size() const {
  struct stat found{};
  VERBSPP_TRYV(check(::fstat(file_.number(), &found), "check the file"));
  if (!S_ISREG(found.st_mode))
    return error(error_kind::invalid_input, "check the file", "it is not a regular file");
  return static_cast<std::uint64_t>(found.st_size);
}

result<void> file::read(std::uint64_t at, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error::from_errno(errno, "read the file");
    if (count == 0) return changed;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  return success();
}

result<void> file::write(std::uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error::from_errno(errno, "write the file");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
  return success();
}

result<checksum> file::sum(std::uint64_t size) const {
  checksum sum;
  std::vector<std::byte> part(1 << 20);
  for (std::uint64_t at = 0; at < size;) {
    const std::span<std::byte> next(part.data(), std::min<std::uint64_t>(part.size(), size - at));
    VERBSPP_TRYV(read(at, next));
    sum.add(next);
    at += next.size();
  }
  return sum;
}

result<void> file::truncate(std::uint64_t size) const {
  return check(::ftruncate(file_.number(), static_cast<off_t>(size)), "shorten the target");
}

result<void> file::sync() const { return check(::fsync(file_.number()), "save the target"); }

result<void> rename(const std::string& from, const std::string& to) {
  return check(std::rename(from.c_str(), to.c_str()), "rename the target");
}

}  // namespace rcopy
