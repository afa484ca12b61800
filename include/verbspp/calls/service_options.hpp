// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/wait/waiting.hpp>

#include <cstdint>

namespace verbspp {

/// The options of a service.
struct service_options {
  /// The maximum number of clients at a time: 1 to 65,535.
  std::uint32_t clients = 64;
  /// The number of calls that each client may have in flight: 1 to 65,535. Each channel that is
  /// added to the service needs a send queue of this size; with the default size, 16 is the
  /// maximum.
  std::uint32_t in_flight = 8;
  /// The maximum size of a request and of an answer, in bytes: 128 to 2^30. If the maximum of a
  /// caller is smaller, that maximum applies to its calls.
  std::uint32_t message_size = 1024;
  /// The maximum size of lent memory whose bytes are sent, in bytes. If the maximum of a caller is
  /// smaller, that maximum applies. Use 0 if handlers read into, or write from, memory that the
  /// program cannot access, such as a dma-buf.
  std::uint32_t sent_size = 65'536;
  /// The maximum number of calls in flight, for each client, that lend memory over lanes: 0 to
  /// 65,534. Each such call uses a queue pair of its own, which is created when the client first
  /// needs it.
  std::uint32_t lanes = 4;
  /// The way in which threads wait for calls, and handlers wait for accesses to lent memory.
  wait_mode waiting = wait_mode::spin();
};

/// The counters of a service, or of one of its methods. They begin at 0 when the service is
/// created.
struct service_statistics {
  std::uint64_t calls = 0;     ///< calls that arrived
  std::uint64_t answers = 0;   ///< answers that were sent
  std::uint64_t refusals = 0;  ///< refusals that were sent
  std::uint64_t request_bytes = 0;
  std::uint64_t answer_bytes = 0;     ///< including the texts of refusals
  std::uint64_t removed_clients = 0;  ///< clients removed because they violated the protocol
  std::uint64_t lanes = 0;            ///< queue pairs that were connected for lent memory
};

}  // namespace verbspp
