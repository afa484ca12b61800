// SPDX-License-Identifier: Apache-2.0
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/device/async_event.hpp>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <ostream>
#include <string>

namespace verbspp {

namespace {

using element = async_event_element;
using severity_of = async_event_severity;

struct event_description {
  async_event_type type;
  async_event_element about;
  async_event_severity severity;
  const char* name;
  const char* hint;
};

constexpr std::array events{
    event_description{async_event_type::completion_queue_error, element::completion_queue,
                      severity_of::error, "completion queue error",
                      "the completion queue failed, usually because it overran: completions are "
                      "lost, and its queue pairs fail; create the queue and its queue pairs, or "
                      "the channel or hub, again with room for all outstanding work"},
    event_description{async_event_type::queue_pair_fatal, element::queue_pair, severity_of::error,
                      "queue pair fatal error",
                      "the queue pair is in the error state, for instance because the device could "
                      "not report a completion or access the memory of a receive: replace the "
                      "queue pair, or renew its channel"},
    event_description{
        async_event_type::queue_pair_request_error, element::queue_pair, severity_of::error,
        "queue pair request error",
        "the peer sent a request that is invalid here, such as an operation that this queue pair "
        "does not support or permit, or a message longer than the receive; the queue pair is in "
        "the error state, and on RC the peer's request failed as a remote invalid request"},
    event_description{
        async_event_type::queue_pair_access_error, element::queue_pair, severity_of::error,
        "queue pair access error",
        "the peer used an rkey that is stale or of another protection domain, a right that was not "
        "granted, or an address outside the memory; the queue pair is in the error state, and on "
        "RC the peer's request failed as a remote access error"},
    event_description{async_event_type::communication_established, element::queue_pair,
                      severity_of::notice, "communication established",
                      "the peer's first packet arrived before this end was ready to send"},
    event_description{
        async_event_type::send_queue_drained, element::queue_pair, severity_of::notice,
        "send queue drained",
        "all sends that had started have finished: the queue pair's attributes may be changed now"},
    event_description{async_event_type::path_migrated, element::queue_pair, severity_of::notice,
                      "path migrated", "the connection continues on its alternate path"},
    event_description{async_event_type::path_migration_error, element::queue_pair,
                      severity_of::warning, "path migration error",
                      "the connection did not migrate to its alternate path: compare the alternate "
                      "paths of both ends, and check their ports"},
    event_description{async_event_type::device_fatal, element::device, severity_of::fatal,
                      "device fatal error",
                      "all objects created on this context have failed: destroy them, and open the "
                      "device again once it works; see the kernel's log"},
    event_description{async_event_type::port_active, element::port, severity_of::notice,
                      "port active", "the link is up"},
    event_description{async_event_type::port_error, element::port, severity_of::error, "port error",
                      "the link is down: on RC, requests fail when their retries are used up, and "
                      "continue if the link comes up before that"},
    event_description{async_event_type::lid_change, element::port, severity_of::warning,
                      "LID change",
                      "the subnet manager assigned another LID: peers need the new endpoints of "
                      "this port's queue pairs"},
    event_description{async_event_type::pkey_change, element::port, severity_of::warning,
                      "pkey change",
                      "the partition table changed: a pkey index may refer to another partition"},
    event_description{
        async_event_type::subnet_manager_change, element::port, severity_of::notice,
        "subnet manager change",
        "the port has another subnet manager, or the LID or service level of its subnet manager "
        "changed: a program that sends requests to it must query both again"},
    event_description{async_event_type::shared_receive_queue_error, element::shared_receive_queue,
                      severity_of::error, "shared receive queue error",
                      "the shared receive queue has failed: destroy it and its queue pairs"},
    event_description{async_event_type::shared_receive_queue_limit_reached,
                      element::shared_receive_queue, severity_of::notice,
                      "shared receive queue limit reached",
                      "post more receives, and set the limit again: it triggers only once"},
    event_description{
        async_event_type::last_work_request_reached, element::queue_pair, severity_of::notice,
        "last work request reached",
        "this queue pair, which is in the error state, takes no more receives from its shared "
        "receive queue: it may be destroyed after its completions have been polled"},
    event_description{async_event_type::client_reregister, element::port, severity_of::warning,
                      "client reregister",
                      "the subnet manager requests all registrations again: join multicast groups "
                      "again, and repeat any other registrations"},
    event_description{async_event_type::gid_change, element::port, severity_of::warning,
                      "GID change",
                      "the GID table changed: a GID index may refer to another address, and peers "
                      "may need new endpoints of this port's queue pairs"},
    event_description{async_event_type::work_queue_fatal, element::work_queue, severity_of::error,
                      "work queue fatal error", "the work queue has failed; destroy it"},
};

constexpr event_description unknown_event{
    async_event_type{}, element::unknown, severity_of::warning, "unknown event",
    "this library does not know the event; see ibv_event_type of the installed libibverbs"};

const event_description& describe(async_event_type type) noexcept {
  for (const event_description& each : events)
    if (each.type == type) return each;
  return unknown_event;
}

}  // namespace

std::uint64_t detail::moment_now() noexcept {
  static std::atomic<std::uint64_t> moment{0};
  return moment.fetch_add(1, std::memory_order_relaxed);
}

const char* to_string(async_event_type type) noexcept { return describe(type).name; }

const char* to_string(async_event_element element) noexcept {
  switch (element) {
    case async_event_element::unknown:
      break;
    case async_event_element::device:
      return "device";
    case async_event_element::port:
      return "port";
    case async_event_element::queue_pair:
      return "queue pair";
    case async_event_element::completion_queue:
      return "completion queue";
    case async_event_element::shared_receive_queue:
      return "shared receive queue";
    case async_event_element::work_queue:
      return "work queue";
  }
  return "unknown element";
}

const char* to_string(async_event_severity severity) noexcept {
  switch (severity) {
    case async_event_severity::notice:
      return "notice";
    case async_event_severity::warning:
      return "warning";
    case async_event_severity::error:
      return "error";
    case async_event_severity::fatal:
      return "fatal";
  }
  return "unknown severity";
}

async_event async_event::from_native(const ibv_async_event& native) noexcept {
  async_event event;
  event.type_ = detail::number_of(native.event_type);
  event.taken_at_ = detail::moment_now();
  switch (event.element()) {
    case async_event_element::unknown:
    case async_event_element::device:
      break;
    case async_event_element::port:
      event.id_ = static_cast<std::uint64_t>(native.element.port_num);
      break;
    case async_event_element::queue_pair:
      event.id_ = native.element.qp->qp_num;
      break;
    case async_event_element::completion_queue:
      event.id_ = reinterpret_cast<std::uintptr_t>(native.element.cq);
      break;
    case async_event_element::shared_receive_queue:
      event.id_ = reinterpret_cast<std::uintptr_t>(native.element.srq);
      break;
    case async_event_element::work_queue:
      event.id_ = reinterpret_cast<std::uintptr_t>(native.element.wq);
      break;
  }
  return event;
}

async_event_element async_event::element() const noexcept { return describe(type()).about; }
async_event_severity async_event::severity() const noexcept { return describe(type()).severity; }
const char* async_event::hint() const noexcept { return describe(type()).hint; }

std::optional<port_number> async_event::port() const noexcept {
  if (element() != async_event_element::port) return std::nullopt;
  const auto number = port_number::from(id_);
  if (!number.has_value()) return std::nullopt;
  return number.assume_value();
}

std::ostream& operator<<(std::ostream& out, const async_event& event) {
  out << to_string(event.type());
  std::array<char, 32> number{};
  switch (event.element()) {
    case async_event_element::unknown:
      out << " (" << std::to_string(event.type_) << ')';
      break;
    case async_event_element::port:
      out << ", port " << std::to_string(event.id_);
      break;
    case async_event_element::queue_pair:
      std::snprintf(number.data(), number.size(), "0x%06" PRIx64, event.id_);
      out << ", queue pair " << number.data();
      break;
    case async_event_element::device:
    case async_event_element::completion_queue:
    case async_event_element::shared_receive_queue:
    case async_event_element::work_queue:
      break;
  }
  return out << "; " << event.hint();
}

}  // namespace verbspp
