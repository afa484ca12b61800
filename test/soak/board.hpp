// SPDX-License-Identifier: Apache-2.0
/// \file
/// The soak is a long test in which two ends send each other random requests. Apart from these
/// requests, the ends communicate through ordinary shared memory, whose contents this header
/// defines.
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

/// The steps that a connection goes through. At each step, an end waits until the other end has
/// reached it. An end whose connection ends early does not wait at `leaving` and `drained`.
enum class step : std::uint32_t {
  ready = 1,  ///< this end has published its endpoint and its memory
  connected,
  leaving,  ///< this end now posts only receives
  drained,  ///< this end has received all messages, or its connection has ended
  closed,   ///< peers can no longer access this end's memory
};

/// A short text that another process may read at any time. A reader may see a mixture of the old
/// and the new text.
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

/// The state that one end publishes. Both ends number their connections, starting with 1.
struct board_end {
  std::atomic<std::uint64_t> reached{0};  ///< the number of the connection times 8, plus the step
  /// The last connection that this end has decided to end. Requests on this connection may fail at
  /// both ends.
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> broken{0};  ///< the last connection that this end no longer uses
  /// The number of messages that this end has received on this connection.
  std::atomic<std::uint64_t> taken{0};
  /// The number of messages that this end has sent. Valid once this end has reached `leaving`.
  std::atomic<std::uint64_t> sent{0};
  /// The sum of this end's additions to the peer's word that are known to have succeeded.
  std::atomic<std::uint64_t> added{0};
  std::atomic<std::uint64_t> added_most{0};  ///< the sum of posted additions
  public_words doing{};
  std::atomic<bool> wants_to_stop{false};
  std::atomic<std::uint64_t> operations{0};
  /// The number of this end's lease that the other end may use, or 0 if there is none.
  std::atomic<std::uint64_t> lease{0};
  std::atomic<std::uint64_t> lease_address{0};
  std::atomic<std::uint32_t> lease_key{0};
  /// True if the other end may invalidate the key of the lease.
  std::atomic<bool> may_give_back{false};
  /// The number of the lease that this end is using, which the other end granted. 0 if there is
  /// none.
  std::atomic<std::uint64_t> using_lease{0};
  /// The number of the other end's lease that this end returned most recently. A lease is returned
  /// with a message that invalidates its key.
  std::atomic<std::uint64_t> gave_back{0};
  /// The encoded endpoint. Valid once this end has reached `ready`.
  std::array<std::byte, verbspp::endpoint::encoded_size> endpoint{};
  std::array<std::byte, 24> memory{};  ///< valid once this end has reached `ready`
  /// The reason why the connection broke. Valid once this end has reached `closed`.
  std::array<char, 400> why{};
};

/// The state of the soak as a whole: whether it is over, and its first failure.
struct verdict {
  /// True if the soak must end because of its time or, with clients, because of its number of
  /// operations.
  std::atomic<bool> is_over{false};
  std::atomic<bool> failed{false};
  std::array<char, 1000> failure{};

  void fail(std::string_view what) {
    if (failed.load()) return;
    std::memcpy(failure.data(), what.data(), std::min(what.size(), failure.size() - 1));
    failed = true;
  }
};

/// The memory that the two ends share. The ends are either threads, or processes that map this
/// memory.
struct board : verdict {
  std::array<board_end, 2> ends{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace verbspp::soak
