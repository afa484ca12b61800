// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether the library tells the failure of a call of libibverbs as it came, in every way that the
/// call, or a provider behind it, has of telling it.
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

/// An errno, and what it means to the caller.
struct expected_failure {
  int errnum;
  error_kind kind;
};

/// An errno of the kernel's own, which has no name.
inline constexpr int nameless_errno = 524;

/// What any call may fail with.
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

/// The same, but for errnos that mean something else to that call.
[[nodiscard]] std::vector<expected_failure> any_failures_but(
    const std::vector<expected_failure>& special);
/// The same, each of this kind.
[[nodiscard]] std::vector<expected_failure> any_failures_of(error_kind kind);

struct failing_call {
  const char* verb;
  const char* operation = nullptr;  ///< what the error calls it, if not by the verb
  std::vector<expected_failure> failures = any_failures;
  std::vector<convention> ways{};  ///< of telling it; all that the verb has unless given
  int first = 1;                   ///< the number of the call that fails
  bool can_be_repeated = true;
};

/// The ways in which providers tell the failure of a call that has that one.
[[nodiscard]] std::vector<convention> ways_of(convention own);

/// Kind, errno and operation, in one line that a person can act on.
void check_told(const error& told, const expected_failure& expected, std::string_view operation);

/// Collects what destructors report in the scope.
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

/// Lets a verb fail that is a function, in each way, with each errno: `make` is the library's call.
/// Afterwards nothing is left of it, and it works.
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

/// The same of a verb that goes through a pointer.
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
