// SPDX-License-Identifier: Apache-2.0
#include "ranks/first_contact.hpp"

#include "base/bytes.hpp"

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
/// An unanswered call is repeated after `first_pause`. The pause then doubles with each repetition,
/// up to `longest_pause`.
constexpr auto first_pause = std::chrono::milliseconds(2);
constexpr auto longest_pause = std::chrono::milliseconds(100);
/// A ready end keeps calling the other end for up to this time, if the other end has not reported
/// that it is ready.
constexpr auto time_for_others = std::chrono::milliseconds(100);
/// The limit for reading data from the bootstrap that should already be available there. It is
/// short, since this rank does nothing else in that time. If the data of a caller cannot be read,
/// this rank answers no new caller for `time_between_failures`.
constexpr auto time_to_meet = std::chrono::milliseconds(200);
constexpr auto time_between_failures = std::chrono::seconds(1);

constexpr std::uint32_t send_places = 16;
constexpr std::uint32_t receive_places = 112;

/// The layout of a datagram: the constant first word; the sender's rank; the kind of message; the
/// errno, if it is a refusal; the owner and the generation of the endpoint that the message refers
/// to; the number of the sender's last call; the number of the receiver's last call; and the
/// sender's endpoint.
constexpr std::uint32_t first_word = 0x76787265;
constexpr std::size_t beginning = 32;
constexpr std::size_t length = beginning + endpoint::encoded_size;
enum : std::uint32_t {
  wants_answer_bit = 1,
  is_connected_bit = 2,
  is_refused_bit = 4,
  is_ready_bit = 8,
};

constexpr std::size_t place_size = 512;
static_assert(datagram_header_size + length <= place_size);

[[nodiscard]] completed_work no_news() noexcept {
  return {number_of(work_operation::send), 0, 0, 0};
}

/// The error that reports a refusal with this errno.
[[nodiscard]] error refused(int errnum) noexcept {
  const char* hint =
      "that rank has reported this errno: it could not create its channel to this rank (check its "
      "device and its limits), or that channel is no longer connected (call mend() on all ranks)";
  if (errnum == EBUSY)
    hint =
        "usually the program of that rank has put its own channel to this rank into the group: "
        "connect that channel with handshake() in both programs";
  if (errnum == ESTALE)
    hint =
        "that rank is still connected to an earlier channel of this rank: call mend() on all ranks";
  return error::from_errno(errnum, calling).as(error_kind::not_connected, hint);
}

}  // namespace

result<void> first_contact::open(const protection_domain& domain, const queue_pair_settings& like,
                                 std::uint32_t size) noexcept {
  size_ = size;
  contacts_ = owned<contact[]>(new (std::nothrow) contact[size]);
  if (!contacts_) return error::from_errno(ENOMEM, calling);
  std::uint32_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != sizeof key)
    return error::from_errno(errno, calling, "the kernel returned no random numbers");
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
                            // A queue key whose highest bit is set may need a privilege.
                            .qkey(queue_key::assume(key & 0x7fff'ffffU))
                            .build());
  if (prepared.endpoint().mtu.bytes() < length)
    return error(error_kind::not_supported, calling,
                 "the port's MTU is too small for the datagrams that connect ranks on first use: "
                 "configure at least 512 bytes, or connect all ranks at the start (world::join)");
  VERBSPP_TRY(active, std::move(prepared).activate());
  queue_pair_.emplace(std::move(active));
  unsent_ = (1U << send_places) - 1;
  for (std::uint32_t place = 0; place < receive_places; ++place) expect(place);
  return success();
}

void first_contact::expect(std::uint32_t place) noexcept {
  const auto into = memory_->scatter(std::size_t{send_places + place} * place_size, place_size);
  if (!into.has_value()) return;
  const auto posted =
      queue_pair_->post_receive({.elements = into.assume_value()}, {.id = send_places + place});
  if (!posted.has_value()) note_trouble(posted.assume_error());
}

void first_contact::note_trouble(const error& cause) noexcept {
  if (!trouble_) trouble_ = cause;
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
  if (with.stage != progress::none || !is_vacant(members, peer)) return success();
  VERBSPP_TRY(made, in_.build());
  VERBSPP_TRYV(members.put(peer, std::move(made)));
  with.stage = progress::made;
  return success();
}

result<void> first_contact::connect_self(group& members) noexcept {
  VERBSPP_TRYV(make(members, rank_, time_to_meet));
  VERBSPP_TRYV(members[rank_].handshake(members[rank_].endpoint()));
  settle(rank_, members[rank_].endpoint());
  in_.note_connected(rank_);
  return success();
}

void first_contact::settle(std::uint32_t peer, const struct endpoint& remote) noexcept {
  contact& with = contacts_.get()[peer];
  with.stage = progress::ready;
  with.connected_to = with.heard = mark_of(remote);
}

result<endpoint> first_contact::renew(group& members, std::uint32_t peer,
                                      const wait_limit& limit) noexcept {
  if (is_untouched(members, peer)) {
    VERBSPP_TRYV(make(members, peer, limit));
    return members[peer].endpoint();
  }
  VERBSPP_TRY(local, members[peer].renew());
  // This is the state until `settle` is called. If that never happens, this rank can call the peer
  // as if the two had never been connected.
  contact& with = contacts_.get()[peer];
  with.stage = progress::made;
  with.is_other_ready = false;
  return local;
}

std::optional<error> first_contact::failure_of(const contact& due, const wait_limit& limit,
                                               bool is_late) const noexcept {
  if (due.refusal) return refused(*due.refusal);
  if (trouble_) return trouble_;
  if (is_late)
    return limit.failure(
        calling,
        "no answer from that rank: check its process and the network to it. A rank answers during "
        "connect(), mend(), serve() and collective steps, and while it polls or waits for its "
        "group, or polls a barrier_session");
  return std::nullopt;
}

void first_contact::prepare(group& members, connecting_peers& those,
                            const wait_limit& limit) noexcept {
  for (std::uint32_t i = 0; i < those.size; ++i) {
    peer_result& each = those.results.get()[i];
    look_at_memory(members, each.peer);
    if (!is_due(members, each.peer)) continue;
    contact& with = contacts_.get()[each.peer];
    with.refusal.reset();
    ++with.call;
    const result<void> made = make(members, each.peer, limit);
    if (!made.has_value()) each.result = made.assume_error();
    those.is_open.get()[i] = made.has_value() && is_due(members, each.peer);
  }
}

first_contact::what_is_left first_contact::call(group& members, connecting_peers& those,
                                                const wait_limit& limit, bool is_late) noexcept {
  what_is_left left;
  bool has_places = true;
  for (std::uint32_t i = 0; i < those.size; ++i) {
    bool& is_open = those.is_open.get()[i];
    if (!is_open) continue;
    peer_result& each = those.results.get()[i];
    const contact& with = contacts_.get()[each.peer];
    look_at_memory(members, each.peer);
    const bool is_still_due = is_due(members, each.peer);
    if (is_still_due) {
      if (const auto failed = failure_of(with, limit, is_late)) each.result = *failed;
    }
    const bool waits_for_this_end = !with.is_other_ready && members[each.peer].is_connected();
    is_open = is_still_due ? each.result.has_value() : waits_for_this_end;
    if (!is_open) continue;
    left.is_any_due = left.is_any_due || is_still_due;
    left.is_any_open = true;
    // If no send buffer is free, the next call of this function continues with the rest of the
    // round.
    if (i < those.said || !has_places) continue;
    has_places = say(members, each.peer, true);
    if (has_places) those.said = i + 1;
  }
  if (has_places) those.said = those.size;
  return left;
}

result<connecting_peers> first_contact::begin(group& members, const peer_list& peers,
                                              const wait_limit& limit) noexcept {
  connecting_peers those;
  those.size = those.said = static_cast<std::uint32_t>(peers.size());
  those.results = owned<peer_result[]>(new (std::nothrow) peer_result[those.size]);
  those.is_open = owned<bool[]>(new (std::nothrow) bool[those.size]());
  if (!those.results || !those.is_open) return error::from_errno(ENOMEM, calling);
  for (std::uint32_t i = 0; i < those.size; ++i)
    those.results.get()[i] = {peers.begin()[i], no_news()};
  those.pause = first_pause;
  prepare(members, those, limit);
  return those;
}

bool first_contact::advance(group& members, connecting_peers& those,
                            const wait_limit& limit) noexcept {
  serve(members);
  const clock::time_point now = clock::now();
  if (those.said == those.size && now >= those.next) {
    those.said = 0;
    those.next = now + those.pause;
    those.pause = std::min<std::chrono::nanoseconds>(2 * those.pause, longest_pause);
  }
  const bool is_late = limit.has_passed();
  const what_is_left left = call(members, those, limit, is_late);
  if (!left.is_any_due && !those.ready) {
    // At this end, each peer is now connected or has failed. The connected peers are notified now,
    // and then at short intervals, since this end waits for them only for a short time.
    those.ready = those.next = now;
    those.pause = first_pause;
  }
  if (left.is_any_open && !is_late && (left.is_any_due || now - *those.ready <= time_for_others))
    return false;
  for (std::uint32_t i = 0; i < those.size; ++i) {
    peer_result& each = those.results.get()[i];
    if (each.result.has_value()) each.result = members.state_of(each.peer);
  }
  return true;
}

void first_contact::serve(group& members) noexcept {
  std::array<work_completion, 16> slots{};
  for (;;) {
    const auto polled = queue_->poll(slots);
    if (!polled.has_value()) return note_trouble(polled.assume_error());
    if (polled.assume_value().empty()) return;
    for (const work_completion& each : polled.assume_value()) {
      const auto place = static_cast<std::uint32_t>(each.wr_id());
      if (place < send_places) {
        unsent_ |= 1U << place;
        const auto sent = each.get();
        if (!sent.has_value()) note_trouble(sent.assume_error());
        continue;
      }
      const auto bytes =
          std::span(memory_->data(), memory_->size()).subspan(place * place_size, place_size);
      const auto arrived = received_datagram::from(each, bytes);
      if (!arrived.has_value()) {
        // The receive is not posted again, because it would fail again.
        note_trouble(arrived.assume_error());
        continue;
      }
      const received_datagram& datagram = arrived.assume_value();
      if (datagram.payload().size() >= length)
        take(members, datagram.source(), datagram.payload().first(length));
      expect(place - send_places);
    }
  }
}

result<void> first_contact::answer(group& members, std::uint32_t peer) noexcept {
  const contact& with = contacts_.get()[peer];
  // Recently, the introduction of a rank could not be read, or its address could not be resolved.
  // So no new rank is answered yet; the peer will repeat its call.
  if (!with.way && clock::now() < introduces_from_) return error::from_errno(EAGAIN, calling);
  const result<void> made = make(members, peer, time_to_meet);
  if (!with.way) introduces_from_ = clock::now() + time_between_failures;
  return made;
}

void first_contact::take(group& members, queue_pair_number source,
                         std::span<const std::byte> datagram) noexcept {
  const std::uint32_t from = number_at(datagram, 4);
  const std::uint32_t says = number_at(datagram, 8);
  if (number_at(datagram, 0) != first_word || from >= size_ || from == rank_) return;
  contact& with = contacts_.get()[from];
  if (with.way && with.number != source) return;
  const mark spoken_of{number_at(datagram, 16), number_at(datagram, 20)};
  with.heard_call = number_at(datagram, 24);
  if ((says & is_refused_bit) != 0) {
    if (spoken_of == mark_of(members[from].endpoint()) && number_at(datagram, 28) == with.call)
      with.refusal = static_cast<int>(number_at(datagram, 12));
    return;
  }
  const auto remote = endpoint::decode(datagram.subspan(beginning));
  if (!remote.has_value()) return;
  const progress before = with.stage;
  with.heard = mark_of(remote.assume_value());
  // If the peer's introduction cannot be read yet, `answer` fails, and the peer calls again.
  const result<void> made = answer(members, from);
  if (!with.way) return;
  with.trouble = made.has_value() ? 0 : made.assume_error().code().value();
  if (with.stage == progress::made) go_on(members, from, remote.assume_value());
  const bool is_of_these =
      with.heard == with.connected_to && spoken_of == mark_of(members[from].endpoint());
  if (is_of_these && with.stage == progress::connected && (says & is_connected_bit) != 0)
    with.stage = progress::ready;
  if (is_of_these && (says & is_ready_bit) != 0) with.is_other_ready = true;
  // If this end is ready, the other end can become ready as soon as it is notified.
  const bool is_done = before < progress::ready && with.stage == progress::ready;
  if (is_done && members[from].is_connected()) in_.tell_connected(from, with.connected_to.encode());
  if ((says & wants_answer_bit) != 0 || is_done) say(members, from, false);
}

void first_contact::look_at_memory(const group& members, std::uint32_t peer) noexcept {
  if (peer >= size_) return;
  contact& with = contacts_.get()[peer];
  if (with.stage == progress::connected &&
      in_.has_told_connected(peer, mark_of(members[peer].endpoint()).encode()))
    with.stage = progress::ready;
}

void first_contact::go_on(group& members, std::uint32_t peer,
                          const struct endpoint& remote) noexcept {
  contact& with = contacts_.get()[peer];
  const result<void> connected = members[peer].handshake(remote);
  if (connected.has_value()) {
    with.stage = progress::connected;
    with.connected_to = mark_of(remote);
    in_.note_connected(peer);
  } else if (members[peer].state() != channel_state::prepared) {
    // If the channel has failed, it reports the cause itself. If the endpoint belonged to an
    // earlier connection, the channel would still be in the state `prepared`.
    with.stage = progress::ready;
  }
}

std::optional<int> first_contact::refusal_for(const group& members,
                                              std::uint32_t peer) const noexcept {
  const contact& with = contacts_.get()[peer];
  const channel& own = members[peer];
  if (with.stage == progress::none) return is_vacant(members, peer) ? with.trouble : EBUSY;
  if (with.stage == progress::made) return std::nullopt;
  if (const auto failed = own.failure()) return static_cast<error>(failed->root()).code().value();
  if (!own.is_connected()) return ENOTCONN;
  if (with.heard != with.connected_to) return ESTALE;
  return std::nullopt;
}

bool first_contact::say(group& members, std::uint32_t to, bool wants_answer) noexcept {
  const contact& with = contacts_.get()[to];
  if (trouble_ || !with.way) return true;
  if (unsent_ == 0) return false;
  const auto place = static_cast<std::uint32_t>(std::countr_zero(unsent_));
  const std::span<std::byte> bytes =
      std::span(memory_->data(), memory_->size()).subspan(place * place_size, length);
  const std::optional<int> refusal = refusal_for(members, to);
  const bool is_connected = !refusal && with.stage >= progress::connected;
  const mark& spoken_of = refusal ? with.heard : with.connected_to;
  put_number(bytes, 0, first_word);
  put_number(bytes, 4, rank_);
  put_number(bytes, 8,
             (wants_answer ? wants_answer_bit : 0U) | (is_connected ? is_connected_bit : 0U) |
                 (refusal ? is_refused_bit : 0U) |
                 (is_connected && with.stage == progress::ready ? is_ready_bit : 0U));
  put_number(bytes, 12, static_cast<std::uint32_t>(refusal.value_or(0)));
  put_number(bytes, 16, spoken_of.owner);
  put_number(bytes, 20, spoken_of.generation);
  put_number(bytes, 24, with.call);
  put_number(bytes, 28, with.heard_call);
  std::ranges::copy(members[to].endpoint().encode(), bytes.begin() + beginning);
  const auto from = memory_->gather(std::size_t{place} * place_size, length);
  if (!from.has_value()) return true;
  const auto posted = queue_pair_->post_send(
      {.elements = from.assume_value(), .to = with.way->destination(with.number, with.key)},
      {.id = place, .signaled = true});
  if (posted.has_value())
    unsent_ &= ~(1U << place);
  else
    note_trouble(posted.assume_error());
  return true;
}

}  // namespace verbspp::detail
