// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the tests of senders.
#pragma once

#include "channels.hpp"
#include <verbspp/sender.hpp>

#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

namespace verbspp::test::senders {

/// Counts the completions of one operation, by their kind.
struct record {
  int values = 0;
  int errors = 0;
  int stops = 0;
  std::optional<error> failed{};
  std::optional<message> arrived{};
  std::optional<registered_buffer<>> memory{};
  std::thread::id completed_on{};

  [[nodiscard]] int completions() const { return values + errors + stops; }
  [[nodiscard]] bool is_done() const { return completions() != 0; }
  void note() { completed_on = std::this_thread::get_id(); }
};

template <class Token>
struct environment {
  Token token;
  [[nodiscard]] Token query(execution::get_stop_token_t /*query*/) const noexcept { return token; }
};

/// A receiver that notes how the operation completes.
struct plain_receiver {
  record* to;

  void set_value() && noexcept { value(); }
  void set_value(const completed_work& /*work*/) && noexcept { value(); }
  void set_value(const completed_work& /*work*/, registered_buffer<>&& memory) && noexcept {
    to->memory = std::move(memory);
    value();
  }
  void set_value(message&& arrived) && noexcept {
    to->arrived = std::move(arrived);
    value();
  }
  void set_error(const error& failed) && noexcept { fail(failed); }
  void set_error(const transport_error& failed) && noexcept { fail(error(failed)); }
  void set_error(const scope_error& failed) && noexcept { fail(failed); }
  void set_error(finished<registered_buffer<>>&& failed) && noexcept {
    to->memory = std::move(failed.memory);
    fail(error(failed.result.assume_error()));
  }
  void set_stopped() && noexcept {
    to->note();
    ++to->stops;
  }

 private:
  void value() const {
    to->note();
    ++to->values;
  }
  void fail(const error& failed) const {
    to->note();
    to->failed = failed;
    ++to->errors;
  }
};
template <class Token = std::stop_token>
struct receiver : plain_receiver {
  Token token;
  receiver(record& into, Token stop) : plain_receiver{&into}, token(std::move(stop)) {}
  [[nodiscard]] environment<Token> get_env() const noexcept { return {token}; }
};

/// An operation, and the record of its completions. The constructor does not start the operation.
template <class Sender>
class running {
 public:
  running(Sender sender, std::stop_token stop = {})
      : operation_(std::move(sender).connect(receiver<>(seen, std::move(stop)))) {}
  running& start() {
    operation_.start();
    return *this;
  }

  record seen{};

 private:
  decltype(std::declval<Sender>().connect(std::declval<receiver<>>())) operation_;
};

/// Polls the channel until the operation has completed.
template <class Running>
void complete(Running& operation, channel& link) {
  wait_until(
      [&] {
        link.poll();
        return operation.seen.is_done();
      },
      "the operation");
  CHECK(operation.seen.completions() == 1);
}

[[nodiscard]] inline auto send_text(channel& link, std::string_view text) {
  return as_sender([&link, text] { return link.async_send({.elements = inline_payload(text)}); });
}

}  // namespace verbspp::test::senders
