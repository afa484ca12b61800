// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/config.hpp>

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/success_failure.hpp>

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
#include <utility>

namespace verbspp {

/// What a failure means to the caller, whatever errno it came as.
enum class error_kind : std::uint8_t {
  invalid_input,       ///< EINVAL, ERANGE, and what the library refuses before it asks the driver
  resource_exhausted,  ///< ENOMEM, EMFILE, ENFILE, EAGAIN, ENOBUFS, ENOSPC
  permission,          ///< EPERM, EACCES, and rights that a handle does not have
  not_found,           ///< ENOENT, ENODEV, ENXIO
  not_supported,       ///< ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT
  timed_out,           ///< ETIMEDOUT
  busy,                ///< EBUSY
  would_block,         ///< a send or receive queue is full, whatever errno the driver uses for it
  mismatch,            ///< the two ends of a connection do not fit together
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
    case EBUSY:
      return error_kind::busy;
    default:
      return error_kind::driver;
  }
}

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

  /// A failed call of libibverbs. `errnum` is kept exactly as it came; 0 means that the call
  /// reported none.
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
  [[nodiscard]] std::string message() const;

  /// The errno, or where there is none the one that the kind stands for, of `generic_category`.
  [[nodiscard]] std::error_code code() const noexcept;

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
  enum class shape : std::uint8_t {
    plain,
    out_of_range,
    unsigned_out_of_range,
    above_limit,
    against_limit,
    differing_numbers,
    differing_names,
  };
  union detail_value {
    std::int64_t number;
    const char* name;
  };

  constexpr void describe(shape form, const char* subject, std::int64_t first,
                          std::int64_t second) noexcept {
    shape_ = form;
    subject_ = subject;
    first_.number = first;
    second_.number = second;
  }
  [[nodiscard]] int kind_errno() const noexcept;

  error_kind kind_ = error_kind::driver;
  shape shape_ = shape::plain;
  int native_ = 0;
  const char* operation_ = "unknown operation";
  const char* hint_ = nullptr;
  const char* subject_ = nullptr;
  detail_value first_{0};
  detail_value second_{0};
};

[[nodiscard]] inline std::error_code make_error_code(const error& e) noexcept { return e.code(); }
std::ostream& operator<<(std::ostream& out, const error& e);

/// What `result::value()` throws; `what()` is the error's message.
class exception : public std::system_error {
 public:
  explicit exception(const class error& cause);
  [[nodiscard]] const class error& error() const noexcept { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  class error error_;
  std::array<char, 512> text_{};  // what system_error makes would repeat the errno's text
};

namespace detail {

/// Throws `exception`; without exceptions it prints the message and aborts.
[[noreturn]] void throw_error(const error& e);
/// The same for a result whose error was asked for although it holds a value.
[[noreturn]] void throw_no_error();

/// What Outcome does when a value is taken out of a failure.
template <class ThrowError>
struct throwing_policy : BOOST_OUTCOME_V2_NAMESPACE::policy::base {
  template <class Impl>
  static constexpr void wide_value_check(Impl&& self) {
    if (!base::_has_value(self)) ThrowError{}(base::_error(self));
  }
  template <class Impl>
  static constexpr void wide_error_check(Impl&& self) {
    if (!base::_has_error(self)) throw_no_error();
  }
  template <class Impl>
  static constexpr void wide_exception_check(Impl&&) noexcept {}
  template <class Impl>
  static constexpr void narrow_value_check(Impl&& self) noexcept {
    if (!base::_has_value(self)) __builtin_unreachable();
  }
  template <class Impl>
  static constexpr void narrow_error_check(Impl&& self) noexcept {
    if (!base::_has_error(self)) __builtin_unreachable();
  }
  template <class Impl>
  static constexpr void narrow_exception_check(Impl&&) noexcept {}
};

struct throw_verbs_error {
  [[noreturn]] void operator()(const error& e) const { throw_error(e); }
};

/// The errno of a libibverbs call that reports failure by its return value: the errno itself, its
/// negative, or -1 with errno set, depending on call and provider. 0 is success; a failure whose
/// errno is 0 as well must not look like one, and is EIO.
[[nodiscard]] inline int errno_of(int returned) noexcept {
  if (returned >= 0) return returned;
  if (returned != -1) return -returned;
  return errno != 0 ? errno : EIO;
}

}  // namespace detail

/// What every call that can fail returns: a `Value`, or the `error` that says why not.
///
/// `has_value()`/`bool` ask, `value()` returns or throws `verbspp::exception`, `error()` gives the
/// failure, `assume_value()` skips the check.
template <class Value>
using result =
    BOOST_OUTCOME_V2_NAMESPACE::basic_result<Value, error,
                                             detail::throwing_policy<detail::throw_verbs_error>>;

/// The success of a `result<void>`.
using BOOST_OUTCOME_V2_NAMESPACE::success;

#define VERBSPP_DETAIL_JOIN2(a, b) a##b
#define VERBSPP_DETAIL_JOIN(a, b) VERBSPP_DETAIL_JOIN2(a, b)
#define VERBSPP_DETAIL_TRY(outcome, name, ...)                      \
  auto outcome = (__VA_ARGS__);                                     \
  if (!outcome.has_value()) return std::move(outcome).as_failure(); \
  auto name = std::move(outcome).assume_value()
// Not an `if`: that would take the `else` of the one it stands in.
#define VERBSPP_DETAIL_TRYV(outcome, ...) \
  for (auto outcome = (__VA_ARGS__); !outcome.has_value();) return std::move(outcome).as_failure()

/// Declares `name` as the value of the result that the expression gives, or returns its failure
/// from the enclosing function.
#define VERBSPP_TRY(name, ...) \
  VERBSPP_DETAIL_TRY(VERBSPP_DETAIL_JOIN(verbspp_try_, __LINE__), name, __VA_ARGS__)
/// The same where there is no value to bind, such as for `result<void>`.
#define VERBSPP_TRYV(...) \
  VERBSPP_DETAIL_TRYV(VERBSPP_DETAIL_JOIN(verbspp_try_, __LINE__), __VA_ARGS__)

/// Receives what a destructor cannot return: the failed release of a verbs object.
///
/// Must not throw. It is called on the thread that destroys the object.
using destroy_failure_handler = void (*)(const error& failure) noexcept;

/// Replaces the handler and returns the one before; null restores the default, which writes one
/// line to stderr. Thread-safe.
destroy_failure_handler set_destroy_failure_handler(destroy_failure_handler handler) noexcept;

namespace detail {
/// Reports the failure of a release, if `errnum` is one.
void report_destroy(int errnum, const char* operation, const char* hint = nullptr) noexcept;
}  // namespace detail

}  // namespace verbspp
