// SPDX-License-Identifier: Apache-2.0
#include "hall.hpp"

#include <chrono>
#include <utility>

namespace verbspp::soak {

server::server(const options& wanted, hall& shared, unsigned clients)
    : wanted_(wanted),
      hall_(shared),
      clients_(clients),
      random_(mix(wanted.seed, 1000)),
      context_(must(open_device(wanted.device), "open the device")),
      domain_(must(protection_domain::allocate(context_), "allocate a protection domain")),
      // If there are more than five clients, they can have more messages in flight than the pool
      // has places. Receives can then run out, so that senders have to wait.
      pool_(must(message_pool::create(domain_, 40, hall_message_size), "create a pool")),
      rows_(2 * std::size_t{clients}),
      ids_(clients) {
  const wait_mode mode = random_() % 2 == 0 ? wait_mode::sleep() : wait_mode::spin_then_sleep(20us);
  hub_.emplace(must(channel_hub::create(domain_, pool_,
                                        {.channels = static_cast<std::uint32_t>(rows_.size()),
                                         .receives = 32,
                                         .refill = 8,
                                         .waiting = mode}),
                    "create a hub"));
}

void server::count(const std::string& what) {
  const std::lock_guard guard(counting_);
  ++counts_[what];
}

/// Builds a channel for a client that requests one. The new channel replaces the client's previous
/// one.
void server::admit(unsigned client) {
  desk& own = hall_.desks[client];
  const std::uint64_t asked = own.asked.load();
  const auto remote = endpoint::decode(own.client);
  // If the client was killed, its successor may be writing a new endpoint at this very moment.
  if (!remote.has_value() && own.ended.load() >= asked) return;
  if (ids_[client] != channel_id()) {
    row& last = rows_[ids_[client].index];
    const std::lock_guard guard(last.lock);
    if (last.link.id() == ids_[client]) drop(last, random_);
  }
  prepared_channel prepared = must(domain_.build_channel()
                                       .hub(*hub_)
                                       .max_send_work_requests(2 * client_window)
                                       .max_receive_work_requests(1)
                                       .default_limit(wanted_.patience)
                                       .build(),
                                   "build a channel in a hub");
  const auto local = prepared.endpoint().encode();
  auto linked = std::move(prepared).handshake(must(remote, "read a client's endpoint"));
  if (!linked.has_value() && own.ended.load() >= asked) return;
  channel link = must(std::move(linked), "do the handshake with a client");
  ids_[client] = link.id();
  row& mine = rows_[link.id().index];
  {
    const std::lock_guard guard(mine.lock);
    mine.link = std::move(link);
    mine.unanswered.clear();
    mine.client = client;
    mine.connection = asked;
    mine.taken = 0;
  }
  own.server = local;
  own.granted = asked;
  count("clients admitted");
}

/// Answers received messages as long as the send queue has room and the connection holds.
void server::answer(row& client) {
  while (!client.unanswered.empty()) {
    const auto posted = client.link.post_send(std::move(client.unanswered.front()));
    if (!posted.has_value()) {
      if (posted.error().kind() != error_kind::would_block) judge(client);
      return;
    }
    client.unanswered.pop_front();
    ++hall_.desks[client.client].operations;
  }
}

/// Checks that a broken channel reports a reason. Unless faults are injected, also checks that one
/// of the two ends has announced the end of the connection.
void server::judge(row& client) {
  const auto failure = client.link.failure();
  if (!failure) throw wrong("a channel refuses requests, but reports no failure");
  if (hall_.desks[client.client].ended.load() < client.connection && !wanted_.faults)
    throw wrong("the server's channel to client " + std::to_string(client.client) +
                " broke without a reason: " + failure->message());
}

void server::drop(row& client, std::mt19937_64& chance) {
  hall_.desks[client.client].give_up(client.connection);
  switch (chance() % 3) {
    case 0: {
      const auto marked = limits_.mark();
      const auto length = std::chrono::microseconds(chance() % 2000);
      const auto limit = clock::now() + length;
      static_cast<void>(client.link.close(length));
      const std::lock_guard guard(counting_);
      limits_.note(limit, marked, "closing a channel");
      break;
    }
    case 1: {
      const channel moved = std::move(client.link);
      break;
    }
    default:
      break;
  }
  client.link = channel();
  client.unanswered.clear();
}

void server::take(arrival& arrived, std::mt19937_64& chance) {
  row& client = rows_[arrived.source.index];
  const std::lock_guard guard(client.lock);
  if (client.link.id() != arrived.source) return;  // the arrival is from an earlier channel
  client.link.poll();
  if (arrived.message) {
    const auto head = request_head::read(arrived.message.bytes(), hall_message_size);
    if (head.client != client.client || head.connection != client.connection)
      throw wrong("a message arrived on a channel other than its own");
    ++client.taken;
    client.unanswered.push_back(std::move(arrived.message));
  }
  answer(client);
  if (client.link.state() == channel_state::broken) {
    judge(client);
    count("clients found disconnected");
    drop(client, chance);
  } else if (chance() % 2000 == 0) {
    count("clients dropped by the server");
    drop(client, chance);
  }
}

void server::serve(const std::stop_token& stop, std::uint64_t seed) try {
  std::mt19937_64 chance(seed);
  std::array<arrival, 8> slots;
  while (!stop.stop_requested()) {
    const auto marked = limits_.mark();
    const auto limit = clock::now() + std::chrono::microseconds(chance() % 20000);
    const auto arrived = hub_->wait(slots, wait_limit(limit, stop));
    if (!arrived.has_value()) {
      if (arrived.error() == error_kind::timed_out) {
        const std::lock_guard guard(counting_);
        limits_.note(limit, marked, "a hub's wait");
      } else if (!stop.stop_requested()) {
        throw wrong("a hub: " + arrived.error().message());
      }
      continue;
    }
    for (arrival& each : arrived.value()) {
      take(each, chance);
      each = arrival();
    }
  }
} catch (const std::exception& caught) {
  hall_.fail(std::string("server: ") + caught.what());
}

void server::run() {
  std::vector<std::jthread> threads;
  const std::uint64_t count = 1 + random_() % 3;
  for (std::uint64_t i = 0; i < count; ++i)
    threads.emplace_back(
        [this, seed = random_()](const std::stop_token& stop) { serve(stop, seed); });
  while (!hall_.is_over.load() && !hall_.failed.load()) {
    for (unsigned i = 0; i < clients_; ++i)
      if (hall_.desks[i].asked.load() != hall_.desks[i].granted.load()) admit(i);
    // steady: this pause is not critical, because the loop polls until the soak is over
    std::this_thread::sleep_for(100us);
  }
  // The channels are closed under load: clients may still be sending.
  for (unsigned i = 0; i < clients_; ++i) hall_.desks[i].give_up(UINT64_MAX);
  for (std::jthread& each : threads) each.request_stop();
  threads.clear();
  for (row& each : rows_) {
    const std::lock_guard guard(each.lock);
    each.link = channel();
    each.unanswered.clear();
  }
  if (hub_->size() != 0) throw wrong("a hub counts channels that were destroyed");
  hub_.reset();
  if (pool_.available() != pool_.size())
    throw wrong("the server's pool has lost " + std::to_string(pool_.size() - pool_.available()) +
                " places");
}

}  // namespace verbspp::soak
