// SPDX-License-Identifier: Apache-2.0
/// \file
/// Code that the tests of the connection manager share. Most of the tests require a connection
/// manager (the kernel's or the one in softverbs), and a device that the connection manager
/// supports. They connect to the device's own addresses.
#pragma once

#include "../device/device.hpp"
#include <verbspp/cm.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace verbspp::test {

/// A short time limit, mostly for waits that are expected to time out.
inline constexpr std::chrono::milliseconds short_limit{300};

/// Skips the test case if there is no connection manager, or if the process may not use it.
void need_manager();

enum class family : std::uint8_t { ipv4, ipv6 };
/// Returns an address of the device under test, with port 0. Returns an empty optional if the first
/// active port has no RoCE v2 address of this family other than link-local ones.
[[nodiscard]] std::optional<cm_address> own_address(family which);

/// The device, and a listener on one of its own addresses.
struct cm_bed {
  explicit cm_bed(family which = family::ipv4, const cm_listener_options& options = {})
      : cm_bed((need_manager(), which), options, 0) {}

  testbed device;
  cm_listener listener;

  [[nodiscard]] cm_route route(const cm_route_options& options = {}) const {
    return must(cm_route::resolve(listener.address(), patience, options));
  }
  [[nodiscard]] auto channel() const { return device.domain.build_channel(); }
  [[nodiscard]] prepared_channel prepare() const { return must(channel().build()); }

 private:
  cm_bed(family which, const cm_listener_options& options, int);
};

/// Advances both sessions until both have finished.
template <class Left, class Right>
void drive(Left& left, Right& right) {
  wait_until(
      [&] {
        const bool left_is_done = must(left.poll());
        return must(right.poll()) && left_is_done;
      },
      "both ends to be connected");
}

/// Advances both sessions until `failing` fails. \returns its error
template <class Failing, class Other>
[[nodiscard]] error drive_until_failure(Failing& failing, Other& other) {
  std::optional<error> why;
  wait_until(
      [&] {
        static_cast<void>(other.poll());
        const auto done = failing.poll();
        if (!done.has_value()) why = done.error();
        return why.has_value();
      },
      "the session to fail");
  return *why;
}

/// Two ends, connected to each other.
struct cm_pair {
  managed_channel client;
  managed_channel server;
};
[[nodiscard]] cm_pair connect(cm_bed& bed, prepared_channel client, prepared_channel server,
                              const cm_connect_options& asked = {},
                              const cm_accept_options& answered = {});
[[nodiscard]] cm_pair connect(cm_bed& bed);

/// A fixture with both ends, and the listener through which they connected.
struct two_cm_ends {
  cm_bed bed;
  cm_pair pair = connect(bed);
};

/// Connects `clients` clients at the same time, and checks that each gets its own answer.
void connect_many(cm_bed& bed, int clients);

/// Sends a message from one channel to the other, and checks that it arrives.
void check_talk(const cm_bed& bed, channel& from, channel& to);

}  // namespace verbspp::test
