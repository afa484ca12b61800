// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The options of a caller.
struct caller_options {
  /// The maximum number of calls in flight: 1 to 65,535. The service may allow fewer. The channel
  /// needs a send queue of this size, and a receive queue of twice this size; with the default
  /// sizes of a channel, 8 is the maximum.
  std::uint32_t in_flight = 8;
  /// The maximum size of a request and of an answer, in bytes: 128 to 2^30. If the maximum of the
  /// service is smaller, that maximum applies.
  std::uint32_t message_size = 1024;
  /// The number of answers of type `bytes` that the program may keep while calls continue.
  std::uint32_t kept_answers = 8;
  /// The maximum number of calls in flight that lend memory over lanes: 1 to 65,534. The service
  /// may allow fewer. Each such call uses a queue pair of its own, which is created when it is
  /// first needed, and reused by later calls.
  std::uint32_t lanes = 1;
  /// The maximum size of lent memory whose bytes are sent, in bytes; with 0, memory is never sent.
  /// If the maximum of the service is smaller, that maximum applies. The bytes must also fit into a
  /// message of `message_size` bytes, together with the request or the answer. A call whose memory
  /// is sent needs no lane. Memory is not sent if the answer may have any size, or if the size of
  /// the request is known only when it is encoded.
  std::uint32_t sent_size = 65'536;
  /// If `call` lends memory over a lane, and the memory is not registered with
  /// `access::window_bind`, memory of up to this many bytes is copied; larger memory is registered
  /// for the time of the call. With 0, or on a device without memory windows, nothing is copied.
  /// Each lane allocates a buffer of this size when it is first needed. On softverbs, copying up to
  /// 1 MiB takes less time than registering it.
  std::uint32_t copied_size = 65'536;
  /// True to measure the durations of calls, for `caller::durations`. Measuring reads the clock
  /// twice for each call, and needs 1,280 bytes for each method.
  bool measures_durations = false;
};

/// The counters of a caller, or of one of its methods. They begin at 0 at `caller::start`.
struct caller_statistics {
  std::uint64_t calls = 0;         ///< calls that were sent
  std::uint64_t answers = 0;       ///< answers that were taken
  std::uint64_t refusals = 0;      ///< refusals that were taken
  std::uint64_t given_up = 0;      ///< calls that ended before their answer was taken
  std::uint64_t late_answers = 0;  ///< answers to calls that had ended
  /// Calls that waited until they could be sent, except awaited calls that need a lane.
  std::uint64_t waits = 0;
  std::uint64_t request_bytes = 0;
  std::uint64_t answer_bytes = 0;
  std::uint64_t lent_bytes = 0;    ///< the sizes of the memory that the sent calls have lent
  std::uint64_t sent_bytes = 0;    ///< the part of `lent_bytes` that was lent without a lane
  std::uint64_t copied_bytes = 0;  ///< the part of `lent_bytes` that was copied
  std::uint64_t lanes = 0;         ///< queue pairs that were connected for lent memory
};

}  // namespace verbspp
