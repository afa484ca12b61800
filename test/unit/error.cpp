// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/base/result.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

using verbspp::error;
using verbspp::error_kind;
using verbspp::detail::error_access;
using verbspp::test::printed;

namespace {

constexpr std::array all_kinds{
    error_kind::invalid_input,  error_kind::resource_exhausted,
    error_kind::permission,     error_kind::not_found,
    error_kind::not_supported,  error_kind::timed_out,
    error_kind::cancelled,      error_kind::busy,
    error_kind::would_block,    error_kind::mismatch,
    error_kind::failed_request, error_kind::not_connected,
    error_kind::driver,
};

struct errno_meaning {
  int errnum;
  error_kind kind;
};

constexpr std::array errno_meanings{
    errno_meaning{EINVAL, error_kind::invalid_input},
    errno_meaning{ERANGE, error_kind::invalid_input},
    errno_meaning{ENOMEM, error_kind::resource_exhausted},
    errno_meaning{EMFILE, error_kind::resource_exhausted},
    errno_meaning{ENFILE, error_kind::resource_exhausted},
    errno_meaning{EAGAIN, error_kind::resource_exhausted},
    errno_meaning{ENOBUFS, error_kind::resource_exhausted},
    errno_meaning{ENOSPC, error_kind::resource_exhausted},
    errno_meaning{EPERM, error_kind::permission},
    errno_meaning{EACCES, error_kind::permission},
    errno_meaning{ENOENT, error_kind::not_found},
    errno_meaning{ENODEV, error_kind::not_found},
    errno_meaning{ENXIO, error_kind::not_found},
    errno_meaning{ENOSYS, error_kind::not_supported},
    errno_meaning{EOPNOTSUPP, error_kind::not_supported},
    errno_meaning{EPROTONOSUPPORT, error_kind::not_supported},
    errno_meaning{ETIMEDOUT, error_kind::timed_out},
    errno_meaning{ECANCELED, error_kind::cancelled},
    errno_meaning{ENOTCONN, error_kind::not_connected},
    errno_meaning{EBUSY, error_kind::busy},
    errno_meaning{EIO, error_kind::driver},
};

}  // namespace

TEST_CASE("each errno has the documented error kind") {
  for (const auto& [errnum, kind] : errno_meanings) {
    CAPTURE(errnum, to_string(kind));
    CHECK(verbspp::kind_of_errno(errnum) == kind);
    CHECK(error::from_errno(errnum, "ibv_anything").kind() == kind);
  }
}

TEST_CASE("an errno without its own error kind is reported as an error of the driver") {
  const auto is_listed = [](int errnum) {
    for (const auto& each : errno_meanings)
      if (each.errnum == errnum) return true;
    return false;
  };
  for (int errnum = -1; errnum < 200; ++errnum) {
    if (is_listed(errnum)) continue;
    CAPTURE(errnum);
    CHECK(verbspp::kind_of_errno(errnum) == error_kind::driver);
  }
}

TEST_CASE("an errno is kept unchanged") {
  for (const int errnum : {EINVAL, ENOMEM, EFAULT, 524, 4095}) {
    const auto failure = error::from_errno(errnum, "ibv_create_qp", "look it up");
    CHECK(failure.native_errno() == errnum);
    CHECK(failure.code() == std::error_code(errnum, std::generic_category()));
    CHECK(failure.operation() == std::string("ibv_create_qp"));
    CHECK(failure.hint() == std::string("look it up"));
    CHECK(failure.subject() == nullptr);
  }
}

TEST_CASE("each kind of error has its own name") {
  std::set<std::string> names;
  for (const error_kind kind : all_kinds) names.insert(to_string(kind));
  CHECK(names.size() == all_kinds.size());
  CHECK(names.count("unknown") == 0);
  CHECK(to_string(error_kind::would_block) == std::string("would block"));
  CHECK(to_string(static_cast<error_kind>(200)) == std::string("unknown"));
}

TEST_CASE("the message of an error is one line with the operation and subject and hint") {
  const error plain(error_kind::not_found, "find device", "look at `ibv_devices`");
  const std::array<std::pair<error, const char*>, 13> messages{{
      {plain, "find device: not found; look at `ibv_devices`"},
      {error(error_kind::busy, "release", nullptr), "release: busy"},
      {error(), "unknown operation: driver"},
      {error::from_errno(ETIMEDOUT, "modify INIT -> RTR", "check the address"),
       "modify INIT -> RTR: Connection timed out (ETIMEDOUT); check the address"},
      {error::from_errno(524, "ibv_reg_mr"),
       "ibv_reg_mr: errno 524; see the driver's messages in the kernel's log"},
      {error::from_errno(0, "ibv_reg_mr"),
       "ibv_reg_mr: driver; see the driver's messages in the kernel's log"},
      {error::out_of_range("parameter", "retry count (0..7)", -3, "count again"),
       "parameter: retry count (0..7): -3 is out of range; count again"},
      {error::above_limit("build", "elements", UINT64_MAX, 30),
       "build: elements: 18446744073709551615 is above the limit of 30"},
      {error::from_errno(ENOMEM, "ibv_reg_mr", "raise it").against_limit("locked, bytes", 9, 8),
       "ibv_reg_mr: Cannot allocate memory (ENOMEM): locked, bytes: 9 requested, the limit is 8; "
       "raise it"},
      {error::mismatch("compare", "MTU", 1024, 4096, "agree"),
       "compare: MTU differs: local 1024, remote 4096; agree"},
      {error::outdated("compare", "generation", 2, 3),
       "compare: generation: 2 is not above 3, the previous one"},
      {error::mismatch("compare", "transport", "RC", "UC"),
       "compare: transport differs: local RC, remote UC"},
      {error::from_errno(ENOSPC, "ibv_post_send").as(error_kind::would_block, "the queue is full"),
       "ibv_post_send: No space left on device (ENOSPC); the queue is full"},
  }};
  for (const auto& [failure, message] : messages) {
    CHECK(failure.message() == message);
    CHECK(printed(failure) == message);
  }
}

TEST_CASE("a failed call without further information gets the usual hint for its errno") {
  std::set<std::string> advice;
  for (const int errnum :
       {EINVAL, ENOMEM, EMFILE, EPERM, ENODEV, EOPNOTSUPP, ETIMEDOUT, EBUSY, EIO}) {
    const auto failure = error::from_errno(errnum, "ibv_create_qp");
    CHECK(failure.hint() == nullptr);
    const std::string message = failure.message();
    const std::size_t end_of_errno = message.find("); ");
    REQUIRE(end_of_errno != std::string::npos);
    advice.insert(message.substr(end_of_errno));
  }
  CHECK(advice.size() == 9);
  CHECK(error::from_errno(EMFILE, "ibv_open_device").message().ends_with("(`ulimit -n`)"));
}

TEST_CASE("the hint about missing file descriptors names the exhausted limit for any call") {
  for (const char* call : {"ibv_open_device", "socket", "accept over TCP"}) {
    CHECK(error::from_errno(EMFILE, call).message().ends_with("raise its limit (`ulimit -n`)"));
    CHECK(error::from_errno(ENFILE, call).message().ends_with("(`sysctl fs.file-max`)"));
  }
  CHECK(error::from_errno(EMFILE, "socket", "said").message().ends_with("; said"));
}

TEST_CASE("the error for a failed call outside of verbs does not mention the driver or memory") {
  CHECK(error::from_errno(ECONNREFUSED, "connect").message() ==
        "connect: Connection refused (ECONNREFUSED)");
  CHECK(error::from_errno(EAGAIN, "recv").message() ==
        "recv: Resource temporarily unavailable (EAGAIN)");
  CHECK(error::from_errno(EINVAL, "modify INIT -> RTR").message() !=
        "modify INIT -> RTR: Invalid argument (EINVAL)");
}

TEST_CASE("a number above the range of int64_t is printed unchanged") {
  const auto failure = error::out_of_range("parameter", "LID", UINT64_MAX);
  CHECK(failure.message() == "parameter: LID: 18446744073709551615 is out of range");
}

TEST_CASE("an error names the invalid parameter or field") {
  CHECK(error::out_of_range("o", "a port", 0).subject() == std::string("a port"));
  CHECK(error::above_limit("o", "elements", 2, 1).subject() == std::string("elements"));
  CHECK(error::mismatch("o", "MTU", 1, 2).subject() == std::string("MTU"));
  CHECK(error::mismatch("o", "transport", "a", "b").subject() == std::string("transport"));
  CHECK(error::from_errno(ENOMEM, "o").against_limit("memory", 2, 1).subject() ==
        std::string("memory"));
}

TEST_CASE("each function that creates an error sets the right kind") {
  CHECK(error::out_of_range("o", "a", 0).kind() == error_kind::invalid_input);
  CHECK(error::above_limit("o", "a", 2, 1).kind() == error_kind::invalid_input);
  CHECK(error::mismatch("o", "a", 1, 2).kind() == error_kind::mismatch);
  CHECK(error::mismatch("o", "a", "b", "c").kind() == error_kind::mismatch);
  CHECK(error::outdated("o", "a", 1, 2).kind() == error_kind::mismatch);
  const auto exhausted = error::from_errno(ENOMEM, "o").against_limit("a", 2, 1);
  CHECK(exhausted.kind() == error_kind::resource_exhausted);
  CHECK(exhausted.native_errno() == ENOMEM);
  const auto full = error::from_errno(ENOMEM, "o").as(error_kind::would_block, "full");
  CHECK(full.kind() == error_kind::would_block);
  CHECK(full.native_errno() == ENOMEM);
  CHECK(full.hint() == std::string("full"));
}

TEST_CASE("a message is truncated at the end of the buffer and its full length is returned") {
  const auto failure = error::from_errno(EBUSY, "ibv_dealloc_pd", "something still uses it");
  const std::string whole = failure.message();
  for (std::size_t size = 0; size <= whole.size() + 2; ++size) {
    CAPTURE(size);
    std::vector<char> buffer(size + 1, '#');
    CHECK(failure.format({buffer.data(), size}) == whole.size());
    CHECK(buffer[size] == '#');
    if (size == 0) continue;
    REQUIRE(std::memchr(buffer.data(), '\0', size) != nullptr);
    CHECK(buffer.data() == whole.substr(0, size - 1));
  }
}

TEST_CASE("a message longer than expected is still complete") {
  const std::string hint(2000, 'x');
  const error failure(error_kind::driver, "operation", hint.c_str());
  CHECK(failure.message() == "operation: driver; " + hint);
}

TEST_CASE("a call on a broken connection reports the kind of the earlier failure in its message") {
  const auto later = error_access::of_broken_connection({error_kind::driver, "port error", "wait"});
  CHECK(later == error_kind::not_connected);
  CHECK(later.message() ==
        "the connection is broken because of an earlier failure: port error: driver; wait");
}

TEST_CASE("an error equals its own kind and no other kind") {
  for (const error_kind one : all_kinds)
    for (const error_kind other : all_kinds) {
      CHECK((error(one, "o", nullptr) == other) == (one == other));
      CHECK((error(one, "o", nullptr) != other) == (one != other));
    }
}

TEST_CASE("an error equals the std::errc of its errno and of its kind") {
  const auto no_files = error::from_errno(EMFILE, "ibv_open_device");
  for (const auto condition : {std::errc::too_many_files_open, std::errc::not_enough_memory}) {
    CHECK(no_files == condition);
    CHECK(no_files == std::make_error_condition(condition));
  }
  for (const auto condition : {std::errc::too_many_files_open_in_system, std::errc::io_error,
                               std::errc::invalid_argument, std::errc::permission_denied}) {
    CHECK(no_files != condition);
    CHECK(no_files != std::make_error_condition(condition));
  }
}

TEST_CASE("an error without an errno equals the std::errc of its kind") {
  const std::array<std::pair<error_kind, std::errc>, 13> conditions{{
      {error_kind::invalid_input, std::errc::invalid_argument},
      {error_kind::resource_exhausted, std::errc::not_enough_memory},
      {error_kind::permission, std::errc::permission_denied},
      {error_kind::not_found, std::errc::no_such_device},
      {error_kind::not_supported, std::errc::operation_not_supported},
      {error_kind::timed_out, std::errc::timed_out},
      {error_kind::cancelled, std::errc::operation_canceled},
      {error_kind::not_connected, std::errc::not_connected},
      {error_kind::busy, std::errc::device_or_resource_busy},
      {error_kind::would_block, std::errc::operation_would_block},
      {error_kind::mismatch, std::errc::invalid_argument},
      {error_kind::failed_request, std::errc::io_error},
      {error_kind::driver, std::errc::io_error},
  }};
  for (const auto& [kind, condition] : conditions) {
    const error failure(kind, "o", nullptr);
    CAPTURE(to_string(kind));
    CHECK(failure.native_errno() == 0);
    CHECK(failure == condition);
    CHECK(failure.code() == condition);
    CHECK(failure != std::errc::address_in_use);
    CHECK(make_error_code(failure) == failure.code());
  }
}

TEST_CASE("a full queue is std::errc::operation_would_block whatever errno the provider used") {
  for (const int errnum : {ENOMEM, EAGAIN, ENOBUFS, ENOSPC}) {
    const auto full = error::from_errno(errnum, "o").as(error_kind::would_block, "full");
    CHECK(full == std::errc::operation_would_block);
    CHECK(full == std::make_error_condition(std::errc::operation_would_block));
    CHECK(full.native_errno() == errnum);
  }
}

TEST_CASE("an error equals only the std::error_code of its errno") {
  const auto failure = error::from_errno(EMFILE, "o");
  CHECK(failure == std::error_code(EMFILE, std::generic_category()));
  CHECK(failure != std::error_code(ENOMEM, std::generic_category()));
  CHECK(failure != std::error_code(EMFILE, std::iostream_category()));
}

TEST_CASE("the errno of a failed call is found for each error convention") {
  using verbspp::detail::errno_of;
  errno = EBADF;
  CHECK(errno_of(0) == 0);
  CHECK(errno_of(EINVAL) == EINVAL);
  CHECK(errno_of(-EINVAL) == EINVAL);
  CHECK(errno_of(-524) == 524);
  errno = ENOMEM;
  CHECK(errno_of(-1) == ENOMEM);
}

TEST_CASE("a call that returns -1 without setting errno is reported as a failure") {
  errno = 0;
  CHECK(verbspp::detail::errno_of(-1) == EIO);
}
