// SPDX-License-Identifier: Apache-2.0
// Includes verbspp.hpp after defining macros that other code may define: Qt, X11,
// <sys/sysmacros.h>, Windows and test frameworks. Headers of other libraries come first, because
// they are not under test.
#include <boost/outcome/success_failure.hpp>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

// NOLINTBEGIN
#define slots
#define signals public
#define emit
#define check(...) static_cast<void>(0)
#define verify(...) static_cast<void>(0)
#define require(...) static_cast<void>(0)
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define major(device) gnu_dev_major(device)
#define minor(device) gnu_dev_minor(device)
#define makedev(a, b) gnu_dev_makedev(a, b)
#define None 0L
#define Status int
#define Success 0
#define Bool int
#define True 1
#define False 0
#define Always 2
// NOLINTEND

#include <verbspp/verbspp.hpp>
