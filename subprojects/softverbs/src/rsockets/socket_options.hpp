// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <map>
#include <utility>
#include <vector>

namespace softverbs {

/// The options that rsetsockopt and rgetsockopt support, except SO_ERROR. Most of them are only
/// stored.
class socket_options {
 public:
  // `set` and `get` return 0 or an errno value.
  int set(int level, int name, const void* value, socklen_t length);
  int get(int level, int name, void* value, socklen_t* length) const;

  /// Returns the value of a numeric option.
  int value(int level, int name) const;

 private:
  std::map<std::pair<int, int>, std::vector<unsigned char>> given_;
};

}  // namespace softverbs
