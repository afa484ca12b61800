// SPDX-License-Identifier: Apache-2.0
/// \file
/// Checks how the library reports the failure of a libibverbs call, for the different conventions
/// by which calls and providers report failures.
#pragma once

#include "device.hpp"
#include "failing_verb.hpp"

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbspp::test {

/// An errno value, and the kind of error into which the library translates it.
struct expected_failure {
  int errnum;
  error_kind kind;
};

/// An errno value that only the kernel uses, and that <cerrno> does not name.
inline constexpr int nameless_errno = 524;

/// The errno values with which the tests make calls fail, unless they choose others.
inline const std::vector<expected_failure> any_failures{
    {EINVAL, error_kind::invalid_input},
    {ENOMEM, error_kind::resource_exhausted},
    {EPERM, error_kind::permission},
    {ENOENT, error_kind::not_found},
    {EOPNOTSUPP, error_kind::not_supported},
    {ETIMEDOUT, error_kind::timed_out},
    {EBUSY, error_kind::busy},
    {EIO, error_kind::driver},
    {nameless_errno, error_kind::driver},
};

/// Returns `any_failures` with the entries of `special` added. Each of them replaces the entry with
/// the same errno value, if there is one.
[[nodiscard]] std::vector<expected_failure> any_failures_but(
    const std::vector<expected_failure>& special);
/// Returns `any_failures`, but with the given kind for all errno values.
[[nodiscard]] std::vector<expected_failure> any_failures_of(error_kind kind);

struct failing_call {
  const char* verb;
  const char* operation = nullptr;  ///< the operation that the error names, if that isn't the verb
  std::vector<expected_failure> failures = any_failures;
  std::vector<convention>
      ways{};  ///< the conventions to test; by default, all conventions of the verb
  /// The first call that fails, counted from 1. Ignored for a verb that is called through a
  /// pointer.
  int first = 1;
  bool can_be_repeated = true;
};

/// Returns the conventions that providers use to report the failure of a call whose documented
/// convention is `own`.
[[nodiscard]] std::vector<convention> ways_of(convention own);

/// Checks the kind, the errno and the operation of an error. Also checks that its message is a
/// single line that contains a hint.
void check_told(const error& told, const expected_failure& expected, std::string_view operation);

/// Collects the errors that the library passes to the destroy failure handler while this object
/// exists.
class report_collector {
 public:
  report_collector();
  ~report_collector();
  report_collector(const report_collector&) = delete;
  report_collector& operator=(const report_collector&) = delete;

  [[nodiscard]] const std::vector<error>& reports() const;

 private:
  destroy_failure_handler before_;
};

namespace failing {

using attempt = std::function<std::optional<error>()>;
using breaking = std::function<void(int errnum, convention way, const std::function<void()>&)>;

template <class Make>
[[nodiscard]] attempt attempt_of(Make make) {
  return [make]() -> std::optional<error> {
    const auto outcome = make();
    if (outcome.has_value()) return std::nullopt;
    if constexpr (requires { outcome.assume_error().cause(); })
      return outcome.assume_error().cause();
    else
      return outcome.assume_error();
  };
}

void check_failing(const failing_call& call, const breaking& while_broken, const attempt& make);

}  // namespace failing

/// Calls `make` while the verb fails, once for each errno value and for each convention by which
/// the verb can report it, except for -EPERM if there are several conventions. Checks the errors,
/// and that no objects are left behind. Finally, checks that `make` succeeds without the failure,
/// if `can_be_repeated` is true. The verb must not be one that is called through a pointer.
template <class Make>
void check_failing(failing_call call, convention own, Make make) {
  if (call.ways.empty()) call.ways = ways_of(own);
  failing::check_failing(
      call,
      [&](int errnum, convention way, const std::function<void()>& act) {
        const failing_verb broken(call.verb, errnum, way, call.first);
        act();
        CHECK(broken.calls() == 1);
      },
      failing::attempt_of(make));
}

/// Does the same as `check_failing` above, for a verb that is called through `pointer`.
template <class Function, class Make>
void check_failing(failing_call call, convention own, Function*& pointer, Make make) {
  if (call.ways.empty()) call.ways = ways_of(own);
  failing::check_failing(
      call,
      [&](int errnum, convention way, const std::function<void()>& act) {
        const failing_operation broken(pointer, errnum, way);
        act();
        CHECK(broken.calls() == 1);
      },
      failing::attempt_of(make));
}

}  // namespace verbspp::test
