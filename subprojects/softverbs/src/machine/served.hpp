// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "device/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

struct packet;

/// An object with a deadline.
class timed {
 public:
  timed() = default;
  timed(const timed&) = delete;
  timed& operator=(const timed&) = delete;

  /// Called under the engine's lock when the deadline has expired.
  virtual void on_deadline(nanoseconds time) = 0;

  nanoseconds deadline() const noexcept { return deadline_; }

 protected:
  ~timed() = default;

 private:
  friend class engine;
  nanoseconds deadline_ = 0;
  static constexpr std::size_t unlisted = ~std::size_t{0};
  /// The index in the engine's list of objects with a deadline, or `unlisted`.
  std::size_t listed_at_ = unlisted;
};

/// The engine's interface to a queue pair or receive work queue. The engine calls these functions
/// under its lock. `on_packet`, `on_deadline` and `serve` may take the lock of the object.
class served : public timed {
 public:
  virtual void on_packet(const packet& incoming) = 0;
  /// Does pending work. Returns true if more can be done without waiting for an event.
  virtual bool serve() = 0;

  /// The number of the peer's queue pair, and the number of this object's protection domain. Each
  /// is 0 if there is none.
  virtual std::uint32_t peer() const noexcept = 0;
  virtual std::uint32_t domain() const noexcept = 0;
  /// The port of the queue pair; the first port until the program has chosen one.
  virtual station station_here() const noexcept = 0;

  /// The number of the queue pair. The lower part of the number is the queue pair's index in the
  /// engine.
  std::uint32_t number() const noexcept { return number_; }

 protected:
  ~served() = default;

 private:
  friend class engine;
  std::uint32_t number_ = 0;
  bool scheduled_ = false;
  served* next_active_ = nullptr;
  served* previous_active_ = nullptr;
  /// Not protected by the engine's lock.
  std::atomic<bool> rung_{false};
  served* next_rung_ = nullptr;
};

}  // namespace softverbs
