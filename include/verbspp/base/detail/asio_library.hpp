// SPDX-License-Identifier: Apache-2.0
/// \file
/// The choice between standalone Asio and Boost.Asio. A program may use both in different source
/// files, so there are types for each of them, in the inline namespace `VERBSPP_DETAIL_ASIO`.
#pragma once

#if !defined(VERBSPP_USE_BOOST_ASIO) && __has_include(<asio/version.hpp>)
#include <asio/version.hpp>

#if ASIO_VERSION < 102200
#error "<verbspp/asio.hpp> needs Asio 1.22 or newer"
#endif

#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/compose.hpp>
#include <asio/error.hpp>
#include <asio/execution/context.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/query.hpp>
#include <asio/recycling_allocator.hpp>
#include <asio/steady_timer.hpp>
#define VERBSPP_DETAIL_ASIO with_asio
#define VERBSPP_DETAIL_ASIO_NAMESPACE ::asio
#elif __has_include(<boost/asio/version.hpp>)
#include <boost/asio/version.hpp>

#if BOOST_ASIO_VERSION < 102200
#error "<verbspp/asio.hpp> needs Boost 1.78 or newer"
#endif

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/recycling_allocator.hpp>
#include <boost/asio/steady_timer.hpp>
#define VERBSPP_DETAIL_ASIO with_boost_asio
#define VERBSPP_DETAIL_ASIO_NAMESPACE ::boost::asio
#else
#ifdef VERBSPP_USE_BOOST_ASIO
#error "<verbspp/asio.hpp> needs Boost 1.78 or newer, because VERBSPP_USE_BOOST_ASIO is defined"
#else
#error "<verbspp/asio.hpp> needs Asio 1.22 or newer: install libasio-dev, or Boost 1.78 or newer"
#endif
#endif

namespace verbspp::detail {

namespace net = VERBSPP_DETAIL_ASIO_NAMESPACE;
using net_error = decltype(make_error_code(net::error::operation_aborted));

}  // namespace verbspp::detail

#undef VERBSPP_DETAIL_ASIO_NAMESPACE
