// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the two ends of the soak tell each other besides what they send.
#pragma once

#include <verbspp/qp/endpoint.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace verbspp::soak {

/// The steps of a connection, which both ends take together.
enum class step : std::uint32_t {
  ready = 1,  ///< it has an endpoint, and receives
  connected,
  leaving,  ///< it posts nothing more
  drained,  ///< all that both have sent has arrived
  closed,   ///< its memory is its own again
};

/// A few words, which another process may read meanwhile: then parts of two.
class public_words {
 public:
  public_words& operator=(std::string_view words) {
    for (std::size_t i = 0; i < letters_.size(); ++i)
      letters_[i].store(i < words.size() ? words[i] : '\0', std::memory_order_relaxed);
    return *this;
  }
  [[nodiscard]] std::string text() const {
    std::string found;
    for (const std::atomic<char>& each : letters_) {
      const char letter = each.load(std::memory_order_relaxed);
      if (letter == '\0') break;
      found += letter;
    }
    return found;
  }

 private:
  std::array<std::atomic<char>, 48> letters_{};
};

/// What one end says of itself. A connection has a number, from 1 on, which both ends count.
struct board_end {
  std::atomic<std::uint64_t> reached{0};  ///< the connection's number times 8, plus the step
  /// The last connection that it has given up, or is about to, by its own doing: by a limit, a
  /// request to stop, by closing it. It explains the failures of both ends.
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> broken{0};      ///< the last connection that it has found broken
  std::atomic<std::uint64_t> taken{0};       ///< messages that it has taken in this connection
  std::atomic<std::uint64_t> sent{0};        ///< messages that it has sent, once it is leaving
  std::atomic<std::uint64_t> added{0};       ///< what it knows to have added to the peer's word
  std::atomic<std::uint64_t> added_most{0};  ///< what it has posted for that
  public_words doing{};
  std::atomic<bool> wants_to_stop{false};
  std::atomic<std::uint64_t> operations{0};
  /// The number of what it leases to the other end; 0: nothing.
  std::atomic<std::uint64_t> lease{0};
  std::atomic<std::uint64_t> lease_address{0};
  std::atomic<std::uint32_t> lease_key{0};
  std::atomic<bool> may_give_back{false};     ///< whether the other end may make its key void
  std::atomic<std::uint64_t> using_lease{0};  ///< the lease of the other end that it uses
  std::atomic<std::uint64_t> gave_back{0};    ///< the last one that it made void by a message
  /// Of `endpoint::encode`, valid from `ready` on.
  std::array<std::byte, verbspp::endpoint::encoded_size> endpoint{};
  std::array<std::byte, 24> memory{};  ///< of `remote_memory::encode`, the same
  std::array<char, 400> why{};         ///< why the connection broke, valid from `closed` on
};

/// Whether it goes on, and what the first to fail has found.
struct verdict {
  std::atomic<bool> is_over{false};  ///< time, or what was asked for
  std::atomic<bool> failed{false};
  std::array<char, 1000> failure{};

  void fail(std::string_view what) {
    if (failed.load()) return;
    std::memcpy(failure.data(), what.data(), std::min(what.size(), failure.size() - 1));
    failed = true;
  }
};

/// Shared by the two ends, which are threads, or processes that map it.
struct board : verdict {
  std::array<board_end, 2> ends{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace verbspp::soak
