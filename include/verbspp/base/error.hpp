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

/// What a failure means to the caller, whatever errno it came as.
enum class error_kind : std::uint8_t {
  invalid_input,       ///< EINVAL, ERANGE, and what the library refuses before it asks the driver
  resource_exhausted,  ///< ENOMEM, EMFILE, ENFILE, EAGAIN, ENOBUFS, ENOSPC
  permission,          ///< EPERM, EACCES, and rights that a handle does not have
  not_found,           ///< ENOENT, ENODEV, ENXIO
  not_supported,       ///< ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT
  timed_out,           ///< ETIMEDOUT, and what is not done at its limit
  cancelled,           ///< ECANCELED, and what is not done when it is asked to stop
  busy,                ///< EBUSY
  would_block,         ///< a send or receive queue is full, whatever errno the driver uses for it
  mismatch,            ///< the two ends of a connection do not fit together
  not_connected,       ///< ENOTCONN: a channel that is not connected yet, broken, or closed
  failed_request,      ///< a request that was posted and failed: `work_error::from` has the rest
  driver,              ///< EIO and every other errno
};

[[nodiscard]] const char* to_string(error_kind kind) noexcept;

/// The kind that an errno stands for.
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
/// How an error prints, and what errno it stands for, that was made from a failure which the base
/// does not know.
struct error_source {
  std::size_t (*format)(const error& e, std::span<char> buffer) noexcept;
  int (*code)(const error& e) noexcept;
};
struct error_access;
}  // namespace detail

/// Why a call failed: kind, errno, operation, and whatever makes the line one can act on.
///
/// A trivially copyable value that owns nothing and never allocates; every string given to it must
/// live as long as the program (in practice: literals).
class error {
 public:
  /// Only for containers such as `result`, which need it: an unspecific failure.
  constexpr error() noexcept = default;
  /// A failure found by the library itself, before any system call; no errno.
  constexpr error(error_kind kind, const char* operation, const char* hint) noexcept
      : kind_(kind), operation_(operation), hint_(hint) {}

  /// A failed call of libibverbs, or another one of the program's. `errnum` is kept exactly as it
  /// came; 0 means that the call reported none. Without a hint the message says what the errno
  /// usually means, if the operation is one of the verbs: begins with "ibv_" or "modify ".
  [[nodiscard]] static constexpr error from_errno(int errnum, const char* operation,
                                                  const char* hint = nullptr) noexcept {
    error result(kind_of_errno(errnum), operation, hint);
    result.native_ = errnum;
    return result;
  }

  /// `subject` has the value `value`, which no queue, device or type can take.
  template <std::integral Integer>
  [[nodiscard]] static constexpr error out_of_range(const char* operation, const char* subject,
                                                    Integer value,
                                                    const char* hint = nullptr) noexcept {
    error result(error_kind::invalid_input, operation, hint);
    result.describe(std::is_signed_v<Integer> ? shape::out_of_range : shape::unsigned_out_of_range,
                    subject, static_cast<std::int64_t>(value), 0);
    return result;
  }

  /// `subject` was asked to be `value`, but may be at most `limit`.
  [[nodiscard]] static constexpr error above_limit(const char* operation, const char* subject,
                                                   std::uint64_t value, std::uint64_t limit,
                                                   const char* hint = nullptr) noexcept {
    error result(error_kind::invalid_input, operation, hint);
    result.describe(shape::above_limit, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(limit));
    return result;
  }

  /// The two ends differ in `subject`, a number.
  [[nodiscard]] static constexpr error mismatch(const char* operation, const char* subject,
                                                std::int64_t local, std::int64_t remote,
                                                const char* hint = nullptr) noexcept {
    error result(error_kind::mismatch, operation, hint);
    result.describe(shape::differing_numbers, subject, local, remote);
    return result;
  }

  /// The two ends differ in `subject`, whose values have names.
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

  /// The remote end's `subject` counts up, but its `value` is not above the last one seen.
  [[nodiscard]] static constexpr error outdated(const char* operation, const char* subject,
                                                std::uint64_t value, std::uint64_t last,
                                                const char* hint = nullptr) noexcept {
    error result(error_kind::mismatch, operation, hint);
    result.describe(shape::outdated, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(last));
    return result;
  }

  /// The same failure, with the amount that was asked for and the limit that probably stopped it.
  [[nodiscard]] constexpr error against_limit(const char* subject, std::uint64_t value,
                                              std::uint64_t limit) const noexcept {
    error result = *this;
    result.describe(shape::against_limit, subject, static_cast<std::int64_t>(value),
                    static_cast<std::int64_t>(limit));
    return result;
  }

  /// The same failure, known to mean something else than its errno says.
  [[nodiscard]] constexpr error as(error_kind kind, const char* hint) const noexcept {
    error result = *this;
    result.kind_ = kind;
    result.hint_ = hint;
    return result;
  }

  [[nodiscard]] constexpr error_kind kind() const noexcept { return kind_; }
  /// The errno of the failed call; 0 if the library found the failure itself or the call gave none.
  [[nodiscard]] constexpr int native_errno() const noexcept { return native_; }
  /// The call or step that failed, such as "ibv_create_qp" or "modify INIT -> RTR".
  [[nodiscard]] constexpr const char* operation() const noexcept { return operation_; }
  /// What to do about it; null if nothing is known but what the errno usually means, which the
  /// message has then.
  [[nodiscard]] constexpr const char* hint() const noexcept { return hint_; }
  /// The parameter or field that is at fault; null if the failure is not about a single one.
  [[nodiscard]] constexpr const char* subject() const noexcept { return subject_; }

  /// Writes the message, cut and null-terminated where the buffer ends; no allocation.
  /// \returns the length of the whole message, without the terminating null
  // NOLINTNEXTLINE(modernize-use-nodiscard): who knows that the buffer suffices may ignore it
  std::size_t format(std::span<char> buffer) const noexcept;
  /// The message: one line that says what failed, on what, and what to do.
  ///
  /// An error owns no memory. Words that were composed at run time, such as the reason that a peer
  /// gave, are kept for the last 64 of such errors of the process. The message of an older one says
  /// that newer errors have taken their place; its kind, errno and operation stay. Store the
  /// message, not the error, to keep the words.
  [[nodiscard]] std::string message() const;

  /// The errno, or where there is none the one that the kind stands for, of `generic_category`.
  [[nodiscard]] std::error_code code() const noexcept;

  /// Throws it as an `exception`; without exceptions prints the message and aborts.
  [[noreturn]] void raise() const;

  friend constexpr bool operator==(const error& e, error_kind kind) noexcept {
    return e.kind_ == kind;
  }
  /// True if either the errno or the kind corresponds to the condition.
  friend bool operator==(const error& e, const std::error_condition& condition) noexcept {
    return e.code() == condition ||
           std::error_code(e.kind_errno(), std::generic_category()) == condition;
  }
  friend bool operator==(const error& e, std::errc condition) noexcept {
    return e == std::make_error_condition(condition);
  }
  /// True only for `code()` itself.
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
  /// The message without what the batch has to do with it.
  // NOLINTNEXTLINE(modernize-use-nodiscard): who knows that the buffer suffices may ignore it
  std::size_t format_cause(std::span<char> buffer) const noexcept;

  error_kind kind_ = error_kind::driver;
  shape shape_ = shape::plain;
  bool is_of_batch_ = false;
  bool is_of_broken_connection_ = false;
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
/// What the floors above keep in an error, so that nothing is lost where a failure of theirs
/// becomes one.
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
  /// The same failure, with the errno of the call.
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

  /// The refusal of what is asked of a connection that an earlier failure has broken.
  [[nodiscard]] static error of_broken_connection(const error& root) noexcept {
    error result = cause(root);
    result.kind_ = error_kind::not_connected;
    result.is_of_broken_connection_ = true;
    return result;
  }
};
}  // namespace detail

[[nodiscard]] inline std::error_code make_error_code(const error& e) noexcept { return e.code(); }
std::ostream& operator<<(std::ostream& out, const error& e);

namespace detail {

/// The errno of a libibverbs call that reports failure by its return value: the errno itself, its
/// negative, or -1 with errno set, depending on call and provider. 0 is success; a failure whose
/// errno is 0 as well must not look like one, and is EIO.
[[nodiscard]] inline int errno_of(int returned) noexcept {
  if (returned >= 0) return returned;
  if (returned != -1) return -returned;
  return errno != 0 ? errno : EIO;
}

}  // namespace detail

}  // namespace verbspp
