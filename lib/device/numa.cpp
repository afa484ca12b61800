// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/context.hpp>
#include <verbspp/device/device.hpp>
#include <verbspp/device/numa.hpp>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>

namespace verbspp {

namespace {

constexpr const char* sysfs_root = "/sys";
constexpr const char* asking_for_node = "query the NUMA node";
constexpr const char* binding_to_node = "bind the thread to the NUMA node";

/// The first line of a file that the kernel provides, without the line break.
class line {
 public:
  /// Reads the line. The result is empty if the file does not exist.
  [[nodiscard]] static result<std::optional<line>> read(const char* path,
                                                        const char* operation) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::optional<line>();
      return error::from_errno(errno, operation);
    }
    line content;
    ssize_t got = 0;
    do {
      got =
          ::read(file, content.text_.data() + content.size_, content.text_.size() - content.size_);
      if (got > 0) content.size_ += static_cast<std::size_t>(got);
    } while (content.size_ < content.text_.size() && (got > 0 || (got < 0 && errno == EINTR)));
    const int errnum = errno;
    ::close(file);
    if (got < 0) return error::from_errno(errnum, operation);
    return std::optional(content);
  }

  [[nodiscard]] std::string_view text() const noexcept {
    const std::string_view all(text_.data(), size_);
    return all.substr(0, all.find('\n'));
  }

 private:
  line() noexcept = default;

  std::array<char, 8192> text_;  // kernels usually write much shorter lists
  std::size_t size_ = 0;
};

using file_name = std::array<char, PATH_MAX>;

/// Removes a number from the beginning of a text, and returns it.
std::optional<unsigned> take_number(std::string_view& text) noexcept {
  unsigned number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end == text.data()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// A set with room for as many processors as Linux can support.
class processor_set {
 public:
  /// Parses a list in the kernel's format: "0-3,8".
  [[nodiscard]] static std::optional<processor_set> from(std::string_view list) noexcept {
    processor_set all;
    for (bool more = !list.empty(); more;) {
      const auto first = take_number(list);
      auto last = first;
      if (list.starts_with('-')) {
        list.remove_prefix(1);
        last = take_number(list);
      }
      if (!first || !last || *last < *first || *last >= most) return std::nullopt;
      for (unsigned each = *first; each <= *last; ++each)
        all.words_[each / word] |= 1UL << each % word;
      more = list.starts_with(',');
      if (more) list.remove_prefix(1);
    }
    if (!list.empty()) return std::nullopt;
    return all;
  }

  /// Restricts this thread to the processors.
  /// \returns the errno, 0 on success
  [[nodiscard]] int bind_this_thread() const noexcept {
    const auto* const native = reinterpret_cast<const cpu_set_t*>(words_.data());
    return ::sched_setaffinity(0, sizeof words_, native) == 0 ? 0 : errno;
  }

 private:
  static constexpr unsigned most = 8192;
  static constexpr unsigned word = sizeof(unsigned long) * CHAR_BIT;

  std::array<unsigned long, most / word> words_{};
};

error makes_no_sense(const char* operation) noexcept {
  return {error_kind::driver, operation,
          "the kernel's file in /sys that describes the node is missing or cannot be parsed"};
}

}  // namespace

result<std::optional<numa_node>> detail::numa_node_of(const char* sysfs,
                                                      const char* name) noexcept {
  if (*name == '\0')
    return error(error_kind::invalid_input, asking_for_node,
                 "the device has no name, or the device or context was moved from");
  file_name file;
  const int length = std::snprintf(file.data(), file.size(),
                                   "%s/class/infiniband/%s/device/numa_node", sysfs, name);
  if (length < 0 || static_cast<std::size_t>(length) >= file.size())
    return error::from_errno(ENAMETOOLONG, asking_for_node);
  VERBSPP_TRY(content, line::read(file.data(), asking_for_node));
  if (!content || content->text() == "-1") return std::optional<numa_node>();
  std::string_view rest = content->text();
  const auto number = take_number(rest);
  if (!number || !rest.empty() || *number > numa_node::maximum)
    return makes_no_sense(asking_for_node);
  return std::optional(numa_node::assume(static_cast<std::uint16_t>(*number)));
}

result<bool> detail::bind_this_thread_near(const char* sysfs, const char* name,
                                           numa_binding how) noexcept {
  const bool strict = how == numa_binding::strict;
  VERBSPP_TRY(node, numa_node_of(sysfs, name));
  if (!node) {
    if (!strict) return false;
    return error(error_kind::not_supported, binding_to_node,
                 "the kernel reports no NUMA node for the device: if the program can run without "
                 "the binding, use numa_binding::as_far_as_possible");
  }
  file_name file;
  const int length =
      std::snprintf(file.data(), file.size(), "%s/devices/system/node/node%u/cpulist", sysfs,
                    unsigned{node->value()});
  if (length < 0 || static_cast<std::size_t>(length) >= file.size())
    return error::from_errno(ENAMETOOLONG, binding_to_node);
  VERBSPP_TRY(content, line::read(file.data(), binding_to_node));
  if (!content) return makes_no_sense(binding_to_node);
  const auto processors = processor_set::from(content->text());
  if (!processors) return makes_no_sense(binding_to_node);
  const int errnum = processors->bind_this_thread();
  if (errnum == 0) return true;
  if (!strict) return false;
  return error::from_errno(
      errnum, binding_to_node,
      errnum == EINVAL ? "the node has no processors, or none in the cpuset of this process: see "
                         "cpuset.cpus.effective of its cgroup, or use "
                         "numa_binding::as_far_as_possible"
                       : "if the program can run without the binding, use "
                         "numa_binding::as_far_as_possible");
}

result<std::optional<numa_node>> numa_node_of(const device& one) noexcept {
  return detail::numa_node_of(sysfs_root, one.name());
}
result<std::optional<numa_node>> numa_node_of(const context& opened) noexcept {
  return detail::numa_node_of(sysfs_root, opened.device_name());
}

result<bool> bind_this_thread_near(const device& one, numa_binding how) noexcept {
  return detail::bind_this_thread_near(sysfs_root, one.name(), how);
}
result<bool> bind_this_thread_near(const context& opened, numa_binding how) noexcept {
  return detail::bind_this_thread_near(sysfs_root, opened.device_name(), how);
}

}  // namespace verbspp
