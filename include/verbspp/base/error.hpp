// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>

namespace verbspp {

/// The kind of a failure, which says what the failure means to the caller. Several errnos can have
/// the same kind. The library also uses these kinds for failures that it detects itself.
enum class error_kind : std::uint8_t {
  invalid_input,       ///< EINVAL, ERANGE, and input that the library itself rejects
  resource_exhausted,  ///< ENOMEM, EMFILE, ENFILE, EAGAIN, ENOBUFS, ENOSPC
  permission,          ///< EPERM, EACCES, missing access rights, and wrong secrets
  not_found,           ///< ENOENT, ENODEV, ENXIO
  not_supported,       ///< ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT
  timed_out,           ///< ETIMEDOUT, and operations that did not finish by their limit
  cancelled,           ///< ECANCELED, and operations that ended early, as after a stop request
  busy,                ///< EBUSY, and objects that are in use
  would_block,         ///< a queue is full, a message pool is empty, or a call can't be sent yet
  mismatch,            ///< the ends of a connection, or objects used together, are incompatible
  not_connected,       ///< ENOTCONN, and channels or peers that are not, or no longer, connected
  failed_request,      ///< a posted request failed; `work_error::from` returns the details
  driver,              ///< EIO and every other errno
};

[[nodiscard]] const char* to_string(error_kind kind) noexcept;

/// Returns the kind of failure for an errno.
[[nodiscard]] constexpr error_kind kind_of_errno(int errnum) noexcept {
  switch (errnum) {
    case EINVAL:
    case ERANGE:
      return error_kind::invalid_input;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOBUFS:
    case ENOSPC:
      return error_kind::resource_exhausted;
    case EPERM:
    case EACCES:
      return error_kind::permission;
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return error_kind::not_found;
    case ENOSYS:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
      return error_kind::not_supported;
    case ETIMEDOUT:
      return error_kind::timed_out;
    case ECANCELED:
      return error_kind::cancelled;
    case EBUSY:
      return error_kind::busy;
    case ENOTCONN:
      return error_kind::not_connected;
    default:
      return error_kind::driver;
  }
}

class error;

namespace detail {
/// The functions that write the message and return the errno of an error whose details this header
/// cannot interpret: a failure of a higher layer, or a text that was composed at run time.
struct error_source {
  std::size_t (*format)(const error& e, std::span<char> buffer) noexcept;
  int (*code)(const error& e) noexcept;
};
struct error_access;
}  // namespace detail

/// The cause of a failed call: its kind, errno and operation, and details that help to fix it.
///
/// An error is a trivially copyable value that owns nothing. Every string passed to it must live as
/// long as the program, so callers pass string literals.
class error {
 public:
  /// An unspecific failure, for members and containers that need a default constructor.
  constexpr error() noexcept = default;
  /// A failure that the library itself detected, and that therefore has no errno.
  constexpr error(error_kind kind, const char* operation, const char* hint) noexcept
      : kind_(kind), operation_(operation), hint_(hint) {}

  /// Returns the error for a failed call to libibverbs, the operating system or the program.
  /// `errnum` is stored unchanged; 0 means that the call reported no errno. If there is no hint,
  /// and the operation is a verb (it begins with "ibv_" or "modify "), the message explains what
  /// the errno usually means. EMFILE and ENFILE are explained for every operation.
  [[nodiscard]] static constexpr error from_errno(int errnum, const char* operation,
                                                  const char* hint = nullptr) noexcept {
    error result(kind_of_errno(errnum), operation, hint);
    result.native_ = errnum;
    return result;
  }

  /// Returns the error for a `value` that is outside the fixed range of `subject`.
  template <std::integral Integer>
  [[nodiscard]] static constexpr error out_of_range(const char* operation, const char* subject,
                                                    Integer value,
                                                    const char* hint = nullptr) noexcept {
    error result(error_kind::invalid_input, operation, hint);
    result.describe(std::is_signed_v<Integer> ? shape::out_of_range : shape::unsigned_out_of_range,
                    subject, static_cast<std::int64_t>(value), 0);
    return result;
  }

  /// Returns the error for a `value` of `subject` that is above the maximum, `limit`.
  [[nodiscard]] static constexpr error above_limit(const char* operation, const char* subject,
                                                   std::uint64_t value, std::uint64_t limit,
                                                   const char* hint = nullptr) noexcept {
    error result(error_kind::invalid_input, operation, hint);
    result.describe(shape::above_limit, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(limit));
    return result;
  }

  /// Returns the error for a connection whose ends have different values for `subject`, a number.
  [[nodiscard]] static constexpr error mismatch(const char* operation, const char* subject,
                                                std::int64_t local, std::int64_t remote,
                                                const char* hint = nullptr) noexcept {
    error result(error_kind::mismatch, operation, hint);
    result.describe(shape::differing_numbers, subject, local, remote);
    return result;
  }

  /// Returns the error for a connection whose ends have different values for `subject`, where each
  /// value has a name.
  [[nodiscard]] static constexpr error mismatch(const char* operation, const char* subject,
                                                const char* local, const char* remote,
                                                const char* hint = nullptr) noexcept {
    error result(error_kind::mismatch, operation, hint);
    result.shape_ = shape::differing_names;
    result.subject_ = subject;
    result.first_.name = local;
    result.second_.name = remote;
    return result;
  }

  /// Returns the error for `subject`, a counter at the remote end that should have increased: its
  /// `value` is not above `last`, the previous value.
  [[nodiscard]] static constexpr error outdated(const char* operation, const char* subject,
                                                std::uint64_t value, std::uint64_t last,
                                                const char* hint = nullptr) noexcept {
    error result(error_kind::mismatch, operation, hint);
    result.describe(shape::outdated, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(last));
    return result;
  }

  /// Returns this failure with two details: `value`, which is the requested amount of `subject`,
  /// and `limit`, which probably caused the failure.
  [[nodiscard]] constexpr error against_limit(const char* subject, std::uint64_t value,
                                              std::uint64_t limit) const noexcept {
    error result = *this;
    result.describe(shape::against_limit, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(limit));
    return result;
  }

  /// Returns this failure with a different kind and hint. Callers use it where an errno does not
  /// have its usual meaning.
  [[nodiscard]] constexpr error as(error_kind kind, const char* hint) const noexcept {
    error result = *this;
    result.kind_ = kind;
    result.hint_ = hint;
    return result;
  }

  [[nodiscard]] constexpr error_kind kind() const noexcept { return kind_; }
  /// The errno of the failed call; usually 0 if the library itself detected the failure, or if the
  /// call set no errno.
  [[nodiscard]] constexpr int native_errno() const noexcept { return native_; }
  /// The call or step that failed, such as "ibv_create_qp" or "modify INIT -> RTR".
  [[nodiscard]] constexpr const char* operation() const noexcept { return operation_; }
  /// Advice for the caller, or null. If this is null, the message may still explain the usual
  /// meaning of the errno.
  [[nodiscard]] constexpr const char* hint() const noexcept { return hint_; }
  /// The parameter or field that is at fault, or null if the failure concerns no particular
  /// parameter or field.
  [[nodiscard]] constexpr const char* subject() const noexcept { return subject_; }

  /// Writes the message to the buffer, truncated if necessary and null-terminated. Does not
  /// allocate.
  /// \returns the length of the whole message, without the terminating null
  // NOLINTNEXTLINE(modernize-use-nodiscard): a caller may know that the buffer suffices
  std::size_t format(std::span<char> buffer) const noexcept;
  /// Returns the message: one line with the failed operation and the cause and, in most cases,
  /// advice.
  ///
  /// An error owns no memory. Text that was composed at run time, such as the reason that a peer
  /// sent, is kept for the last 1024 such errors of the process. The message of an older error says
  /// that newer errors have replaced its text; its kind, errno and operation remain. To keep the
  /// text, store the message instead of the error.
  [[nodiscard]] std::string message() const;

  /// Returns the errno as a code of `generic_category`. If there is none, returns the code that
  /// corresponds to the kind or, for a failed request, to its `work_error::error_class`. If the
  /// call failed because an earlier failure had broken the connection, returns the code of the
  /// kind.
  [[nodiscard]] std::error_code code() const noexcept;

  /// Throws the error as an `exception`. If the library was built without exceptions, prints the
  /// message and aborts.
  [[noreturn]] void raise() const;

  friend constexpr bool operator==(const error& e, error_kind kind) noexcept {
    return e.kind_ == kind;
  }
  /// True if `code()` or the kind corresponds to the condition.
  friend bool operator==(const error& e, const std::error_condition& condition) noexcept {
    return e.code() == condition ||
           std::error_code(e.kind_errno(), std::generic_category()) == condition;
  }
  friend bool operator==(const error& e, std::errc condition) noexcept {
    return e == std::make_error_condition(condition);
  }
  /// True if `code` equals the result of `code()`. Unlike a condition, a code is not compared with
  /// the kind.
  friend bool operator==(const error& e, const std::error_code& code) noexcept {
    return e.code() == code;
  }

 private:
  friend struct detail::error_access;

  enum class shape : std::uint8_t {
    plain,
    out_of_range,
    unsigned_out_of_range,
    above_limit,
    against_limit,
    differing_numbers,
    differing_names,
    outdated,
  };
  union detail_value {
    std::int64_t number;
    const char* name;
  };

  constexpr void describe(shape form, const char* subject, std::int64_t first,
                          std::int64_t second) noexcept {
    shape_ = form;
    source_ = nullptr;
    subject_ = subject;
    first_.number = first;
    second_.number = second;
  }
  [[nodiscard]] int kind_errno() const noexcept;
  /// Writes the message without the parts about a broken connection and about a batch.
  // NOLINTNEXTLINE(modernize-use-nodiscard): a caller may know that the buffer suffices
  std::size_t format_cause(std::span<char> buffer) const noexcept;

  error_kind kind_ = error_kind::driver;
  shape shape_ = shape::plain;
  // These two are bit-fields, so that the next member does not make errors larger.
  bool is_of_batch_ : 1 = false;
  bool is_of_broken_connection_ : 1 = false;
  /// The kind of the failure that broke the connection.
  error_kind earlier_kind_ = error_kind::driver;
  int native_ = 0;
  const char* operation_ = "unknown operation";
  const char* hint_ = nullptr;
  const char* subject_ = nullptr;
  detail_value first_{0};
  detail_value second_{0};
  std::uint64_t third_ = 0;
  const detail::error_source* source_ = nullptr;
  std::size_t accepted_ = 0;
};

namespace detail {
/// Lets the higher layers store the details of their failures in an error.
struct error_access {
  using words = std::array<std::uint64_t, 3>;

  [[nodiscard]] static error made(const error_source& source, const char* operation,
                                  const char* hint, const words& facts,
                                  error_kind kind = error_kind::failed_request) noexcept {
    error result(kind, operation, hint);
    result.first_.number = static_cast<std::int64_t>(facts[0]);
    result.second_.number = static_cast<std::int64_t>(facts[1]);
    result.third_ = facts[2];
    result.source_ = &source;
    return result;
  }
  /// Returns the failure `e` with `errnum` as its errno.
  [[nodiscard]] static error with_errno(const error& e, int errnum) noexcept {
    error result = e;
    result.native_ = errnum;
    return result;
  }
  [[nodiscard]] static bool is_from(const error_source& source, const error& e) noexcept {
    return e.source_ == &source;
  }
  [[nodiscard]] static words facts(const error& e) noexcept {
    return {static_cast<std::uint64_t>(e.first_.number),
            static_cast<std::uint64_t>(e.second_.number), e.third_};
  }

  [[nodiscard]] static error of_batch(const error& cause, std::size_t accepted) noexcept {
    error result = cause;
    result.is_of_batch_ = true;
    result.accepted_ = accepted;
    return result;
  }
  [[nodiscard]] static bool is_of_batch(const error& e) noexcept { return e.is_of_batch_; }
  [[nodiscard]] static std::size_t accepted(const error& e) noexcept { return e.accepted_; }
  [[nodiscard]] static error cause(const error& e) noexcept {
    error result = e;
    result.is_of_batch_ = false;
    result.accepted_ = 0;
    return result;
  }

  /// Returns the error for a call on a connection that an earlier failure, `root`, has broken.
  [[nodiscard]] static error of_broken_connection(const error& root) noexcept {
    error result = cause(root);
    if (!root.is_of_broken_connection_) result.earlier_kind_ = root.kind_;
    result.kind_ = error_kind::not_connected;
    result.is_of_broken_connection_ = true;
    return result;
  }
};
}  // namespace detail

[[nodiscard]] inline std::error_code make_error_code(const error& e) noexcept { return e.code(); }
std::ostream& operator<<(std::ostream& out, const error& e);

namespace detail {

/// Returns the errno of a libibverbs call that reports failure through its return value, or 0 if
/// the call succeeded. Depending on the call and the provider, the value is the errno itself, its
/// negative, or -1 with errno set. If it is -1 but errno is 0, this function returns EIO, so that
/// the failure does not look like success.
[[nodiscard]] inline int errno_of(int returned) noexcept {
  if (returned >= 0) return returned;
  if (returned != -1) return -returned;
  return errno != 0 ? errno : EIO;
}

}  // namespace detail

}  // namespace verbspp
