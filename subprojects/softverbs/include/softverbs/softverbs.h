// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C interface of the software verbs device.
///
/// A program needs nothing from here to use the device: linking against
/// libsoftverbs in front of libibverbs, or LD_PRELOAD, is enough. This header is
/// for programs that want to know that they run on it.
///
/// The environment variables are read once, when the devices are first listed:
///
/// - `SOFTVERBS_DEVICES`: number of devices, 0 to 64; the default is 1.
/// - `SOFTVERBS_LINK_LAYER`: `ethernet` (the default) or `infiniband`.
/// - `SOFTVERBS_FAULTS`: reserved for failures on demand; ignored today.
#ifndef SOFTVERBS_SOFTVERBS_H
#define SOFTVERBS_SOFTVERBS_H

#ifdef __cplusplus
extern "C" {
#endif

/// The library's version, "major.minor.patch". The string is static.
const char* softverbs_version(void);

#ifdef __cplusplus
}
#endif

#endif
