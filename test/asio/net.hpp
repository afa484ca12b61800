// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the tests with Asio, which are compiled with standalone Asio and with Boost.Asio.
#pragma once

#include "../device/channels.hpp"
#include <verbspp/asio.hpp>

#ifdef VERBSPP_USE_BOOST_ASIO
#include <boost/asio.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
namespace net = boost::asio;
#else
#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>
namespace net = asio;
#endif

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace verbspp::test {

#ifdef VERBSPP_USE_BOOST_ASIO
using net::as_tuple;
using net::deferred;
#else
using net::experimental::as_tuple;
using net::experimental::deferred;
#endif
using net::awaitable;
using net::bind_cancellation_slot;
using net::bind_executor;
using net::use_awaitable;
using net::use_future;

[[nodiscard]] inline registered_buffer<> fill_buffer(const testbed& bed, std::size_t size,
                                                     unsigned seed) {
  auto made = must(registered_buffer<>::allocate(bed.domain, size));
  std::ranges::copy(pattern(size, seed), made.begin());
  return made;
}

/// A builder of channels that sleep, with short queues.
[[nodiscard]] inline auto short_channels(const testbed& bed) {
  return bed.domain.build_channel()
      .access(all_rights | access::remote_atomic)
      .max_send_work_requests(4)
      .max_receive_work_requests(16)
      .max_inline_data(64)
      .waiting(wait_mode::sleep());
}

/// Runs the context until it has no work. In this way, the test also checks that nothing keeps the
/// context running.
inline void run(net::io_context& context, int line = __builtin_LINE(),
                const char* file = __builtin_FILE()) {
  context.restart();
  context.run_for(patience);
  if (!context.stopped()) throw failure(file, line, "the context still has work");
}

/// Starts a coroutine. If the coroutine throws an exception, `run` rethrows that exception.
template <class Executor, class Body>
void spawn(Executor&& executor, Body&& body) {
  net::co_spawn(std::forward<Executor>(executor), std::forward<Body>(body),
                [](const std::exception_ptr& thrown) {
                  if (thrown) std::rethrow_exception(thrown);
                });
}

/// Two connected channels of one context.
struct asio_pair {
  explicit asio_pair(const testbed& bed) : asio_pair(connect_channels(short_channels(bed))) {}
  explicit asio_pair(channel_pair ends)
      : left(context, std::move(ends.left)), right(context, std::move(ends.right)) {}

  net::io_context context{};
  asio_channel left;
  asio_channel right;
};

}  // namespace verbspp::test
