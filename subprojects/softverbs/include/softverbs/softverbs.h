// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C interface of the software verbs device.
///
/// A program needs nothing from here to use the device: linking against
/// libsoftverbs in front of libibverbs, or LD_PRELOAD, is enough. This header is
/// for programs that want to know that they run on it, and for tests that want it
/// to fail. A test that must not be linked with the library finds these functions
/// by `dlsym(RTLD_DEFAULT, ...)` if it runs on it.
///
/// The environment variables are read once, when the devices are first listed:
///
/// - `SOFTVERBS_DEVICES`: number of devices, 0 to 64; the default is 1.
/// - `SOFTVERBS_LINK_LAYER`: `ethernet` (the default) or `infiniband`.
/// - `SOFTVERBS_CONFIG`: a file that says how the devices differ; README.md has what may stand in
/// it.
/// - `SOFTVERBS_FAULTS`: what fails from the start, as for softverbs_inject.
///
/// ## Faults
///
/// A list, separated by `;`, of
///
///     OCCASION [:WHEN] = EFFECT     when it comes to that
///     CHANGE                        at once
///
/// | OCCASION | counts |
/// | --- | --- |
/// | the name of a verb, such as `ibv_create_qp` | calls of it, for devices of softverbs |
/// | `completion[@QPN]` | work requests that are carried out, signaled or not |
/// | `send-completion[@QPN]` | the same, of send queues |
/// | `receive-completion[@QPN]` | the same, of receive queues |
/// | `packet[@QPN]` | packets that come in |
/// | `after` | WHEN is a time from now, such as `250ms` |
///
/// `@QPN`, the number of a queue pair of this process, restricts it to that one.
/// WHEN is `N` for the N-th only, counted from when the fault is set, `N+` for
/// that and all later ones, `*` for all, `P%` for a part of them, such as `0.5%`; 1 if left out.
///
/// EFFECT, of a verb:
///
/// - errno, such as `ENOMEM`: told in the way of that verb, which is to return it, or to return -1
///   or a null pointer with errno set, or to return it negative (ibv_poll_cq).
/// - `+ENOMEM`, `-ENOMEM`, `-1/ENOMEM`, where a verb returns a number: returned; returned negative;
///   -1 with errno set. Providers differ.
/// - time, such as `20ms`, `5us`, `1s`, or any from one to another, such as `1ms..5ms`: it takes
/// that
///   much longer.
///
/// of a completion:
///
/// - status, such as `IBV_WC_REM_ACCESS_ERR`: the request isn't carried out, but completes with
///   that, and its queue pair fails as it does with such an error. Also `rem_access_err`,
///   `remote_access_error`, or a number up to 31. `/0x89` behind it is the vendor's code.
/// - time: it comes that much later. No completion of a queue overtakes another.
/// - `skew/` and a time: the same, but those of other queue pairs overtake it.
///
/// of a packet: `lost`; `doubled`; or `swapped` with the next one for its queue pair, before which
/// it doesn't come. And of any of them, a CHANGE:
///
/// - `port-down[@softN[/P]]`, `port-up[@softN[/P]]`: an asynchronous event, and nothing arrives
/// that
///   is sent from or to this port. Of all devices, and all ports, unless one is named.
/// - `device-fatal[@softN]`: an asynchronous event, and then EIO from everything but closing the
///   device. The connection manager's identifiers on it get RDMA_CM_EVENT_DEVICE_REMOVAL.
/// - `peer-lost[@QPN]`, `peer-back[@QPN]`: nothing arrives that is sent by or to this queue pair;
///   or to any of this process.
///
/// By themselves, without an occasion, stand
///
/// - `seed=N`: what is left to chance is drawn from here on; the same draws for the same seed.
/// - `must-strike`: see below.
///
/// When a process exits, stderr names the faults that are set and have never struck; with
/// `must-strike`, its exit code is 86 then, if it would have been 0.
///
/// Names may be written with `-` or `_`, except for those of verbs; numbers also
/// with 0x. For example
///
///     ibv_create_qp:2=ENOMEM; ibv_poll_cq:*=EIO
///     completion:3=remote_access_error; completion:*=5ms
///     ibv_post_send:100=port-down; after:2s=port-up
///     packet:1%=lost; packet:1%=swapped; seed=7; must-strike
///
/// A fault that isn't counted by `+` or `*` strikes once. A verb that fails has
/// done nothing.
///
/// ## In front of any device
///
/// libsoftverbs-faults has these functions, too, but for those that go step by step, for the
/// devices of all providers: devices have their own names then, as in `port-down@mlx5_0/1`, and
/// what is about packets or peers is refused. README.md has what else differs. Where both libraries
/// are loaded, the first one's are called.
#ifndef SOFTVERBS_SOFTVERBS_H
#define SOFTVERBS_SOFTVERBS_H

#ifdef __cplusplus
extern "C" {
#endif

/// The library's version, "major.minor.patch". The string is static.
const char* softverbs_version(void);

/// Adds faults to those that are set. Returns 0, ENOMEM, or EINVAL if the text can't be read:
/// then stderr has the reason, and none was added.
int softverbs_inject(const char* faults);

/// Removes all faults, those of the environment too, and undoes their changes: ports are as
/// configured, devices work, and so do objects made before; without asynchronous events.
void softverbs_reset_faults(void);

/// How many times a fault has struck since the last reset.
unsigned long long softverbs_faults_struck(void);

/// How many times the fault has struck that was set in these words, since the last reset; the
/// largest number if there was none. Changes at once don't count.
unsigned long long softverbs_fault_struck(const char* fault);

/// ## Step by step
///
/// After softverbs_hold, nothing moves in this process by itself or by polling: requests posted
/// from then on stay where they are, packets wait, and no time passes for the device. Each
/// softverbs_step does one thing: it takes in a packet, or has a queue pair send what it has to, in
/// an order that the seed decides; or, if there is none of either, what waits for a time happens.
/// It returns 0 if nothing was left to do. In one process, in which nothing was under way, the same
/// seed has the same outcome after the same calls. softverbs_go_on ends it.
void softverbs_hold(unsigned long long seed);
int softverbs_step(void);
void softverbs_go_on(void);

#ifdef __cplusplus
}
#endif

#endif
