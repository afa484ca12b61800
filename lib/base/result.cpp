// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/result.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace verbspp {

exception::exception(const class error& cause) : std::system_error(cause.code()), error_(cause) {
  error_.format(text_);
}

void error::raise() const {
#if defined(__cpp_exceptions)
  throw exception(*this);
#else
  std::array<char, 512> line{};
  format(line);
  std::fprintf(stderr,
               "verbspp: an error was raised (usually by value() of a failed result) in a build "
               "without exceptions, so the program aborts: %s\n",
               line.data());
  std::abort();
#endif
}

void detail::throw_no_error() {
  error(error_kind::invalid_input, "result::error()",
        "the result holds a value; call has_error() first")
      .raise();
}

}  // namespace verbspp
