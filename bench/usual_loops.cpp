// SPDX-License-Identifier: Apache-2.0
// Calls the functions of usual.h and usual.hpp. The functions are compiled separately, so none of
// them is inlined here.
#include "usual_loops.hpp"

#include "loops.h"
#include "null_device.h"
#include "usual.h"
#include "usual.hpp"
#include <verbspp/calls.hpp>
#include <verbspp/verbspp.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;

constexpr int send_depth = most_in_flight;
constexpr int client_depth = 16;
constexpr std::uint32_t place_size = 128;
constexpr std::uint32_t places_of_inbox = 32;
constexpr std::uint32_t places_of_hub = 256;
constexpr std::uint32_t calls_in_flight = batch;
constexpr std::uint64_t limit_of_c = 30'000'000'000;
/// The client that sends all messages in the loops where only one client is busy.
constexpr std::size_t busy_client = 17;

/// Parts of different lengths, at most `message_size` bytes, at different offsets.
std::array<piece, batch> pieces_to_write() {
  std::array<piece, batch> pieces{};
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i] = {.offset = i * 200, .length = 1 + i * 37 % message_size, .remote_offset = i * 100};
  return pieces;
}

/// The objects of the verbspp version.
struct wrapped_side {
  channel link;
  registered_buffer<> buffer;
  registered_buffer<> owned;
  shared_buffer<> shared;
  shared_buffer<> awaited;
  channel awaited_link;
  usual::remote remote;
  std::vector<pending<>> requests{};
  message_pool pool;
  channel receiver;
  inbox messages;
  channel_hub hub;
  std::vector<usual::client> clients{};
  std::vector<ibv_qp*> pairs_of_clients{};
  std::array<arrival, slots_of_hub> slots{};
  caller calls;
  std::vector<pending_call<usual::echo>> open_calls{};
  service serving;
  ibv_qp* served;  ///< the service's end of a connection
};

/// A queue pair of the C version, connected to itself.
using pair = connected_queue_pair<transport::rc>;
using sharing_pair = connected_queue_pair<transport::rc, receive_queue_kind::shared>;

/// The objects of the C version, and the library's objects that own most of them.
struct c_side {
  completion_queue queue;
  pair link_pair;
  completion_queue receives_queue;
  pair receives_pair;
  completion_queue hub_queue;
  shared_receive_queue hub_receives;
  std::vector<sharing_pair> client_pairs{};
  registered_buffer<> places;
  std::vector<std::uint32_t> free_places{};
  std::vector<std::uint64_t> requests{};

  c_link link{};
  ibv_mr* buffer = nullptr;
  ibv_mr* owned = nullptr;
  c_shared shared{};
  c_remote remote{};
  c_pool pool{};
  c_inbox messages{};
  c_hub hub{};
  std::vector<c_client> clients{};
  std::vector<ibv_qp*> pairs_of_clients{};
};

using detail::call_frame_kind;
using detail::call_header;

/// A message that begins with a `call_header`.
struct frame {
  std::array<std::byte, place_size> bytes{};
  std::uint32_t size = 0;

  frame() = default;
  template <class Body>
  frame(const call_header& header, const Body& body)
      : size(static_cast<std::uint32_t>(call_header::size + sizeof body)) {
    header.encode(bytes.data());
    std::memcpy(bytes.data() + call_header::size, &body, sizeof body);
  }
};

/// The objects of both versions. Must not be moved, since the coroutine keeps references to members
/// of this object.
struct program {
  std::array<piece, batch> pieces = pieces_to_write();
  std::array<std::byte, place_size> text{};
  std::uint64_t sum = 0;              ///< the sum of the received values
  std::uint32_t credits = 1 + batch;  ///< the total number of calls that the caller may send
  std::uint64_t served = 0;           ///< the calls that the service has answered
  frame request{{.kind = call_frame_kind::call,
                 .method = usual::echo::number,
                 .length = sizeof(usual::echo::request)},
                usual::echo::request{}};
  std::optional<registered_buffer<access::local_write | access::remote_write>> target{};
  std::unique_ptr<wrapped_side> wrapped{};
  std::uint64_t written = 0;  ///< the number of parts that the coroutine has written
  std::optional<usual::writer> writing{};
  std::unique_ptr<c_side> c{};  ///< borrows memory from `wrapped`, and so is destroyed first
};

/// Opens a caller without a service. The caller's first message asks the service to compare the
/// methods; the answer to that message is delivered in advance.
result<caller> open_caller(const protection_domain& domain) {
  VERBSPP_TRY(prepared, domain.build_channel()
                            .max_send_work_requests(calls_in_flight)
                            .max_receive_work_requests(2 * calls_in_flight)
                            .build());
  ibv_qp* const pair = prepared.native_handle();
  if (device_hold_receives(pair) != 0) return error::from_errno(ENOMEM, "device_hold_receives");
  VERBSPP_TRY(calls, caller::open(prepared, {.in_flight = calls_in_flight}));
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(connected, std::move(prepared).handshake(own));
  const std::array<std::uint32_t, 2> sizes{
      1024, 0};  // the largest request, and the most lent memory to send
  const frame answer(
      {.kind = call_frame_kind::answer, .length = sizeof(sizes), .credits = 1 + calls_in_flight},
      sizes);
  frame question;
  if (device_deliver_bytes(pair, answer.bytes.data(), answer.size) != 0)
    return error(error_kind::driver, "benchmark", "the answer to the caller was not delivered");
  VERBSPP_TRYV(calls.start<usual::echo>(std::move(connected)));
  device_take_sent(pair, question.bytes.data());
  return calls;
}

result<service> open_service(const protection_domain& domain, ibv_qp*& served) {
  VERBSPP_TRY(serving, service::create(domain, {.clients = 1, .in_flight = calls_in_flight},
                                       handles<usual::echo>([](const usual::echo::request& asked) {
                                         return asked;
                                       })));
  VERBSPP_TRY(
      prepared,
      domain.build_channel().hub(serving.hub()).max_send_work_requests(calls_in_flight).build());
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(connected, std::move(prepared).handshake(own));
  served = connected.native_handle();
  VERBSPP_TRYV(serving.add(std::move(connected)));
  return serving;
}

result<wrapped_side> open_wrapped(const protection_domain& domain, const usual::remote& remote) {
  VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, 4096));
  VERBSPP_TRY(owned, registered_buffer<>::allocate(domain, message_size));
  VERBSPP_TRY(to_share, registered_buffer<>::allocate(domain, 4096));
  VERBSPP_TRY(shared, std::move(to_share).share());
  VERBSPP_TRY(to_await, registered_buffer<>::allocate(domain, message_size));
  VERBSPP_TRY(awaited, std::move(to_await).share());
  VERBSPP_TRY(prepared, domain.build_channel().max_send_work_requests(send_depth).build());
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(link, std::move(prepared).handshake(own));
  VERBSPP_TRY(to_await_on, domain.build_channel().max_send_work_requests(send_depth).build());
  const endpoint awaited_end = to_await_on.endpoint();
  VERBSPP_TRY(awaited_link, std::move(to_await_on).handshake(awaited_end));
  VERBSPP_TRY(pool, message_pool::create(domain, batch, place_size));
  VERBSPP_TRY(received_pool, message_pool::create(domain, 2 * places_of_inbox, place_size));
  VERBSPP_TRY(receiver_prepared,
              domain.build_channel().max_receive_work_requests(places_of_inbox).build());
  if (device_hold_receives(receiver_prepared.native_handle()) != 0)
    return error::from_errno(ENOMEM, "device_hold_receives");
  VERBSPP_TRY(messages, inbox::open(receiver_prepared, received_pool));
  const endpoint second = receiver_prepared.endpoint();
  VERBSPP_TRY(receiver, std::move(receiver_prepared).handshake(second));
  VERBSPP_TRY(hub_pool, message_pool::create(domain, 2 * places_of_hub, place_size));
  VERBSPP_TRY(hub, channel_hub::create(domain, hub_pool,
                                       {.channels = clients_of_hub, .receives = places_of_hub}));
  VERBSPP_TRY(calls, open_caller(domain));
  ibv_qp* served = nullptr;
  VERBSPP_TRY(serving, open_service(domain, served));
  wrapped_side made{.link = std::move(link),
                    .buffer = std::move(buffer),
                    .owned = std::move(owned),
                    .shared = std::move(shared),
                    .awaited = std::move(awaited),
                    .awaited_link = std::move(awaited_link),
                    .remote = remote,
                    .pool = std::move(pool),
                    .receiver = std::move(receiver),
                    .messages = std::move(messages),
                    .hub = std::move(hub),
                    .calls = std::move(calls),
                    .serving = std::move(serving),
                    .served = served};
  made.requests.reserve(batch);
  made.open_calls.reserve(batch);
  for (std::size_t i = 0; i < clients_of_hub; ++i) {
    VERBSPP_TRY(client_prepared,
                domain.build_channel().hub(made.hub).max_send_work_requests(client_depth).build());
    const endpoint each = client_prepared.endpoint();
    VERBSPP_TRY(client, std::move(client_prepared).handshake(each));
    if (client.id().index != i)
      return error(error_kind::mismatch, "benchmark", "a channel has an unexpected index");
    made.pairs_of_clients.push_back(client.native_handle());
    made.clients.push_back({.link = std::move(client)});
  }
  return made;
}

result<pair> connect(const protection_domain& domain, const completion_queue& queue) {
  VERBSPP_TRY(prepared, build_queue_pair<transport::rc>()
                            .protection_domain(domain)
                            .completion_queue(queue)
                            .max_send_work_requests(send_depth)
                            .access(access::local_write)
                            .build());
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(connected, std::move(prepared).handshake(own));
  return connected;
}

result<std::unique_ptr<c_side>> open_c(const protection_domain& domain, const wrapped_side& other) {
  const context& device = domain.context();
  VERBSPP_TRY(queue, completion_queue::create(device, most_in_flight));
  VERBSPP_TRY(link_pair, connect(domain, queue));
  VERBSPP_TRY(receives_queue, completion_queue::create(device, most_in_flight));
  VERBSPP_TRY(receives_pair, connect(domain, receives_queue));
  VERBSPP_TRY(hub_queue, completion_queue::create(device, 4096));
  VERBSPP_TRY(hub_receives, shared_receive_queue::create(domain, places_of_hub));
  VERBSPP_TRY(places, registered_buffer<>::allocate(domain, places_of_hub * place_size));
  auto made = std::make_unique<c_side>(c_side{.queue = std::move(queue),
                                              .link_pair = std::move(link_pair),
                                              .receives_queue = std::move(receives_queue),
                                              .receives_pair = std::move(receives_pair),
                                              .hub_queue = std::move(hub_queue),
                                              .hub_receives = std::move(hub_receives),
                                              .places = std::move(places)});
  made->requests.resize(batch);
  for (std::uint32_t i = 0; i < batch; ++i) made->free_places.push_back(i);
  made->link = {.qp = made->link_pair.native_handle(),
                .cq = made->queue.native_handle(),
                .posted = 0,
                .done = 0,
                .limit = limit_of_c,
                .status = IBV_WC_SUCCESS};
  made->buffer = other.buffer.native_handle();
  made->owned = other.owned.native_handle();
  made->shared = {.memory = other.shared.native_handle(), .references = 1};
  made->remote = {.address = other.remote.address(),
                  .length = other.remote.length(),
                  .rkey = other.remote.rkey().value()};
  made->pool = {.memory = made->places.native_handle(),
                .place_size = place_size,
                .available = batch,
                .free = made->free_places.data()};
  made->messages = {.qp = made->receives_pair.native_handle(),
                    .cq = made->receives_queue.native_handle(),
                    .places = made->places.native_handle(),
                    .place_size = place_size,
                    .limit = limit_of_c};
  made->hub = {.srq = made->hub_receives.native_handle(),
               .cq = made->hub_queue.native_handle(),
               .places = made->places.native_handle(),
               .place_size = place_size,
               .limit = limit_of_c,
               .table = {}};
  for (std::size_t i = 0; i < clients_of_hub; ++i) {
    VERBSPP_TRY(prepared, build_queue_pair<transport::rc>()
                              .protection_domain(domain)
                              .completion_queue(made->hub_queue)
                              .shared_receive_queue(made->hub_receives)
                              .access(access::local_write)
                              .build());
    const endpoint own = prepared.endpoint();
    VERBSPP_TRY(connected, std::move(prepared).handshake(own));
    made->client_pairs.push_back(std::move(connected));
  }
  for (const sharing_pair& each : made->client_pairs) {
    made->pairs_of_clients.push_back(each.native_handle());
    made->clients.push_back({.qp = each.native_handle(), .messages = 0, .bytes = 0});
  }
  for (c_client& each : made->clients) c_add_client(&made->hub, &each);
  if (device_hold_receives(made->messages.qp) != 0 ||
      c_fill_inbox(&made->messages, places_of_inbox) != 0 ||
      c_fill_hub(&made->hub, places_of_hub) != 0)
    return error(error_kind::driver, "benchmark",
                 "the receives of the C version could not be posted");
  return made;
}

template <class Function>
[[gnu::always_inline]] inline bool each_piece(program& of, std::uint64_t operations,
                                              Function function) {
  for (; operations > 0; operations -= batch)
    for (const piece& part : of.pieces)
      if (!function(part)) return false;
  return true;
}

template <class Function>
[[gnu::always_inline]] inline bool each_batch(std::uint64_t operations, Function function) {
  for (; operations > 0; operations -= batch)
    if (!function()) return false;
  return true;
}

/// For each operation: makes a message arrive for the queue pair, then calls the function.
template <class Function>
[[gnu::always_inline]] inline bool each_message(ibv_qp* qp, std::uint64_t operations,
                                                Function function) {
  for (; operations > 0; --operations)
    if (device_deliver(qp, message_size) != 0 || !function()) return false;
  return true;
}

/// For each batch: makes a message arrive for the queue pairs of the next 16 clients, then calls
/// the function to receive them.
template <class Function>
[[gnu::always_inline]] inline bool all_busy(const std::vector<ibv_qp*>& pairs,
                                            std::uint64_t operations, Function function) {
  for (std::size_t first = 0; operations > 0; operations -= batch) {
    for (std::size_t i = first; i < first + batch; ++i)
      if (device_deliver(pairs[i], message_size) != 0) return false;
    first = (first + batch) % clients_of_hub;
    if (!function()) return false;
  }
  return true;
}

}  // namespace

// compare.py finds the loops in callgrind's profiles by the prefix of their names.
extern "C" {

static bool loop_raw_usual_write(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_write(&c.link, c.buffer, &c.remote, &part) == 0;
  });
}

static bool loop_verbspp_usual_write(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::write(w.link, w.buffer, w.remote, part).has_value();
  });
}

static bool loop_raw_usual_within(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_write_within(&c.link, c.buffer, &c.remote, &part) == 0;
  });
}

static bool loop_verbspp_usual_within(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::write_within(w.link, w.buffer, w.remote, part).has_value();
  });
}

static bool loop_raw_usual_pending(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_post_and_wait(&c.link, c.buffer, &c.remote, &part) == 0;
  });
}

static bool loop_verbspp_usual_pending(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::post_and_wait(w.link, w.buffer, w.remote, part).has_value();
  });
}

static bool loop_raw_usual_vector(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_batch(operations, [&] {
    return c_write_all(&c.link, c.buffer, &c.remote, p.pieces.data(), batch, c.requests.data()) ==
           0;
  });
}

static bool loop_verbspp_usual_vector(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_batch(operations, [&] {
    return usual::write_all(w.link, w.buffer, w.remote, p.pieces, w.requests).has_value();
  });
}

static bool loop_raw_usual_scope(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_batch(operations, [&] {
    return c_write_list(&c.link, c.buffer, &c.remote, p.pieces.data(), batch) == 0;
  });
}

static bool loop_verbspp_usual_scope(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_batch(operations, [&] {
    return usual::write_list(w.link, w.buffer, w.remote, p.pieces).has_value();
  });
}

static bool loop_raw_usual_stream(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return c_write_stream(&c.link, c.buffer, &c.remote, p.pieces.data(), batch, operations / batch) ==
         0;
}

static bool loop_verbspp_usual_stream(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return usual::write_stream(w.link, w.buffer, w.remote, p.pieces, operations / batch).has_value();
}

static bool loop_raw_usual_owned(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_write_owned(&c.link, &c.owned, &c.remote, part.remote_offset) == 0;
  });
}

static bool loop_verbspp_usual_owned(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::write_owned(w.link, w.owned, w.remote, part.remote_offset).has_value();
  });
}

static bool loop_raw_usual_shared(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_write_shared(&c.link, &c.shared, &c.remote, &part) == 0;
  });
}

static bool loop_verbspp_usual_shared(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::write_shared(w.link, w.shared, w.remote, part).has_value();
  });
}

static bool loop_verbspp_usual_awaited(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  const std::uint64_t end = p.written + operations;
  while (p.written < end && !p.writing->handle.done()) w.awaited_link.poll();
  return p.written == end;
}

static bool loop_raw_usual_put(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_put_record(&c.link, c.buffer, &c.remote, &part) == 0;
  });
}

static bool loop_verbspp_usual_put(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::put_record(w.link, w.buffer, w.remote, part).has_value();
  });
}

static bool loop_raw_usual_message(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_piece(p, operations, [&](const piece& part) {
    return c_send_message(&c.link, &c.pool, p.text.data(), part.length) == 0;
  });
}

static bool loop_verbspp_usual_message(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_piece(p, operations, [&](const piece& part) {
    return usual::send_message(w.link, w.pool, std::span(p.text).first(part.length)).has_value();
  });
}

static bool loop_raw_usual_receive(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_message(c.messages.qp, operations, [&] {
    std::uint64_t value = 0;
    if (c_receive(&c.messages, &value) != 0) return false;
    p.sum += value;
    return true;
  });
}

static bool loop_verbspp_usual_receive(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_message(w.receiver.native_handle(), operations, [&] {
    const auto value = usual::receive(w.messages);
    if (!value.has_value()) return false;
    p.sum += value.assume_value();
    return true;
  });
}

static bool loop_raw_usual_one_busy(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_message(c.clients[busy_client].qp, operations, [&] {
    std::size_t served = 0;
    return c_serve(&c.hub, &served) == 0 && served == 1;
  });
}

static bool loop_verbspp_usual_one_busy(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_message(w.clients[busy_client].link.native_handle(), operations, [&] {
    const auto served = usual::serve(w.hub, w.clients, w.slots);
    return served.has_value() && served.assume_value() == 1;
  });
}

static bool loop_raw_usual_all_busy(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return all_busy(c.pairs_of_clients, operations, [&] {
    std::size_t served = 0;
    return c_serve(&c.hub, &served) == 0 && served == batch;
  });
}

static bool loop_verbspp_usual_all_busy(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return all_busy(w.pairs_of_clients, operations, [&] {
    const auto served = usual::serve(w.hub, w.clients, w.slots);
    return served.has_value() && served.assume_value() == batch;
  });
}

/// The C loop with which both ends of a call are compared: a message is sent from a place of a
/// pool, and another one is received.
static bool loop_raw_usual_call(program& p, std::uint64_t operations) {
  c_side& c = *p.c;
  return each_message(c.messages.qp, operations, [&] {
    std::uint64_t value = 0;
    if (c_send_message(&c.link, &c.pool, p.text.data(), sizeof(usual::echo::request)) != 0 ||
        c_receive(&c.messages, &value) != 0)
      return false;
    p.sum += value;
    return true;
  });
}

static bool loop_verbspp_usual_call(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  ibv_qp* const pair = w.calls.link().native_handle();
  return each_batch(operations, [&] {
    if (!usual::post_calls(w.calls, {}, batch, w.open_calls).has_value()) return false;
    frame answer;
    while (const std::uint32_t size = device_take_sent(pair, answer.bytes.data())) {
      // The request becomes its own answer.
      call_header::set_kind(answer.bytes.data(), call_frame_kind::answer,
                            size - std::uint32_t{call_header::size}, {});
      call_header::set_credits(answer.bytes.data(), ++p.credits);
      if (device_deliver_bytes(pair, answer.bytes.data(), size) != 0) return false;
    }
    const auto taken = usual::take_answers(w.open_calls);
    if (!taken.has_value()) return false;
    p.sum += taken.assume_value();
    return true;
  });
}

static bool loop_verbspp_usual_answer(program& p, std::uint64_t operations) {
  wrapped_side& w = *p.wrapped;
  return each_batch(operations, [&] {
    for (int i = 0; i < batch; ++i)
      if (device_deliver_bytes(w.served, p.request.bytes.data(), p.request.size) != 0) return false;
    p.served += batch;
    return usual::serve_calls(w.serving).has_value() && w.serving.statistics().answers == p.served;
  });
}

}  // extern "C"

result<std::vector<loop>> usual_loops() {
  auto p = std::make_shared<program>();
  VERBSPP_TRY(device, open_device("null0"));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(target, registered_buffer < access::local_write |
                          access::remote_write > ::allocate(domain, 4096));
  p->target = std::move(target);
  VERBSPP_TRY(remote, p->target->remote());
  VERBSPP_TRY(wrapped, open_wrapped(domain, remote));
  p->wrapped = std::make_unique<wrapped_side>(std::move(wrapped));
  wrapped_side& w = *p->wrapped;
  p->writing.emplace(
      usual::write_awaited(w.awaited_link, w.awaited, w.remote, p->pieces, p->written));
  VERBSPP_TRY(c, open_c(domain, *p->wrapped));
  p->c = std::move(c);
  std::vector<loop> loops;
  const auto add = [&](const char* name, auto function) {
    loops.push_back(
        {name, [p, function](std::uint64_t operations) { return function(*p, operations); }});
  };
  add("raw_usual_write", loop_raw_usual_write);
  add("verbspp_usual_write", loop_verbspp_usual_write);
  add("raw_usual_within", loop_raw_usual_within);
  add("verbspp_usual_within", loop_verbspp_usual_within);
  add("raw_usual_pending", loop_raw_usual_pending);
  add("verbspp_usual_pending", loop_verbspp_usual_pending);
  add("raw_usual_vector", loop_raw_usual_vector);
  add("verbspp_usual_vector", loop_verbspp_usual_vector);
  add("raw_usual_scope", loop_raw_usual_scope);
  add("verbspp_usual_scope", loop_verbspp_usual_scope);
  add("raw_usual_stream", loop_raw_usual_stream);
  add("verbspp_usual_stream", loop_verbspp_usual_stream);
  add("raw_usual_owned", loop_raw_usual_owned);
  add("verbspp_usual_owned", loop_verbspp_usual_owned);
  add("raw_usual_shared", loop_raw_usual_shared);
  add("verbspp_usual_shared", loop_verbspp_usual_shared);
  add("verbspp_usual_awaited", loop_verbspp_usual_awaited);
  add("raw_usual_put", loop_raw_usual_put);
  add("verbspp_usual_put", loop_verbspp_usual_put);
  add("raw_usual_message", loop_raw_usual_message);
  add("verbspp_usual_message", loop_verbspp_usual_message);
  add("raw_usual_receive", loop_raw_usual_receive);
  add("verbspp_usual_receive", loop_verbspp_usual_receive);
  add("raw_usual_one_busy", loop_raw_usual_one_busy);
  add("verbspp_usual_one_busy", loop_verbspp_usual_one_busy);
  add("raw_usual_all_busy", loop_raw_usual_all_busy);
  add("verbspp_usual_all_busy", loop_verbspp_usual_all_busy);
  add("raw_usual_call", loop_raw_usual_call);
  add("verbspp_usual_call", loop_verbspp_usual_call);
  add("verbspp_usual_answer", loop_verbspp_usual_answer);
  return loops;
}
