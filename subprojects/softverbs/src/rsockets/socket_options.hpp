// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <map>
#include <utility>
#include <vector>

namespace softverbs {

/// The options that rsetsockopt and rgetsockopt know. Most are only remembered, as by librdmacm.
class socket_options {
 public:
  // Each is 0 or an errno.
  int set(int level, int name, const void* value, socklen_t length);
  int get(int level, int name, void* value, socklen_t* length) const;

  /// The value of an option that is a number.
  int value(int level, int name) const;

 private:
  std::map<std::pair<int, int>, std::vector<unsigned char>> given_;
};

}  // namespace softverbs
