// SPDX-License-Identifier: Apache-2.0
#include "base/device_process.hpp"
#include <verbspp/base/result.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <string_view>

namespace verbspp {

namespace {

/// Appends text to a buffer. Cuts off the text that does not fit, but counts its full length.
class appender {
 public:
  explicit appender(std::span<char> buffer) noexcept : buffer_(buffer) {
    if (!buffer_.empty()) buffer_[0] = '\0';
  }

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) noexcept {
    const std::size_t used = std::min(length_, buffer_.size());
    va_list arguments;
    va_start(arguments, format);
    const int added =
        std::vsnprintf(buffer_.data() + used, buffer_.size() - used, format, arguments);
    va_end(arguments);
    if (added > 0) length_ += static_cast<std::size_t>(added);
  }

  /// Appends the text that `write` stores in a buffer. `write` returns the full length of that
  /// text.
  template <class Write>
  void add_by(Write write) noexcept {
    length_ += write(buffer_.subspan(std::min(length_, buffer_.size())));
  }

  [[nodiscard]] std::size_t length() const noexcept { return length_; }

 private:
  std::span<char> buffer_;
  std::size_t length_ = 0;
};

void add_errno(appender& out, int errnum) noexcept {
#if defined(__GLIBC__)
  // Unlike strerror, these functions do not translate the text.
  const char* const name = ::strerrorname_np(errnum);
  const char* const text = ::strerrordesc_np(errnum);
  if (name != nullptr && text != nullptr) {
    out.add(": %s (%s)", text, name);
    return;
  }
#endif
  out.add(": errno %d", errnum);
}

/// True if the operation is a verb, so that `usual_advice` can interpret its errno. The errno of a
/// socket call, for instance, does not concern the device.
bool is_of_verbs(std::string_view operation) noexcept {
  return operation.starts_with("ibv_") || operation.starts_with("modify ");
}

/// The advice for a verb that failed, if only its errno is known.
const char* usual_advice(int errnum) noexcept {
  switch (kind_of_errno(errnum)) {
    case error_kind::invalid_input:
      return "the driver or the kernel rejected an argument that the library considers valid: "
             "messages in the kernel's log may name it";
    case error_kind::resource_exhausted:
      return "the device, the machine or the cgroup of the process is out of memory, or has "
             "reached its limit of such objects: `rdma resource` counts them";
    case error_kind::permission:
      return "the process lacks a permission: check the permissions of /dev/infiniband/uverbs*, "
             "the capabilities of the process, and the devices that its cgroup allows";
    case error_kind::not_found:
      return "the device or the object does not exist, or no longer exists: see the kernel's log";
    case error_kind::not_supported:
      return "this device, its driver or this kernel does not support the operation, at least not "
             "with these arguments";
    case error_kind::timed_out:
      return "the device or the network did not respond: try again, and see the kernel's log";
    case error_kind::busy:
      return "usually other objects that were created from this one, or use it, still exist: "
             "destroy them first";
    default:
      if (errnum == EIO && detail::is_child_of_device_process())
        return "a forked child cannot use a device that its parent opened: open the device in the "
               "child; if that fails, see the driver's messages in the kernel's log";
      return "see the driver's messages in the kernel's log";
  }
}

/// The advice for an errno that has the same meaning in all calls; null for other errnos.
const char* advice_on(int errnum) noexcept {
  switch (errnum) {
    case EMFILE:
      return "this process has no file descriptors left: raise its limit (`ulimit -n`)";
    case ENFILE:
      return "this machine has no file descriptors left: raise its limit (`sysctl fs.file-max`)";
    default:
      return nullptr;
  }
}

}  // namespace

const char* to_string(error_kind kind) noexcept {
  switch (kind) {
    case error_kind::invalid_input:
      return "invalid input";
    case error_kind::resource_exhausted:
      return "resource exhausted";
    case error_kind::permission:
      return "permission";
    case error_kind::not_found:
      return "not found";
    case error_kind::not_supported:
      return "not supported";
    case error_kind::timed_out:
      return "timed out";
    case error_kind::cancelled:
      return "cancelled";
    case error_kind::busy:
      return "busy";
    case error_kind::would_block:
      return "would block";
    case error_kind::mismatch:
      return "mismatch";
    case error_kind::not_connected:
      return "not connected";
    case error_kind::failed_request:
      return "failed request";
    case error_kind::driver:
      return "driver";
  }
  return "unknown";
}

std::size_t error::format(std::span<char> buffer) const noexcept {
  appender out(buffer);
  error cause = *this;
  if (is_of_broken_connection_) {
    out.add("the connection is broken because of an earlier failure: ");
    cause.kind_ = earlier_kind_;
  }
  out.add_by([&](std::span<char> rest) { return cause.format_cause(rest); });
  if (is_of_batch_)
    out.add(" (%zu request%s of the batch %s posted before this failure)", accepted_,
            accepted_ == 1 ? "" : "s", accepted_ == 1 ? "was" : "were");
  return out.length();
}

std::size_t error::format_cause(std::span<char> buffer) const noexcept {
  if (source_ != nullptr) return source_->format(*this, buffer);
  appender out(buffer);
  out.add("%s", operation_);
  if (native_ != 0) {
    add_errno(out, native_);
  } else if (shape_ == shape::plain) {
    out.add(": %s", to_string(kind_));
  }
  switch (shape_) {
    case shape::plain:
      break;
    case shape::out_of_range:
      out.add(": %s: %" PRId64 " is out of range", subject_, first_.number);
      break;
    case shape::unsigned_out_of_range:
      out.add(": %s: %" PRIu64 " is out of range", subject_,
              static_cast<std::uint64_t>(first_.number));
      break;
    case shape::above_limit:
      out.add(": %s: %" PRIu64 " is above the limit of %" PRIu64, subject_,
              static_cast<std::uint64_t>(first_.number),
              static_cast<std::uint64_t>(second_.number));
      break;
    case shape::against_limit:
      out.add(": %s: %" PRIu64 " requested, the limit is %" PRIu64, subject_,
              static_cast<std::uint64_t>(first_.number),
              static_cast<std::uint64_t>(second_.number));
      break;
    case shape::differing_numbers:
      out.add(": %s differs: local %" PRId64 ", remote %" PRId64, subject_, first_.number,
              second_.number);
      break;
    case shape::differing_names:
      out.add(": %s differs: local %s, remote %s", subject_, first_.name, second_.name);
      break;
    case shape::outdated:
      out.add(": %s: %" PRIu64 " is not above %" PRIu64 ", the previous one", subject_,
              static_cast<std::uint64_t>(first_.number),
              static_cast<std::uint64_t>(second_.number));
      break;
  }
  if (hint_ != nullptr)
    out.add("; %s", hint_);
  else if (const char* const advice = advice_on(native_); advice != nullptr)
    out.add("; %s", advice);
  else if (shape_ == shape::plain && (native_ != 0 || kind_ == error_kind::driver) &&
           is_of_verbs(operation_))
    out.add("; %s", usual_advice(native_));
  return out.length();
}

std::string error::message() const {
  std::array<char, 512> buffer;
  const std::size_t length = format(buffer);
  if (length < buffer.size()) return {buffer.data(), length};
  std::string text(length, '\0');
  format({text.data(), length + 1});
  return text;
}

int error::kind_errno() const noexcept {
  switch (kind_) {
    case error_kind::invalid_input:
    case error_kind::mismatch:
      return EINVAL;
    case error_kind::resource_exhausted:
      return ENOMEM;
    case error_kind::permission:
      return EACCES;
    case error_kind::not_found:
      return ENODEV;
    case error_kind::not_supported:
      return EOPNOTSUPP;
    case error_kind::timed_out:
      return ETIMEDOUT;
    case error_kind::cancelled:
      return ECANCELED;
    case error_kind::busy:
      return EBUSY;
    case error_kind::would_block:
      return EWOULDBLOCK;
    case error_kind::not_connected:
      return ENOTCONN;
    case error_kind::failed_request:
    case error_kind::driver:
      return EIO;
  }
  return EIO;
}

std::error_code error::code() const noexcept {
  if (is_of_broken_connection_) return {kind_errno(), std::generic_category()};
  if (source_ != nullptr) return {source_->code(*this), std::generic_category()};
  return {native_ != 0 ? native_ : kind_errno(), std::generic_category()};
}

std::ostream& operator<<(std::ostream& out, const error& e) { return out << e.message(); }

}  // namespace verbspp
