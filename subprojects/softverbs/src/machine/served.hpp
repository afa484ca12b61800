// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "device/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softverbs {

struct packet;

/// What has one deadline, which the engine keeps.
class timed {
 public:
  timed() = default;
  timed(const timed&) = delete;
  timed& operator=(const timed&) = delete;

  /// The time has come. Under the engine's lock.
  virtual void on_deadline(nanoseconds time) = 0;

  nanoseconds deadline() const noexcept { return deadline_; }

 protected:
  ~timed() = default;

 private:
  friend class engine;
  nanoseconds deadline_ = 0;
  /// Its place in the engine's list.
  static constexpr std::size_t unlisted = ~std::size_t{0};
  std::size_t listed_at_ = unlisted;
};

/// All that the engine knows of a queue pair. It calls these under its lock, and they take the
/// queue pair's.
class served : public timed {
 public:
  virtual void on_packet(const packet& incoming) = 0;
  /// True if there is more to do, for which nothing has to happen first.
  virtual bool serve() = 0;

  /// The number of the peer, 0 if it has none, and of the domain whose memory that may access.
  virtual std::uint32_t peer() const noexcept = 0;
  virtual std::uint32_t domain() const noexcept = 0;
  /// Its port. Before it has one, there are no packets either.
  virtual station station_here() const noexcept = 0;

  /// Also its place in the engine.
  std::uint32_t number() const noexcept { return number_; }

 protected:
  ~served() = default;

 private:
  friend class engine;
  std::uint32_t number_ = 0;
  bool scheduled_ = false;
  served* next_active_ = nullptr;
  served* previous_active_ = nullptr;
  /// Not by the engine's lock.
  std::atomic<bool> rung_{false};
  served* next_rung_ = nullptr;
};

}  // namespace softverbs
