// SPDX-License-Identifier: Apache-2.0
/// \file
/// Channels in programs with Asio: operations with completion tokens, and waits for event sources.
///
/// This header needs standalone Asio 1.22 or newer, or Boost.Asio of Boost 1.78 or newer. If both
/// are found, it uses standalone Asio. To choose Boost.Asio in a source file, define
/// `VERBSPP_USE_BOOST_ASIO` before the file includes this header.
#pragma once

#include <verbspp/async/asio_channel.hpp>
#include <verbspp/base/asio_source.hpp>
#include <verbspp/coroutine.hpp>
