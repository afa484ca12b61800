// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C interface of the software verbs device.
///
/// A program needs nothing from this header to use the device: it is enough to link libsoftverbs in
/// front of libibverbs, or to load it with LD_PRELOAD. The header is for programs that check
/// whether they run on the device, and for tests that make it fail. A test that must not be linked
/// with the library finds these functions with `dlsym(RTLD_DEFAULT, ...)` if it runs on the device.
///
/// The environment variables are read once, when the process first uses the devices or faults:
///
/// - `SOFTVERBS_DEVICES`: number of devices, 0 to 64; the default is 1.
/// - `SOFTVERBS_LINK_LAYER`: `ethernet` (the default) or `infiniband`.
/// - `SOFTVERBS_CONFIG`: a file that configures devices individually; `docs/configuration.md`
///   describes it.
/// - `SOFTVERBS_SHARED_MEMORY`: `yes` (the default), or `no`: packets go through sockets instead of
///   shared memory.
/// - `SOFTVERBS_FAULTS`: the initial faults, in the syntax of softverbs_inject.
///
/// ## Faults
///
/// A list of items, separated by `;`:
///
///     OCCASION [:WHEN] = EFFECT     takes effect when the occasion arises
///     CHANGE                        takes effect immediately
///
/// | OCCASION | counts |
/// | --- | --- |
/// | the name of a verb, such as `ibv_create_qp` | calls of the verb for softverbs devices |
/// | `completion[@QPN]` | work requests that are carried out, signaled or not |
/// | `send-completion[@QPN]` | as above, but only of send queues |
/// | `receive-completion[@QPN]` | as above, but only of receive queues |
/// | `packet[@QPN]` | packets that arrive |
/// | `after` | nothing: WHEN is a time from now, such as `250ms` |
///
/// `@QPN`, the number of a queue pair or work queue of this process, restricts the fault to that
/// object. WHEN is `N` for the N-th occasion only, counted from when the fault is set; `N+` for the
/// N-th and all later ones; `*` for all; or `P%` for a random share of them, such as `0.5%`. The
/// default is 1.
///
/// The EFFECT on a verb is one of
///
/// - an errno value, such as `ENOMEM`: the verb reports it in its usual way. For example, it
///   returns the value, returns -1 or a null pointer with errno set, or returns the value negated,
///   as ibv_poll_cq does.
/// - `+ENOMEM`, `-ENOMEM` or `-1/ENOMEM`, for a verb that returns a number: the verb returns the
///   value, returns it negated, or returns -1 with errno set. Providers differ in this.
/// - a time, such as `20ms`, `5us` or `1s`, or a range, such as `1ms..5ms`: the call takes that
///   much longer.
///
/// The EFFECT on a completion is one of
///
/// - a status, such as `IBV_WC_REM_ACCESS_ERR`: the request completes with this status, and its
///   queue pair fails as it does after such an error. A request of a send queue isn't carried out.
///   Also accepted: `rem_access_err`, `remote_access_error`, or a number up to 31. A suffix such as
///   `/0x89` sets the vendor's code.
/// - a time, or a range: the completion is delayed by that time. All later completions in the same
///   completion queue wait for it.
/// - `skew/` and a time or a range: as above, but completions of other queue pairs don't wait for
///   it.
///
/// The EFFECT on a packet is `lost`, `doubled`, or `swapped`, which delivers it after the next
/// packet for the same queue pair. Every occasion can also have a CHANGE as its effect:
///
/// - `port-down[@softN[/P]]`, `port-up[@softN[/P]]`: raises an asynchronous event; while a port is
///   down, no packet arrives that is sent from it or to it. Without `@`, applies to all ports of
///   all devices; without `/P`, to all ports of the device.
/// - `device-fatal[@softN]`: raises an asynchronous event; after it, the device can't be opened,
///   and most verbs on it fail with EIO, but not ibv_close_device and ibv_get_async_event. The
///   connection manager's identifiers on it get RDMA_CM_EVENT_DEVICE_REMOVAL, except those of
///   requests that were not accepted.
/// - `peer-lost[@QPN]`, `peer-back[@QPN]`: while the peer is lost, nothing arrives that is sent by
///   or to this queue pair; without a number, by or to any queue pair of this process.
///
/// These items stand alone, without an occasion:
///
/// - `seed=N`: the seed of the random decisions about faults from here on; the same seed gives the
///   same decisions.
/// - `must-strike`: see below.
///
/// When a process that has set faults exits, it prints on stderr those that are still set and have
/// never struck. With `must-strike`, the process then exits with code 86 if the code would have
/// been 0.
///
/// Names may be written with `-` or `_`, except for names of verbs. Numbers other than percentages
/// may be hexadecimal, with 0x. For example:
///
///     ibv_create_qp:2=ENOMEM; ibv_poll_cq:*=EIO
///     completion:3=remote_access_error; completion:*=5ms
///     ibv_post_send:100=port-down; after:2s=port-up
///     packet:1%=lost; packet:1%=swapped; seed=7; must-strike
///
/// A fault without `+`, `*` or `%` strikes at most once. A verb that fails has no other effect.
///
/// ## In front of any device
///
/// libsoftverbs-faults has these functions, too, except for those of the step-by-step mode. It
/// affects the devices of all providers, so devices are named as their provider names them, as in
/// `port-down@mlx5_0/1`. Faults of packets or peers are refused. `docs/faults.md` lists the other
/// differences. If both libraries are loaded, the functions of the first one are called.
#ifndef SOFTVERBS_SOFTVERBS_H
#define SOFTVERBS_SOFTVERBS_H

#ifdef __cplusplus
extern "C" {
#endif

/// The library's version, "major.minor.patch". The string is static.
const char* softverbs_version(void);

/// Adds faults to those that are set. Returns 0, ENOMEM, or EINVAL if the text is not valid; in
/// that case, the reason is printed on stderr, and no fault is added.
int softverbs_inject(const char* faults);

/// Removes all faults, including those from the environment, and undoes their changes: ports return
/// to their configured state, and devices work again, as do verbs objects created before. Raises no
/// asynchronous events.
void softverbs_reset_faults(void);

/// Returns how many times faults have struck since the last reset.
unsigned long long softverbs_faults_struck(void);

/// Returns how many times the fault with exactly this text has struck since the last reset, or
/// `ULLONG_MAX` if no such fault was set, or if the text is a CHANGE without an occasion, which
/// only softverbs_faults_struck counts.
unsigned long long softverbs_fault_struck(const char* fault);

/// ## Step by step
///
/// After softverbs_hold, the devices of this process make no progress, not even when they are
/// polled: requests that are posted are not sent, packets wait, and none of the devices' timers
/// expires. Each softverbs_step does one thing: it processes one packet, or lets one queue pair
/// send, in an order that the seed determines. If there is nothing to process or send, it lets the
/// next timer expire. It returns 1, or 0 if nothing was left to do. In a single process that was
/// idle before, the same seed and the same calls have the same outcome. softverbs_go_on ends this
/// mode.
void softverbs_hold(unsigned long long seed);
int softverbs_step(void);
void softverbs_go_on(void);

#ifdef __cplusplus
}
#endif

#endif
