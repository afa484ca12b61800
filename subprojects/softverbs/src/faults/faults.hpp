// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"
#include "faults/failing_verbs.hpp"
#include "faults/fault_list.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softverbs {
class machine;
}  // namespace softverbs

/// The injected faults. The other parts of the device check here whether an operation has to fail.
/// softverbs.h describes the syntax.
namespace softverbs::faults {

/// The effect of faults on an arriving packet.
struct fate {
  bool lost = false;
  bool twice = false;
  bool swapped = false;  ///< with the next packet for the same queue pair
};

/// True if faults were set since the last reset, if a port is configured to be down, or if all
/// operations must go through the engine. In a program without faults, each operation checks only
/// this flag.
inline std::atomic<bool> any{false};

/// A queue pair, identified by its port and its number.
struct place {
  station port;
  std::uint32_t pair;
};

std::optional<answer> strike_now(std::size_t verb, const ibv_context* context);
verdict judge_now(std::uint32_t pair, bool receives);
fate fate_now(const place& where);
bool silences_now(const place& where) noexcept;

/// Returns the result of a call that has to fail, or nothing if it may proceed. Sleeps first if a
/// fault delays the call. Must be called without the engine's lock. If `context` is null, a broken
/// device doesn't make the call fail.
inline std::optional<answer> strike(std::size_t verb, const ibv_context* context) {
  if (!any.load(std::memory_order_relaxed)) return std::nullopt;
  return strike_now(verb, context);
}

// The following functions require the engine's lock.

/// Returns the effect of faults on the next work request of this queue pair.
inline verdict judge(std::uint32_t pair, bool receives) {
  if (!any.load(std::memory_order_relaxed)) return {};
  return judge_now(pair, receives);
}

/// Returns the effect of faults on the next packet for the queue pair.
inline fate fate_of(const place& where) {
  return any.load(std::memory_order_relaxed) ? fate_now(where) : fate{};
}

/// True if faults prevent the packets that the queue pair sends from arriving.
inline bool silences(const place& where) noexcept {
  return any.load(std::memory_order_relaxed) && silences_now(where);
}

/// Makes the engine of this machine check the times of faults, and publishes `any` to peers. A
/// forked child has a new machine, so this is called in the child, too.
void keep_time(machine& on);

// Except for `pass_by_engine`, the following functions need no lock.

bool port_is_down(station port) noexcept;
bool is_broken(unsigned device) noexcept;
/// Returns the number of times that the device has broken.
unsigned breakages(unsigned device) noexcept;
/// Returns a descriptor that becomes readable each time a device breaks, or -1 with errno on
/// failure. The descriptor must be polled edge-triggered, and must not be read. Must be called
/// without the lock.
int breakage_descriptor() noexcept;
/// Closes the descriptor in a forked child, because it belongs to the parent.
void abandon_breakages() noexcept;

/// Adds faults. Returns 0, EINVAL or ENOMEM. Errors in the text are printed on stderr, with
/// `origin` and `consequence` (see `read_faults`). Must be called without the lock.
int inject(const char* text, const char* origin, const char* consequence) noexcept;
/// Removes all faults, and undoes their changes. Must be called without the lock, like `struck`.
void reset() noexcept;
/// Returns how many times faults have struck since the last reset.
unsigned long long struck() noexcept;
/// Returns how often the fault with this text has struck, or ULLONG_MAX if no fault that waits for
/// an occasion has this text.
unsigned long long struck(const char* text) noexcept;
/// Makes all later operations go through the engine, as if faults were set.
void keep_to_engine() noexcept;
/// Undoes `keep_to_engine`, unless faults are set or a port is configured to be down. Requires the
/// lock.
void pass_by_engine() noexcept;
/// The first call sets ports to their configured states, and sets the faults in SOFTVERBS_FAULTS
/// unless libsoftverbs-faults applies them. Returns false if these faults are not valid or could
/// not be set.
bool read_environment() noexcept;

}  // namespace softverbs::faults

/// Returns from the calling function if faults make this call of `verb` fail.
#define SOFTVERBS_FAULT(verb, context)                                                 \
  if (const auto failure =                                                             \
          ::softverbs::faults::strike(::softverbs::faults::number_of(#verb), context)) \
  return *failure
