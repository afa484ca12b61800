// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/device/async_event.hpp>

#include <cstring>
#include <set>
#include <string>
#include <vector>

using verbspp::async_event;
using verbspp::async_event_element;
using verbspp::async_event_severity;
using verbspp::async_event_type;
using verbspp::test::contains;
using verbspp::test::printed;

namespace {

/// Returns an event of the given type, which the libibverbs header may not know.
ibv_async_event native_event(std::uint32_t type) {
  ibv_async_event event{};
  std::memcpy(&event.event_type, &type, sizeof type);
  return event;
}

async_event about_port(async_event_type type, int port) {
  ibv_async_event event = native_event(static_cast<std::uint32_t>(type));
  event.element.port_num = port;
  return async_event::from_native(event);
}

/// A stand-in for a queue pair. Only its number is used.
struct numbered {
  verbspp::queue_pair_number own;
  [[nodiscard]] verbspp::queue_pair_number number() const { return own; }
  [[nodiscard]] ibv_qp* native_handle() const { return nullptr; }
};

}  // namespace

TEST_CASE("every verbs event has its own name, a hint, and the kind of object that it concerns") {
  std::set<std::string> names;
  constexpr unsigned known = IBV_EVENT_WQ_FATAL + 1;
  ibv_qp pair{};
  for (unsigned type = 0; type < known; ++type) {
    CAPTURE(type);
    ibv_async_event native = native_event(type);
    native.element.qp = &pair;  // only a queue pair is accessed through this pointer
    const async_event event = async_event::from_native(native);
    CHECK(static_cast<unsigned>(event.type()) == type);
    CHECK(event.element() != async_event_element::unknown);
    CHECK(std::string(event.hint()).size() > 8);
    CHECK(to_string(event.type()) != std::string("unknown event"));
    CHECK(contains(printed(event), to_string(event.type())));
    CHECK(contains(printed(event), event.hint()));
    names.insert(to_string(event.type()));
  }
  CHECK(names.size() == known);
}

TEST_CASE("an event type that the library does not know keeps its number") {
  for (const std::uint32_t type : {20U, 77U, 0xffffffffU}) {
    const async_event event = async_event::from_native(native_event(type));
    CHECK(static_cast<std::uint32_t>(event.type()) == type);
    CHECK(event.element() == async_event_element::unknown);
    CHECK_FALSE(event.port());
    CHECK_FALSE(event.queue_pair_number());
    CHECK(contains(printed(event), "unknown event (" + std::to_string(type) + ")"));
  }
}

TEST_CASE("an event about a port has the number of the port and no queue pair number") {
  for (const async_event_type type :
       {async_event_type::port_active, async_event_type::port_error, async_event_type::lid_change,
        async_event_type::pkey_change, async_event_type::subnet_manager_change,
        async_event_type::client_reregister, async_event_type::gid_change}) {
    const async_event event = about_port(type, 2);
    CHECK(event.element() == async_event_element::port);
    CHECK(event.port() == verbspp::port_number(2));
    CHECK_FALSE(event.queue_pair_number());
    CHECK(contains(printed(event), ", port 2; "));
  }
  CHECK(verbspp::test::printed_by_a_hex_stream(about_port(async_event_type::port_error, 20)) ==
        printed(about_port(async_event_type::port_error, 20)));
  CHECK_FALSE(about_port(async_event_type::port_error, 0).port());
  CHECK_FALSE(about_port(async_event_type::port_error, 256).port());
}

TEST_CASE("an event about a queue pair is identified by a number that outlives the queue pair") {
  ibv_qp pair{};
  pair.qp_num = 0xabcdef;
  ibv_async_event native = native_event(IBV_EVENT_QP_FATAL);
  native.element.qp = &pair;
  const async_event event = async_event::from_native(native);
  pair.qp_num = 0;
  CHECK(event.queue_pair_number() == verbspp::queue_pair_number(0xabcdef));
  CHECK(event.concerns(numbered{0xabcdef}));
  CHECK_FALSE(event.concerns(numbered{0xabcdee}));
  CHECK_FALSE(event.port());
  CHECK(contains(printed(event), "queue pair fatal error, queue pair 0xabcdef; "));
}

TEST_CASE("an event about a shared receive queue or work queue is identified by its address") {
  ibv_srq shared{};
  ibv_srq other{};
  ibv_wq work{};
  ibv_async_event native = native_event(IBV_EVENT_SRQ_LIMIT_REACHED);
  native.element.srq = &shared;
  const async_event limit = async_event::from_native(native);
  CHECK(limit.concerns(&shared));
  CHECK_FALSE(limit.concerns(&other));
  CHECK_FALSE(limit.concerns(&work));
  CHECK(limit.severity() == async_event_severity::notice);
  native = native_event(IBV_EVENT_WQ_FATAL);
  native.element.wq = &work;
  CHECK(async_event::from_native(native).concerns(&work));
  CHECK_FALSE(async_event::from_native(native).concerns(&shared));
}

TEST_CASE("an event that is not about a queue pair concerns no queue pair whatever its number") {
  CHECK_FALSE(about_port(async_event_type::port_error, 5).concerns(numbered{5}));
  CHECK_FALSE(async_event::from_native(native_event(IBV_EVENT_DEVICE_FATAL)).concerns(numbered{0}));
}

TEST_CASE("the severity distinguishes a failure of the device from a failure of an element") {
  CHECK(async_event::from_native(native_event(IBV_EVENT_DEVICE_FATAL)).severity() ==
        async_event_severity::fatal);
  CHECK(about_port(async_event_type::port_error, 1).severity() == async_event_severity::error);
  CHECK(about_port(async_event_type::gid_change, 1).severity() == async_event_severity::warning);
  CHECK(about_port(async_event_type::port_active, 1).severity() == async_event_severity::notice);
  CHECK(to_string(async_event_severity::fatal) == std::string("fatal"));
}
