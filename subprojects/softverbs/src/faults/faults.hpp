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

/// Failures on demand: what the rest of the device asks whether it has to fail. The grammar is
/// that of softverbs.h.
namespace softverbs::faults {

/// What becomes of a packet that comes in.
struct fate {
  bool lost = false;
  bool twice = false;
  bool swapped = false;  ///< with the next one for its queue pair
};

/// False as long as nothing was asked for: all that a program without faults has to look at.
inline std::atomic<bool> any{false};

/// A queue pair, by its port and its number.
struct place {
  station port;
  std::uint32_t pair;
};

std::optional<answer> strike_now(std::size_t verb, const ibv_context* context);
verdict judge_now(std::uint32_t pair, bool receives);
fate fate_now(const place& where);
bool silences_now(const place& where) noexcept;

/// Whether a call has to fail. Not under the engine's lock. Without a context, the call works
/// on a broken device, too.
inline std::optional<answer> strike(std::size_t verb, const ibv_context* context) {
  if (!any.load(std::memory_order_relaxed)) return std::nullopt;
  return strike_now(verb, context);
}

// What follows is called under the engine's lock.

/// What becomes of the next work request of this queue pair.
inline verdict judge(std::uint32_t pair, bool receives) {
  if (!any.load(std::memory_order_relaxed)) return {};
  return judge_now(pair, receives);
}

/// Of the next packet for the queue pair.
inline fate fate_of(const place& where) {
  return any.load(std::memory_order_relaxed) ? fate_now(where) : fate{};
}

/// Whether none that it sends arrives.
inline bool silences(const place& where) noexcept {
  return any.load(std::memory_order_relaxed) && silences_now(where);
}

/// Has the machine, which may be the new one of a child of fork, keep the times that are asked for.
void keep_time(machine& on);

// Also without the lock.

bool port_is_down(station port) noexcept;
bool is_broken(unsigned device) noexcept;
/// How often it has broken.
unsigned breakages(unsigned device) noexcept;
/// A descriptor with an edge of readability for each device that breaks; -1 with errno. It is not
/// to be read. Not under the lock.
int breakage_descriptor() noexcept;
/// In a child of fork: the descriptor is its parent's.
void abandon_breakages() noexcept;

/// Adds faults; 0, or EINVAL or ENOMEM. What is wrong is said on stderr, with where they come
/// from and what follows. Not under the lock.
int inject(const char* text, const char* origin, const char* consequence) noexcept;
/// Drops all, and repairs what they have broken.
void reset() noexcept;
/// How many have acted since the last reset.
unsigned long long struck() noexcept;
/// How often the one of that text has, all ones if there is none.
unsigned long long struck(const char* text) noexcept;
/// From here on nothing is as fast as without faults: all goes through the engine.
void keep_to_engine() noexcept;
/// Ends that, unless there are faults. Under the lock.
void pass_by_engine() noexcept;
/// Those of SOFTVERBS_FAULTS, at the first call; false if they make no sense.
bool read_environment() noexcept;

}  // namespace softverbs::faults

/// Returns from a call of `verb` that has to fail.
#define SOFTVERBS_FAULT(verb, context)                                                 \
  if (const auto failure =                                                             \
          ::softverbs::faults::strike(::softverbs::faults::number_of(#verb), context)) \
  return *failure
