// SPDX-License-Identifier: Apache-2.0

// Checks that a program can catch the library's exceptions by type even if it hides its own
// symbols. Some C++ libraries compare types by their addresses, which would fail if the types were
// hidden.

#include <verbspp/verbspp.hpp>

#include <cerrno>
#include <cstdio>
#include <typeinfo>

namespace {

template <class Exception, class Result>
bool caught(const char* what, const Result& failed) {
  try {
    static_cast<void>(failed.value());
  } catch (const Exception& thrown) {
    if (&typeid(thrown) == &typeid(Exception)) return true;
    std::printf("%s: caught, but the library's type has another address\n", what);
    return false;
  } catch (...) {
  }
  std::printf("%s: not caught\n", what);
  return false;
}

}  // namespace

int main() {
  const verbspp::result<int> failed = verbspp::error::from_errno(EINVAL, "ibv_open_device");
  const verbspp::work_result<int> flushed =
      verbspp::work_error(verbspp::work_status::flushed, 0, 0, 0);
  const bool both = caught<verbspp::exception>("exception", failed) &&
                    caught<verbspp::work_exception>("work_exception", flushed);
  return both ? 0 : 1;
}
