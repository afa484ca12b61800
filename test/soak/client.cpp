// SPDX-License-Identifier: Apache-2.0
#include "hall.hpp"

#include <chrono>
#include <utility>

namespace verbspp::soak {

client::client(const options& wanted, hall& shared, unsigned number)
    : wanted_(wanted),
      hall_(shared),
      desk_(shared.desks[number]),
      number_(number),
      random_(mix(wanted.seed, 2000, number)),
      context_(must(open_device(wanted.device), "open the device")),
      domain_(must(protection_domain::allocate(context_), "allocate a protection domain")),
      pool_(must(message_pool::create(domain_, 40, hall_message_size), "create a pool")) {
  fill_places();
}

void client::claim(bool holds, const std::string& what) const {
  if (!holds)
    throw wrong("client " + std::to_string(number_) + ", connection " +
                std::to_string(connection_) + ": " + what);
}

/// Fills the pool's places while there is no connection, so that late writes are detected.
void client::fill_places() {
  claim(pool_.available() == pool_.size(),
        "the pool has lost " + std::to_string(pool_.size() - pool_.available()) + " places");
  for (;;) {
    auto taken = pool_.take();
    if (!taken.has_value()) break;
    message& own = taken.assume_value();
    place where{own.bytes().data(), own.bytes().size(), random_()};
    where.fill();
    places_.emplace_back(std::move(own), where);
  }
  claim(places_.size() == pool_.size(), "the pool does not provide all of its places");
}

void client::check_places() {
  for (const auto& [own, where] : places_)
    claim(where.is_untouched(), "bytes landed in a free place of a pool");
  places_.clear();
}

void client::note(const error& cause, const char* where) {
  claim(!cause.message().empty(), std::string(where) + ": an error without a message");
  ++counts_[std::string("failures: ") + to_string(cause.kind())];
  claim(has_ended() || wanted_.faults, std::string(where) + ": " + cause.message());
}

/// Connects to the server. \returns true if the server has admitted this client
bool client::connect() {
  const wait_mode mode = once_in(2) ? wait_mode::spin() : wait_mode::spin_then_sleep(20us);
  prepared_channel prepared = must(domain_.build_channel()
                                       .max_send_work_requests(client_window)
                                       .max_receive_work_requests(2 * client_window)
                                       .default_limit(wanted_.patience)
                                       .waiting(mode)
                                       .build(),
                                   "build a channel");
  check_places();
  answers_.emplace(must(
      inbox::open(prepared, pool_, {.depth = static_cast<std::uint32_t>(4 + any(12)), .refill = 2}),
      "open an inbox"));
  desk_.client = prepared.endpoint().encode();
  desk_.asked = connection_;
  const auto deadline = clock::now() + wanted_.patience;
  while (desk_.granted.load() != connection_) {
    if (hall_.is_over.load() || hall_.failed.load()) return false;
    claim(clock::now() < deadline, "the server does not admit this client");
    // steady: this pause is not critical, because the loop polls until its deadline
    std::this_thread::sleep_for(50us);
  }
  auto linked = std::move(prepared).handshake(
      must(endpoint::decode(desk_.server), "read the server's endpoint"));
  link_ = must(std::move(linked), "do the handshake with the server");
  return true;
}

void client::ask() {
  auto taken = pool_.take();
  if (!taken.has_value()) return;  // all places are in use
  message request = std::move(taken).assume_value();
  const request_head head{number_, connection_, sent_};
  must(request.resize(head.size(request.capacity())), "shorten a message");
  head.write(request.bytes());
  const auto asked = [&](const auto& posted) {
    if (posted.has_value()) {
      unanswered_.insert(sent_++);
      ++desk_.operations;
      return;
    }
    const error cause(posted.error());
    if (cause.kind() != error_kind::would_block) note(cause, "a request");
  };
  if (once_in(4))
    asked(link_.send(std::move(request)));
  else
    asked(link_.post_send(std::move(request)));
}

void client::take(message answer) {
  const auto head = request_head::read(answer.bytes(), hall_message_size);
  claim(head.client == number_ && head.connection == connection_,
        "an answer arrived on a connection other than its own");
  claim(unanswered_.erase(head.number) == 1,
        "an answer arrived without a request, or for a second time");
  ++counts_["answers"];
  if (once_in(2)) kept_.push_back(std::move(answer));
}

void client::look(bool waits) {
  if (waits) {
    const auto marked = limits_.mark();
    const auto limit = clock::now() + std::chrono::microseconds(any(3000));
    auto answer = answers_->wait(limit);
    if (answer.has_value()) return take(std::move(answer).assume_value());
    if (answer.error() == error_kind::timed_out)
      return limits_.note(limit, marked, "an inbox's wait");
    return note(answer.error(), "an inbox");
  }
  auto next = answers_->poll();
  if (!next) return;
  if (!next->has_value()) return note(next->error(), "an inbox");
  take(std::move(*next).assume_value());
}

/// Releases all but the last `most` of the messages that were kept, after checking that each is
/// unchanged.
void client::let_go(std::size_t most) {
  while (kept_.size() > most) {
    static_cast<void>(request_head::read(kept_.front().bytes(), hall_message_size));
    kept_.pop_front();
  }
}

void client::leave() {
  const bool is_orderly = link_.is_connected() && once_in(3);
  if (is_orderly) {
    const auto deadline = clock::now() + wanted_.patience;
    while (!unanswered_.empty() && link_.is_connected() && !has_ended()) {
      claim(clock::now() < deadline, "an answer does not arrive");
      look(true);
      let_go(4);
    }
  }
  desk_.give_up(connection_);
  ++counts_[is_orderly ? "clients that left in order"
                       : "clients that left with requests in flight"];
  const bool inbox_first = once_in(2);
  if (inbox_first) answers_.reset();
  switch (any(3)) {
    case 0:
      if (link_.state() != channel_state::empty) static_cast<void>(link_.close());
      break;
    case 1: {
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_ERR;
      if (link_.native_handle() != nullptr)
        static_cast<void>(ibv_modify_qp(link_.native_handle(), &attributes, IBV_QP_STATE));
      break;
    }
    default:
      break;
  }
  link_ = channel();
  answers_.reset();
  let_go(0);
  unanswered_.clear();
  fill_places();
}

void client::run(std::uint64_t first_connection) {
  connection_ = first_connection;
  for (; !hall_.is_over.load() && !hall_.failed.load(); ++connection_) {
    sent_ = 0;
    if (connect()) {
      // If the server disconnects, the remaining requests are skipped.
      for (std::uint64_t left = any(600); left != 0 && link_.is_connected(); --left) {
        if (unanswered_.size() < client_window && !once_in(3))
          ask();
        else
          look(once_in(3));
        let_go(any(12));
        if (hall_.failed.load()) break;
      }
    }
    leave();
  }
  check_places();
}

}  // namespace verbspp::soak
