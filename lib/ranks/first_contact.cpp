// SPDX-License-Identifier: Apache-2.0
#include "ranks/first_contact.hpp"

#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

using clock = std::chrono::steady_clock;

constexpr const char* calling = "connect ranks of a world";
/// How soon one calls again that got no answer, at first and at last.
constexpr auto first_pause = std::chrono::milliseconds(2);
constexpr auto longest_pause = std::chrono::milliseconds(100);
/// How long one that is ready calls one that has not said that it is.
constexpr auto time_for_others = std::chrono::milliseconds(100);
/// How long an answer may take to what is known to be there already.
constexpr auto time_to_meet = std::chrono::seconds(5);

constexpr std::uint32_t send_places = 16;
constexpr std::uint32_t receive_places = 112;

/// A datagram: a mark, the rank that sends it, what it says, and its endpoint.
constexpr std::uint32_t mark = 0x76787263;
constexpr std::size_t beginning = 12;
constexpr std::size_t length = beginning + endpoint::encoded_size;
enum : std::uint32_t {
  wants_answer_bit = 1,
  is_connected_bit = 2,
  is_refused_bit = 4,
  is_ready_bit = 8,
};

constexpr std::size_t place_size = 512;
static_assert(datagram_header_size + length <= place_size);

void put_number(std::span<std::byte> to, std::size_t at, std::uint32_t number) noexcept {
  for (unsigned i = 0; i < 4; ++i)
    to[at + i] = static_cast<std::byte>(number >> (24U - 8 * i) & 0xffU);
}
[[nodiscard]] std::uint32_t number_in(std::span<const std::byte> from, std::size_t at) noexcept {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < 4; ++i)
    number = number << 8U | std::to_integer<std::uint32_t>(from[at + i]);
  return number;
}

[[nodiscard]] completed_work no_news() noexcept {
  return {number_of(work_operation::send), 0, 0, 0};
}

}  // namespace

result<void> first_contact::open(const protection_domain& domain, const queue_pair_settings& like,
                                 std::uint32_t size) noexcept {
  size_ = size;
  contacts_ = owned<contact[]>(new (std::nothrow) contact[size]);
  if (!contacts_) return error::from_errno(ENOMEM, calling);
  std::uint32_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != sizeof key)
    return error::from_errno(errno, calling, "the kernel gives no random numbers");
  VERBSPP_TRY(memory, registered_buffer<access::local_write>::allocate(
                          domain, (send_places + receive_places) * place_size));
  memory_.emplace(std::move(memory));
  VERBSPP_TRY(queue, completion_queue::create(domain.context(), send_places + receive_places));
  queue_.emplace(queue);
  VERBSPP_TRY(prepared, build_queue_pair<transport::ud>()
                            .protection_domain(domain)
                            .completion_queue(queue)
                            .max_send_work_requests(work_request_count(send_places))
                            .max_receive_work_requests(work_request_count(receive_places))
                            .max_send_elements(element_count(1))
                            .max_receive_elements(element_count(1))
                            .port(like.port)
                            .gid_index(like.gid_index)
                            .pkey_index(like.connection.pkey_index)
                            // Those with the highest bit are for the privileged.
                            .qkey(queue_key::assume(key & 0x7fff'ffffU))
                            .build());
  if (prepared.endpoint().mtu.bytes() < length)
    return error(error_kind::not_supported, calling,
                 "datagrams are too small here: connect at their first use where the port's MTU is "
                 "512 and more, or all at the start");
  VERBSPP_TRY(active, std::move(prepared).activate());
  queue_pair_.emplace(std::move(active));
  unsent_ = (1U << send_places) - 1;
  for (std::uint32_t place = 0; place < receive_places; ++place) expect(place);
  return success();
}

void first_contact::expect(std::uint32_t place) noexcept {
  const auto into = memory_->scatter(std::size_t{send_places + place} * place_size, place_size);
  // What can't be posted is a receive less: the others call again.
  if (into.has_value())
    static_cast<void>(
        queue_pair_->post_receive({.elements = into.assume_value()}, {.id = send_places + place}));
}

result<void> first_contact::make(group& members, std::uint32_t peer,
                                 const wait_limit& limit) noexcept {
  contact& with = contacts_.get()[peer];
  if (!with.way && peer != rank_) {
    VERBSPP_TRY(remote, in_.meet(peer, limit));
    VERBSPP_TRY(way, queue_pair_->address_of(remote));
    with.way.emplace(std::move(way));
    with.number = remote.number;
    with.key = remote.qkey;
  }
  if (with.stage != progress::none) return success();
  VERBSPP_TRY(made, in_.build());
  VERBSPP_TRYV(members.put(peer, std::move(made)));
  with.stage = progress::made;
  return success();
}

result<void> first_contact::connect_self(group& members) noexcept {
  VERBSPP_TRYV(make(members, rank_, time_to_meet));
  VERBSPP_TRYV(members[rank_].handshake(members[rank_].endpoint()));
  settle(rank_);
  return success();
}

result<endpoint> first_contact::renew(group& members, std::uint32_t peer,
                                      const wait_limit& limit) noexcept {
  if (!is_untouched(peer)) return members[peer].renew();
  VERBSPP_TRYV(make(members, peer, limit));
  return members[peer].endpoint();
}

group_results first_contact::connect(group& members, const peer_list& peers,
                                     const wait_limit& limit) noexcept {
  const auto count = static_cast<std::uint32_t>(peers.size());
  owned<peer_result[]> all(new (std::nothrow) peer_result[count]);
  if (!all) return error::from_errno(ENOMEM, calling);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t peer = peers.begin()[i];
    all.get()[i] = {peer, no_news()};
    if (peer >= size_) {
      all.get()[i].result =
          error::above_limit(calling, "rank", peer, size_ - 1, "it has to be a rank of the world");
    } else if (is_due(peer)) {
      contacts_.get()[peer].is_refused = false;
      const result<void> made = make(members, peer, limit);
      if (!made.has_value()) all.get()[i].result = made.assume_error();
    }
  }
  const owned<bool[]> is_called(new (std::nothrow) bool[count]());
  if (!is_called) return error::from_errno(ENOMEM, calling);
  for (std::uint32_t i = 0; i < count; ++i)
    is_called.get()[i] = all.get()[i].result.has_value() && is_due(peers.begin()[i]);
  auto pause = std::chrono::nanoseconds(first_pause);
  std::optional<clock::time_point> ready;
  for (clock::time_point next{};;) {
    serve(members);
    const clock::time_point now = clock::now();
    const bool is_time = now >= next;
    const bool is_late = limit.has_passed();
    bool is_any_due = false;
    bool is_any_left = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!is_called.get()[i]) continue;
      peer_result& each = all.get()[i];
      const contact& with = contacts_.get()[each.peer];
      const bool is_still_due = is_due(each.peer);
      if (is_still_due && with.is_refused) {
        each.result = error(error_kind::not_connected, calling,
                            "this rank could not connect to the one that called it: look at what "
                            "its process says");
      } else if (is_still_due && is_late) {
        each.result = limit.failure(calling,
                                    "this rank did not answer: it does so while it connects, waits "
                                    "in a step of all or for messages, or calls serve()");
      } else if (is_still_due || (!with.is_other_ready && members[each.peer].is_connected())) {
        is_any_due = is_any_due || is_still_due;
        is_any_left = true;
        if (is_time) say(members, each.peer, true);
        continue;
      }
      is_called.get()[i] = false;
    }
    if (!is_any_due && !ready) ready = now;
    if (!is_any_left || is_late || (!is_any_due && now - *ready > time_for_others)) break;
    if (is_time) {
      next = now + pause;
      pause = std::min<std::chrono::nanoseconds>(2 * pause, longest_pause);
    }
    sched_yield();
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    peer_result& each = all.get()[i];
    if (!each.result.has_value() || members[each.peer].is_connected()) continue;
    if (const auto failed = members[each.peer].failure()) each.result = failed->root();
  }
  return {std::move(all), count};
}

void first_contact::serve(group& members) noexcept {
  std::array<work_completion, 16> slots{};
  for (;;) {
    const auto polled = queue_->poll(slots);
    if (!polled.has_value() || polled.assume_value().empty()) return;
    for (const work_completion& each : polled.assume_value()) {
      const auto place = static_cast<std::uint32_t>(each.wr_id());
      if (place < send_places) {
        unsent_ |= 1U << place;
        continue;
      }
      const auto bytes =
          std::span(memory_->data(), memory_->size()).subspan(place * place_size, place_size);
      const auto arrived = received_datagram::from(each, bytes);
      if (arrived.has_value()) {
        const std::span<const std::byte> payload = arrived.assume_value().payload();
        if (payload.size() >= length) take(members, payload.first(length));
      }
      expect(place - send_places);
    }
  }
}

void first_contact::take(group& members, std::span<const std::byte> datagram) noexcept {
  const std::uint32_t from = number_in(datagram, 4);
  const std::uint32_t says = number_in(datagram, 8);
  if (number_in(datagram, 0) != mark || from >= size_ || from == rank_) return;
  contact& with = contacts_.get()[from];
  const progress before = with.stage;
  if ((says & is_refused_bit) != 0) {
    with.is_refused = true;
    return;
  }
  if ((says & is_ready_bit) != 0) with.is_other_ready = true;
  // Who is not known cannot be answered, and calls again. A rank that has put what others are to
  // know of it before it called is known at once.
  const result<void> made = make(members, from, time_to_meet);
  if (!made.has_value() && !with.way) return;
  if (with.stage == progress::made) go_on(members, from, datagram.subspan(beginning));
  if (with.stage == progress::connected && (says & is_connected_bit) != 0)
    with.stage = progress::ready;
  // The other end may go on, too, as soon as it knows.
  const bool is_done = before < progress::ready && with.stage == progress::ready;
  if ((says & wants_answer_bit) != 0 || is_done) say(members, from, false);
}

void first_contact::go_on(group& members, std::uint32_t peer,
                          std::span<const std::byte> remote) noexcept {
  contact& with = contacts_.get()[peer];
  const auto theirs = endpoint::decode(remote);
  if (!theirs.has_value()) return;
  const result<void> connected = members[peer].handshake(theirs.assume_value());
  // A channel that failed tells why.
  with.stage = connected.has_value() ? progress::connected : progress::ready;
}

void first_contact::say(group& members, std::uint32_t to, bool wants_answer) noexcept {
  contact& with = contacts_.get()[to];
  // Once more, after the next call.
  if (unsent_ == 0 || !with.way) return;
  const auto place = static_cast<std::uint32_t>(std::countr_zero(unsent_));
  const std::span<std::byte> bytes =
      std::span(memory_->data(), memory_->size()).subspan(place * place_size, length);
  const bool is_connected = with.stage >= progress::connected && members[to].is_connected();
  const bool is_refused = with.stage == progress::none ||
                          (with.stage == progress::ready && !members[to].is_connected());
  put_number(bytes, 0, mark);
  put_number(bytes, 4, rank_);
  put_number(bytes, 8,
             (wants_answer ? wants_answer_bit : 0U) | (is_connected ? is_connected_bit : 0U) |
                 (is_refused ? is_refused_bit : 0U) |
                 (is_connected && with.stage == progress::ready ? is_ready_bit : 0U));
  std::ranges::copy(members[to].endpoint().encode(), bytes.begin() + beginning);
  const auto from = memory_->gather(std::size_t{place} * place_size, length);
  if (!from.has_value()) return;
  const auto posted = queue_pair_->post_send(
      {.elements = from.assume_value(), .to = with.way->destination(with.number, with.key)},
      {.id = place, .signaled = true});
  if (posted.has_value()) unsent_ &= ~(1U << place);
}

}  // namespace verbspp::detail
