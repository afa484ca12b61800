// SPDX-License-Identifier: Apache-2.0
// What null_device.c counts of its use: what real devices spend their time with.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_counts {
  uint64_t doorbells;    // calls that posted: a write to the device for each
  uint64_t completions;  // that the device has made
  uint64_t locks;        // calls for which a driver takes a lock: to post, and to poll
};

// Since the program began.
struct device_counts device_counts_now(void);

#ifdef __cplusplus
}
#endif
