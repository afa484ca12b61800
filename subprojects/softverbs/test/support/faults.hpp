// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "support/fabric.hpp"
#include <softverbs/softverbs.h>

#include <cstdint>
#include <string>

/// Code that tests share: faults, and single steps of the device.

/// Sets faults. The destructor resets all faults.
struct faults {
  explicit faults(const std::string& text = "") { add(text); }
  faults(const faults&) = delete;
  faults& operator=(const faults&) = delete;
  ~faults() { softverbs_reset_faults(); }
  static void add(const std::string& text) { REQUIRE(softverbs_inject(text.c_str()) == 0); }
};

/// Holds the device until go_on() is called or this object is destroyed. While it is held, the
/// device runs only in single steps.
struct standstill {
  explicit standstill(unsigned long long seed = 1) { softverbs_hold(seed); }
  standstill(const standstill&) = delete;
  standstill& operator=(const standstill&) = delete;
  ~standstill() { go_on(); }
  void go_on() { softverbs_go_on(); }
};

/// Returns the part of a fault's text that selects the queue pair or work queue with this number.
inline std::string at(std::uint32_t number) { return "@" + std::to_string(number); }
inline std::string at(const endpoint& end) { return at(end.pair->qp_num); }

inline options of_type(ibv_qp_type type) {
  options result;
  result.type = type;
  return result;
}

inline void completes(endpoint& end, std::uint64_t id, ibv_wc_status status) {
  const ibv_wc completion = end.wait();
  CHECK(completion.wr_id == id);
  CHECK(static_cast<int>(completion.status) == static_cast<int>(status));
}

inline ibv_port_state port_of(const endpoint& end) {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(end.context, 1, &port) == 0);
  return port.state;
}
