// SPDX-License-Identifier: Apache-2.0

// Functions that are related to queue pairs, but need no device. They report why a post failed, and
// name the states and transports.

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/qp/state.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

using verbspp::error_kind;
using verbspp::queue_pair_state;
using verbspp::transport;
using verbspp::detail::post_failure;
using verbspp::test::contains;

TEST_CASE("each errno that providers return for a full queue is reported as would_block") {
  for (const int errnum : {ENOMEM, EAGAIN, ENOBUFS, ENOSPC, EOVERFLOW}) {
    CAPTURE(errnum);
    const auto direct = post_failure(errnum, "ibv_post_send (send)", 1, 16);
    CHECK(direct == error_kind::would_block);
    CHECK(direct.native_errno() == errnum);
    CHECK(direct.operation() == std::string("ibv_post_send (send)"));
    CHECK(contains(direct.message(), "the queue is full"));

    const auto negative = post_failure(-errnum, "ibv_post_recv", 1, 16);
    CHECK(negative == error_kind::would_block);
    CHECK(negative.native_errno() == errnum);

    errno = errnum;
    const auto by_errno = post_failure(-1, "ibv_post_recv", 1, 16);
    CHECK(by_errno == error_kind::would_block);
    CHECK(by_errno.native_errno() == errnum);
  }
}

TEST_CASE("too many elements are reported as such whatever error the provider returns") {
  for (const int returned : {EINVAL, ENOMEM, -EINVAL, -1}) {
    errno = ENOMEM;
    const auto failure = post_failure(returned, "ibv_post_recv", 17, 16);
    CHECK(failure == error_kind::invalid_input);
    CHECK(contains(failure.message(),
                   "scatter-gather elements of one request: 17 is above the limit of 16"));
  }
  CHECK(post_failure(ENOMEM, "ibv_post_recv", 16, 16) == error_kind::would_block);
}

TEST_CASE("any other failure of a post keeps its errno and kind") {
  const auto invalid = post_failure(EINVAL, "ibv_post_send (send)", 1, 16);
  CHECK(invalid == error_kind::invalid_input);
  CHECK(invalid.native_errno() == EINVAL);
  CHECK(invalid.hint() != nullptr);
  const auto broken = post_failure(EIO, "ibv_post_send (send)", 1, 16);
  CHECK(broken == error_kind::driver);
  CHECK(contains(broken.message(), "ibv_post_send (send): Input/output error (EIO); "));
}

TEST_CASE("remote memory that is too short is reported with both lengths") {
  const auto failure =
      verbspp::detail::remote_too_short("ibv_post_send (RDMA write)", 5'000'000'000, 4096);
  CHECK(failure == error_kind::invalid_input);
  CHECK(contains(failure.message(), "5000000000 is above the limit of 4096"));
}

TEST_CASE("states and transports have their names in the verbs specification") {
  const std::array<std::pair<queue_pair_state, const char*>, 7> states{{
      {queue_pair_state::reset, "RESET"},
      {queue_pair_state::init, "INIT"},
      {queue_pair_state::ready_to_receive, "RTR"},
      {queue_pair_state::ready_to_send, "RTS"},
      {queue_pair_state::send_queue_drained, "SQD"},
      {queue_pair_state::send_queue_error, "SQE"},
      {queue_pair_state::error, "ERR"},
  }};
  for (const auto& [state, name] : states) CHECK(to_string(state) == std::string(name));
  CHECK(to_string(static_cast<queue_pair_state>(50)) == std::string("unknown state"));
  CHECK(to_string(transport::rc) == std::string("RC"));
  CHECK(to_string(transport::uc) == std::string("UC"));
  CHECK(to_string(transport::ud) == std::string("UD"));
  CHECK(to_string(static_cast<transport>(50)) == std::string("unknown transport"));
}
