// SPDX-License-Identifier: Apache-2.0
#include "cm_bed.hpp"

#include <netinet/in.h>

#include <cstring>

namespace verbspp::test {

void need_manager() {
  const auto listener = cm_listener::open(cm_address::any(0));
  if (!listener.has_value() && listener.error() == error_kind::not_supported)
    SKIP("the kernel has no connection manager or does not permit its use");
}

namespace {

/// Converts a GID to the socket address from which it was derived.
cm_address address_of(const gid& from, family which) {
  if (which == family::ipv4) {
    sockaddr_in native{};
    native.sin_family = AF_INET;
    std::memcpy(&native.sin_addr, from.bytes.data() + 12, sizeof native.sin_addr);
    return must(cm_address::from_native(reinterpret_cast<const sockaddr*>(&native)));
  }
  sockaddr_in6 native{};
  native.sin6_family = AF_INET6;
  std::memcpy(&native.sin6_addr, from.bytes.data(), sizeof native.sin6_addr);
  return must(cm_address::from_native(reinterpret_cast<const sockaddr*>(&native)));
}

cm_address address_to_listen(family which) {
  const auto address = own_address(which);
  if (!address) SKIP("the device has no address of this family");
  return *address;
}

}  // namespace

std::optional<cm_address> own_address(family which) {
  const context device = must(open_device(device_name()));
  const port_attributes port = must(device.first_active_port());
  const gid_table table = must(device.query_gid_table(port.number()));
  for (const gid_entry& entry : table.entries()) {
    const bool is_ipv4 = entry.address.is_ipv4_mapped();
    const bool is_link_local = entry.address.bytes[0] == 0xfe && entry.address.bytes[1] == 0x80;
    if (entry.type != gid_type::roce_v2 || is_link_local) continue;
    if (is_ipv4 == (which == family::ipv4)) return address_of(entry.address, which);
  }
  return std::nullopt;
}

cm_bed::cm_bed(family which, const cm_listener_options& options, int /*there_is_a_manager*/)
    : listener((must(cm_listener::open(address_to_listen(which), options)))) {}

cm_pair connect(cm_bed& bed, prepared_channel client, prepared_channel server,
                const cm_connect_options& asked, const cm_accept_options& answered) {
  auto asking = must(bed.route().start_connect(std::move(client), patience, asked));
  cm_request request = must(bed.listener.accept(patience));
  auto answering = must(std::move(request).start_accept(std::move(server), patience, answered));
  drive(asking, answering);
  return {.client = must(std::move(asking).finish()),
          .server = must(std::move(answering).finish())};
}

cm_pair connect(cm_bed& bed) { return connect(bed, bed.prepare(), bed.prepare()); }

void connect_many(cm_bed& bed, int clients) {
  std::vector<cm_session<prepared_channel>> asking;
  std::vector<cm_session<prepared_channel>> answering;
  for (int i = 0; i < clients; ++i)
    asking.push_back(must(bed.route().start_connect(bed.prepare(), patience, {.data = i})));
  wait_until(
      [&] {
        if (auto request = must(bed.listener.poll())) {
          const int which = must(request->data().as<int>());
          answering.push_back(must(std::move(*request).start_accept(bed.prepare(), patience,
                                                                    {.data = clients + which})));
        }
        bool is_done = answering.size() == asking.size();
        for (auto& each : answering) is_done = must(each.poll()) && is_done;
        for (auto& each : asking) is_done = must(each.poll()) && is_done;
        return is_done;
      },
      "all to be connected");
  for (int i = 0; i < clients; ++i) {
    const managed_channel met = must(std::move(asking[static_cast<std::size_t>(i)]).finish());
    CHECK(must(met.connection.data().as<int>()) == clients + i);
  }
}

void check_talk(const cm_bed& bed, channel& from, channel& to) {
  const buffer<> outbox(bed.device.domain, pattern(64, 1));
  const buffer<> inbox(bed.device.domain, 64);
  auto received = must(to.post_receive({.elements = inbox.scatter()}));
  must(from.send({.elements = outbox.gather()}));
  must(received.wait());
  CHECK(inbox.bytes() == outbox.bytes());
}

}  // namespace verbspp::test
