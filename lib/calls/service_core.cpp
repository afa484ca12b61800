// SPDX-License-Identifier: Apache-2.0
#include "calls/call_messages.hpp"
#include "calls/sent_answers.hpp"
#include <verbspp/calls/detail/service_core.hpp>
#include <verbspp/calls/service.hpp>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr const char* creating = "service::create";
constexpr const char* adding = "service::add";

/// Returns the text for a size in an error message.
short_text text_of_size(std::uint32_t size) noexcept {
  if (size == any_size) return short_text("any number of bytes");
  return short_text(size, size == 1 ? " byte" : " bytes");
}

void refuse_number(open_call& call, std::uint16_t number) noexcept {
  call.refuse(error_kind::not_found,
              short_text("the service has no method with the number ", number).view());
}

void refuse_while_draining(open_call& call) noexcept {
  call.refuse(error_kind::not_connected,
              "the service is about to end, and accepts no more calls: connect to another one");
}

void refuse_loan(open_call& call, bool expects_loan) noexcept {
  call.refuse(error_kind::mismatch, expects_loan
                                        ? "the call lends no memory, but the service expects "
                                          "some: define the method identically at both ends"
                                        : "the call lends memory, but the service expects none: "
                                          "define the method identically at both ends");
}

void refuse_size(open_call& call, std::uint32_t actual, std::uint32_t expected) noexcept {
  call.refuse(error_kind::mismatch, short_text("the request has ", text_of_size(actual).view(),
                                               ", but the service expects ", expected)
                                        .view());
}

/// Returns the text with which error messages describe the rights to lent memory.
const char* text_of_loan(access_flags rights) noexcept {
  if (rights.empty()) return "none";
  if (!rights.contains(access::remote_write)) return "memory to read";
  if (!rights.contains(access::remote_read)) return "memory to write";
  return "memory to read and write";
}

}  // namespace

method_handler::~method_handler() = default;

result<owned<service_core>> service_core::create(
    const protection_domain& domain, const service_options& options,
    std::vector<owned<method_handler>> handlers) noexcept {
  constexpr std::uint32_t most = UINT16_MAX;
  if (options.clients == 0 || options.clients > most)
    return error::out_of_range(creating, "clients", options.clients, "use 1 to 65535");
  if (options.in_flight == 0 || options.in_flight > most)
    return error::out_of_range(creating, "in_flight", options.in_flight, "use 1 to 65535 calls");
  if (options.lanes >= no_lane)
    return error::out_of_range(creating, "lanes", options.lanes, "use 0 to 65534");
  VERBSPP_TRYV(check_message_size(creating, options.message_size));
  std::ranges::sort(handlers, {}, [](const auto& each) { return each->method().number; });
  // The hub posts receives in batches of `refill`, so up to `refill - 1` of them may be missing.
  constexpr std::uint64_t refill = 16, largest_queue = 1U << 24;
  const std::uint64_t calls = std::uint64_t{options.clients} * options.in_flight;
  const std::uint64_t receives = calls + refill;
  // The place of a call is in use until the device has reported that the answer was sent. By then,
  // the client may have sent the next call.
  const std::uint64_t places = receives + 2 * calls;
  const std::uint64_t completions =
      receives + std::uint64_t{options.clients} * 2 * std::max(options.in_flight, 16U);
  if (completions > largest_queue)
    return error::above_limit(creating, "clients x in_flight", calls, (largest_queue - refill) / 3);
  VERBSPP_TRY(pool, message_pool::create(domain, static_cast<std::uint32_t>(places),
                                         options.message_size + call_header::size));
  VERBSPP_TRY(hub, channel_hub::create(domain, pool,
                                       {.channels = options.clients,
                                        .completions = static_cast<std::uint32_t>(completions),
                                        .receives = static_cast<std::uint32_t>(receives),
                                        .refill = refill,
                                        .waiting = options.waiting}));
  VERBSPP_TRY(clients, hub_clients<client_entry>::create(std::move(hub)));
  owned<service_core> made(new (std::nothrow) service_core(std::move(pool), std::move(clients),
                                                           options, std::move(handlers)));
  if (!made || !made->methods_ || !made->unwanted_) return error::from_errno(ENOMEM, creating);
  return made;
}

service_core::service_core(message_pool pool, hub_clients<client_entry> clients,
                           const service_options& options,
                           std::vector<owned<method_handler>> handlers) noexcept
    : pool_(std::move(pool)),
      handlers_(std::move(handlers)),
      options_(options),
      method_count_(handlers_.size()),
      methods_(new(std::nothrow) method_entry[method_count_ + 1]),
      unwanted_(new(std::nothrow) std::uint32_t[options.clients]()),
      clients_(std::move(clients)) {
  if (!methods_) return;
  for (std::size_t i = 0; i < method_count_; ++i) {
    methods_.get()[i].number = handlers_[i]->method().number;
    methods_.get()[i].handler = handlers_[i].get();
  }
}

result<channel_id> service_core::add(channel&& link) noexcept {
  const channel_core& core = link.core();
  if (core.connection().type() != transport::rc)
    return error(error_kind::not_supported, adding,
                 "calls need a reliable transport: build the channel with transport::rc");
  // Checks the capacity of the channel, which may be lower than that of the queue pair if the
  // channel belongs to a hub.
  const std::uint32_t sends = core.sends().capacity();
  if (sends < options_.in_flight && core.state() != channel_state::empty)
    return error::above_limit(adding, "in_flight of the service", options_.in_flight, sends,
                              "build the channel with a larger max_send_work_requests");
  reference<calling_client> client(new (std::nothrow)
                                       calling_client(clients_.hub(), link.id(), options_));
  if (!client || !client->is_allocated()) return error::from_errno(ENOMEM, adding);
  client->set_answer_size(largest_comparison);
  return clients_.add(std::move(link), client_entry(std::move(client)));
}

void service_core::remove(channel_id client) noexcept {
  if (client.index >= options_.clients) return;
  std::uint32_t& last = unwanted_.get()[client.index];
  std::uint32_t earlier = __atomic_load_n(&last, __ATOMIC_RELAXED);
  // The id of a client that has left must not replace that of a later client.
  while (static_cast<std::int32_t>(client.generation - earlier) > 0 &&
         !__atomic_compare_exchange_n(&last, &earlier, client.generation, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
    continue;
  clients_.hub().wake(client);
}

result<void> service_core::drain(const wait_limit& until) {
  __atomic_store_n(&is_draining_, true, __ATOMIC_RELAXED);
  for (;;) {
    // No handler is called, because new calls are refused.
    VERBSPP_TRYV(poll());
    bool is_done = true;
    const result<void> visited = clients_.for_each(
        [&](turn& client) {
          if (execute(client)) is_done = false;
          if (client && !(client.link().core().is_idle() && (*client.data())->is_answered()))
            is_done = false;
        },
        until);
    if (visited.has_value() && is_done) return success();
    if (until.has_passed())
      return until.failure(
          "service::drain",
          "calls have no answer yet, or answers have not arrived at their clients: answer or "
          "refuse the calls that handlers have stored, or allow more time");
    if (visited.has_error()) return visited.assume_error();
    hub_turn::pause();
  }
}

result<void> service_core::serve(const wait_limit& until) {
  for (unsigned turns = 1;; ++turns) {
    auto next = clients_.wait(until);
    if (next.has_value()) [[likely]] {
      const bool is_due_again = serve(std::move(next).assume_value());
      // If clients have arrivals all of the time, no wait checks the limit, so it is also checked
      // here.
      if ((is_due_again || turns % 32 == 0) && until.has_passed()) [[unlikely]]
        return success();
      // The thread that will complete the access may need this processor.
      if (is_due_again) [[unlikely]]
        sched_yield();
      continue;
    }
    const error& ended = next.assume_error();
    if ((ended == error_kind::timed_out || ended == error_kind::cancelled) && until.has_passed())
      return success();
    return ended;
  }
}

result<void> service_core::poll() {
  // The number of turns is limited, so that a client that sends all the time cannot keep the thread
  // here.
  for (std::uint32_t turns = clients_.size(); turns > 0; --turns) {
    VERBSPP_TRY(next, clients_.poll());
    if (!next) break;
    static_cast<void>(serve(std::move(*next)));
  }
  return success();
}

VERBSPP_DATA_PATH void service_core::dispatch(open_call& call, call_frame_kind kind,
                                              std::uint16_t method, const method_entry& entry,
                                              calling_client& client, channel& link) {
  if (__atomic_load_n(&is_draining_, __ATOMIC_RELAXED)) [[unlikely]]
    return refuse_while_draining(call);
  if (kind == call_frame_kind::lane_request) [[unlikely]]
    return connect_lane(call, client, link);
  if (method == comparing_methods) [[unlikely]]
    return compare(call, client);
  if (entry.handler == nullptr) [[unlikely]]
    return refuse_number(call, method);
  const method_description& called = entry.handler->method();
  if (!called.lends.empty() != (kind == call_frame_kind::lending_call)) [[unlikely]]
    return refuse_loan(call, !called.lends.empty());
  if (!called.lends.empty() && !take_loan(call, client, called)) return;
  const auto actual = static_cast<std::uint32_t>(call.request().size());
  const std::uint32_t size = called.request_size;
  if (size != any_size && size != actual) [[unlikely]]
    return refuse_size(call, actual, size);
  entry.handler->take(std::move(call));
}

VERBSPP_DATA_PATH bool service_core::take(const reference<calling_client>& client, channel& link,
                                          channel_core& core, message&& arrived) {
  const std::span<const std::byte> bytes = std::as_const(arrived).bytes();
  if (!call_header::is_from_caller(bytes) || !client->note_call()) [[unlikely]]
    return false;
  const call_frame_kind kind = call_header::kind_in(bytes.data());
  const std::uint16_t method = call_header::method_in(bytes.data());
  method_entry& entry = entry_of(method);
  count(entry.counted.calls, 1);
  count(entry.counted.request_bytes, bytes.size() - call_header::size);
  open_call call(client, std::move(arrived));
  dispatch(call, kind, method, entry, *client.get(), link);
  if (message answer = call.take_answer())
    client->send_or_keep(core, std::move(answer), entry.counted);
  return true;
}

bool service_core::execute(turn& client) {
  struct answering {
    calling_client& client;
    channel_core& core;
    service_core& counting;
    ~answering() { client.end_turn(core, counting); }
  };
  const reference<calling_client> calling = *client.data();
  if (is_unwanted(client.id())) [[unlikely]] {
    client.remove();
    return false;
  }
  bool is_valid = true;
  {
    calling->begin_turn();
    channel_core& core = client.link().core();
    const answering until_end{*calling.get(), core, *this};
    while (auto arrived = client.next()) {
      is_valid = take(calling, client.link(), core, std::move(*arrived));
      if (!is_valid) break;
    }
  }
  if (is_valid) return calling->take_due_again();
  count(other_messages().counted.removed_clients, 1);
  client.remove();
  return false;
}

void service_core::compare(open_call& call, calling_client& client) const noexcept {
  auto list = method_list_reader::open(call.request());
  if (list.has_error()) return call.refuse(list.assume_error());
  client.set_answer_size(std::clamp<std::uint32_t>(list.assume_value().message_size(),
                                                   largest_comparison, options_.message_size));
  for (;;) {
    const auto next = list.assume_value().next();
    if (next.has_error()) return call.refuse(next.assume_error());
    if (!next.assume_value()) break;
    const listed_method& theirs = *next.assume_value();
    const method_handler* const handler = entry_of(theirs.number).handler;
    if (handler == nullptr)
      return call.refuse(error_kind::not_found,
                         short_text("the service has no method with the number ", theirs.number,
                                    " ('", theirs.name, "' at the caller)")
                             .view());
    const method_description& ours = handler->method();
    const auto refuse_for = [&](const char* subject, std::string_view at_caller,
                                std::string_view at_service) noexcept {
      call.refuse(error_kind::mismatch,
                  short_text("the two ends differ in ", subject, " of method ", theirs.number,
                             " ('", theirs.name, "'): the caller has ", at_caller,
                             ", the service has ", at_service)
                      .view());
    };
    const auto our_name = std::string_view(ours.name).substr(0, method_description::longest_name);
    if (theirs.name != our_name)
      return refuse_for("the name", short_text("'", theirs.name, "'").view(),
                        short_text("'", our_name, "'").view());
    if (theirs.version != ours.version)
      return refuse_for("the version", short_text(theirs.version).view(),
                        short_text(ours.version).view());
    if (theirs.lends != ours.lends)
      return refuse_for("the memory that is lent by calls", text_of_loan(theirs.lends),
                        text_of_loan(ours.lends));
    if (theirs.request_size != ours.request_size)
      return refuse_for("the request size", text_of_size(theirs.request_size).view(),
                        text_of_size(ours.request_size).view());
    if (theirs.answer_size != ours.answer_size)
      return refuse_for("the answer size", text_of_size(theirs.answer_size).view(),
                        text_of_size(ours.answer_size).view());
  }
  static_cast<void>(call.answer_with("compare methods", [&](std::span<std::byte> into) {
    return codec<largest_sizes>::encode(
        {in_frame_order(options_.message_size), in_frame_order(options_.sent_size)}, into);
  }));
}

void service_core::connect_lane(open_call& call, calling_client& client, channel& link) noexcept {
  const std::span<const std::byte> request = call.request();
  if (request.size() != lane_request_size)
    return call.refuse(
        error_kind::invalid_input,
        "the request for a lane is malformed: use the same version of verbspp at both ends");
  const auto number = get_from_frame<std::uint16_t>(request.data());
  if (number >= options_.lanes)
    return call.refuse(error_kind::resource_exhausted,
                       "the service has no lane (a connection for lent memory) left for this "
                       "client: raise the service's service_options::lanes");
  reference<serving_lane>& lane = client.lane(number);
  lane = {};
  // The rights of this end give the peer no access to memory of the service.
  const auto connect = [&]() noexcept -> result<endpoint> {
    VERBSPP_TRY(theirs,
                endpoint::decode(request.subspan(lane_request_size - endpoint::encoded_size)));
    VERBSPP_TRY(prepared, prepare_lane(link.core(), options_.waiting, access::local_write));
    VERBSPP_TRY(connected, std::move(prepared).handshake(theirs));
    const endpoint own = connected.endpoint();
    lane = reference<serving_lane>(new (std::nothrow) serving_lane(std::move(connected)));
    if (!lane) return error::from_errno(ENOMEM, "connect a lane");
    return own;
  };
  const result<endpoint> connected = connect();
  if (connected.has_error()) return call.refuse(connected.assume_error());
  count(other_messages().counted.lanes, 1);
  const auto encoded = connected.assume_value().encode();
  const auto answered = call.answer_with("connect a lane", [&](std::span<std::byte> into) {
    return codec<bytes>::encode(encoded, into);
  });
  if (answered.has_error()) call.refuse(answered.assume_error());
}

bool service_core::take_loan(open_call& call, calling_client& client,
                             const method_description& of) const noexcept {
  const std::span<const std::byte> body = call.request();
  if (body.size() < loan_size) {
    call.refuse(error_kind::invalid_input,
                "the description of the lent memory is incomplete: use the same version of verbspp "
                "at both ends");
    return false;
  }
  const auto what =
      remote_memory_description::decode(body.first(remote_memory_encoded_size), of.lends);
  if (what.has_error()) {
    call.refuse(what.assume_error());
    return false;
  }
  const std::uint16_t number = lane_in(body);
  if (number == sent_lane) {
    if (what.assume_value().length > options_.sent_size) {
      call.refuse(error_kind::invalid_input,
                  "the service does not accept lent memory of this size "
                  "in a message: use the same version of verbspp at both ends");
      return false;
    }
    const result<void> lent = call.lend_sent(what.assume_value(), of);
    if (lent.has_error()) call.refuse(lent.assume_error());
    return lent.has_value();
  }
  reference<serving_lane> lane;
  if (number < options_.lanes) lane = client.lane(number);
  if (!lane && what.assume_value().length != 0) {
    call.refuse(error_kind::invalid_input,
                "the call lends memory over a lane that is not open: use the same version of "
                "verbspp at both ends");
    return false;
  }
  reference<lent_memory> lent(new (std::nothrow) lent_memory(std::move(lane), what.assume_value()));
  if (!lent) {
    call.refuse(error::from_errno(ENOMEM, "take a call"));
    return false;
  }
  call.lend(std::move(lent));
  return true;
}

namespace {

/// Adds the counters `counted`, which other threads may change, to `sum`.
void add_to(service_statistics& sum, const service_statistics& counted) noexcept {
  const auto add = [](std::uint64_t& into, const std::uint64_t& counter) {
    into += __atomic_load_n(&counter, __ATOMIC_RELAXED);
  };
  add(sum.calls, counted.calls);
  add(sum.answers, counted.answers);
  add(sum.refusals, counted.refusals);
  add(sum.request_bytes, counted.request_bytes);
  add(sum.answer_bytes, counted.answer_bytes);
  add(sum.removed_clients, counted.removed_clients);
  add(sum.lanes, counted.lanes);
}

}  // namespace

service_statistics service_core::statistics() const noexcept {
  service_statistics sum;
  for (std::size_t i = 0; i <= method_count_; ++i) add_to(sum, methods_.get()[i].counted);
  return sum;
}

service_statistics service_core::statistics(std::uint16_t method) const noexcept {
  service_statistics sum;
  if (const method_entry& entry = entry_of(method); entry.handler != nullptr)
    add_to(sum, entry.counted);
  return sum;
}

}  // namespace verbspp::detail

namespace verbspp {

std::ostream& operator<<(std::ostream& out, const service& printed) {
  if (!printed.core_) return out << "service that was moved from";
  const service_statistics counted = printed.statistics();
  return out << "service, calls: " << std::to_string(counted.calls)
             << ", answers: " << std::to_string(counted.answers) << ", " << printed.hub();
}

}  // namespace verbspp
