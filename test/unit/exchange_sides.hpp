// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../catch.hpp"
#include "../socket_pair.hpp"
#include <verbspp/exchange.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace verbspp::test {

using readable = remote_memory<access::remote_read>;
using values = std::tuple<std::uint32_t, bounded_text<16>, readable>;

inline const values some{7, "left", readable(0x1000, 64, remote_key(std::uint32_t{5}))};

/// A stop token that reads a variable. The tests use it in place of a limit that expires.
struct shared_stop {
  const bool* requested;
  [[nodiscard]] bool stop_requested() const noexcept { return *requested; }
};

inline endpoint some_endpoint(std::uint32_t number) {
  endpoint end;
  end.number = queue_pair_number::from(number).value();
  end.link_layer = link_layer::ethernet;
  end.gid_type = gid_type::roce_v2;
  end.address.bytes = {0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  end.mtu = path_mtu::from_code(3).value();
  return end;
}

/// One side of an exchange. It only exchanges data, and connects nothing.
template <class Theirs, class Mine>
class side {
 public:
  /// \param party the number of this side if both sides are equals, and 0 otherwise
  side(int socket, const Mine& mine, const wait_limit& limit, const exchange_options& options = {},
       std::uint32_t number = 100, unsigned party = 0)
      : core_(detail::exchange_core::create(
                  {.file_descriptor = socket,
                   .mine = detail::exchanged_values<Mine>::description,
                   .theirs = detail::exchanged_values<Theirs>::description,
                   .largest_mine = detail::exchanged_values<Mine>::largest,
                   .largest_theirs = detail::exchanged_values<Theirs>::largest,
                   .options = options,
                   .is_of_equals = party != 0,
                   .party = {std::byte(party)}},
                  limit)
                  .value()) {
    detail::field_writer out(core_->values());
    detail::exchanged_values<Mine>::write(out, mine);
    core_->set_mine(some_endpoint(number), out.size());
  }

  /// Advances the side by one step. \returns true once the side has succeeded or failed
  bool advance() {
    if (is_done_ || failure_) return true;
    const auto step = core_->poll();
    if (!step.has_value()) {
      failure_ = step.error();
    } else if (step.value() == detail::exchange_step::greeted) {
      core_->offer();
    } else if (step.value() == detail::exchange_step::offered) {
      detail::field_reader in(core_->theirs());
      const auto read = detail::exchanged_values<Theirs>::read(in);
      if (read.has_value()) {
        theirs_ = read.value();
        core_->set_connected();
      } else {
        failure_ = core_->refuse(read.error());
      }
    } else {
      is_done_ = step.value() == detail::exchange_step::done;
    }
    return is_done_ || failure_;
  }
  void refuse(const error& why) { failure_ = core_->refuse(why); }
  void give_up() { core_ = {}; }

  [[nodiscard]] bool is_done() const { return is_done_; }
  [[nodiscard]] const std::optional<Theirs>& theirs() const { return theirs_; }
  [[nodiscard]] std::uint32_t remote_number() const { return core_->remote().number.value(); }
  [[nodiscard]] const error& failure() const {
    REQUIRE(failure_);
    return *failure_;
  }
  [[nodiscard]] std::string message() const { return failure().message(); }
  [[nodiscard]] detail::exchange_core& core() { return *core_.get(); }

 private:
  detail::owned<detail::exchange_core> core_;
  bool is_done_ = false;
  std::optional<error> failure_;
  std::optional<Theirs> theirs_;
};

using plain_side = side<values, values>;

template <class Left, class Right>
void run(Left& left, Right& right) {
  for (int i = 0; i < 1000; ++i) {
    const bool is_left_over = left.advance();
    if (right.advance() && is_left_over) return;
  }
  FAIL("the two sides wait for each other");
}

}  // namespace verbspp::test
