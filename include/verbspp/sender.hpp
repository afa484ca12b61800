// SPDX-License-Identifier: Apache-2.0
/// \file
/// Senders for requests and messages, and a scheduler for the thread that polls a hub. They conform
/// to `std::execution` of C++26 (P2300).
///
///     stdexec::sender auto writing =
///         as_sender([&] { return link.async_write({.elements = shared, .remote = theirs}); });
///
/// The header needs no implementation of `std::execution`. Its senders can be connected to any
/// receiver that has the functions that the standard names: `set_value`, `set_error`,
/// `set_stopped`, and optionally `get_env`. For programs that use stdexec
/// (https://github.com/NVIDIA/stdexec, a version of 2026 or newer), define `VERBSPP_STDEXEC` for
/// the whole program: the header then includes `<stdexec/execution.hpp>`, and the senders and the
/// scheduler satisfy its concepts.
#pragma once

#include <verbspp/async/hub_scheduler.hpp>
#include <verbspp/async/sender.hpp>
#include <verbspp/coroutine.hpp>
