// SPDX-License-Identifier: Apache-2.0
/// \file
/// One end of the soak: a channel, its memory, and a model of both ends.
#pragma once

#include "board.hpp"
#include "outcome.hpp"
#include "patterns.hpp"
#include "punctuality.hpp"
#include "soak.hpp"
#include <verbspp/channel.hpp>
#include <verbspp/verbspp.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace verbspp::soak {

inline constexpr access_flags exposed_rights =
    access::local_write | access::remote_read | access::remote_write | access::remote_atomic;
using private_memory = registered_buffer<access::local_write>;
using private_part = buffer_part<private_memory>;
using shared_memory = shared_buffer<access::local_write>;
inline constexpr access_flags leased_rights = access::remote_read | access::remote_write;
using leased_memory = registered_buffer<access::local_write | access::window_bind>;
using shared_leased_memory = shared_buffer<access::local_write | access::window_bind>;
using directly_leased_memory =
    registered_buffer<access::local_write | access::remote_read | access::remote_write>;
using exposed_memory = registered_buffer<exposed_rights>;
using peer_memory =
    remote_memory<access::remote_read | access::remote_write | access::remote_atomic>;

/// The kinds of requests.
enum class kind : std::uint8_t { send, write, write_immediate, read, add, swap };

/// A request, and its expected result.
struct work {
  kind what = kind::send;
  int slot = -1;  ///< the slot in the arena; -1 if the memory is inline, owned or shared
  place where{};
  std::array<range, 3> ranges{};
  std::size_t parts = 0;
  bool is_inline = false;
  bool is_fenced = false;
  std::uint64_t content = 0;  ///< the tag of its bytes
  std::size_t skipped = 0;    ///< the offset within these bytes
  std::size_t size = 0;
  unsigned block = 0;        ///< the block of the peer's memory
  std::uint64_t number = 0;  ///< the number of the message, or the operand of an atomic
  std::optional<std::uint32_t> immediate{};
  std::uint64_t expected = 0;  ///< the value that an atomic finds
  std::uint64_t before = 0;    ///< the state of the model before it was posted
  std::uint64_t busy_before = 0;

  [[nodiscard]] std::span<const range> elements() const { return {ranges.data(), parts}; }
};

/// A request with a handle.
struct held {
  work job;
  std::variant<pending<>, pending<private_memory>, pending<private_part>, kept_pending> handle;
  std::optional<shared_memory> shared{};
};

/// A request with shared memory, whose handle was dropped.
struct left_alone {
  work job;
  shared_memory memory;
};

/// A posted receive.
struct awaited {
  int slot = -1;
  place where{};
  std::array<range, 3> ranges{};
  std::size_t parts = 0;
  std::variant<std::monostate, pending<>, pending<private_memory>, kept_pending> handle{};
  std::optional<shared_memory> shared{};
};

/// Memory that was leased, and belongs to the program again.
struct unleased {
  std::variant<leased_memory, shared_leased_memory> memory;
  place where;
};

/// A lease granted to the peer, of memory that it owns, shares or borrows.
struct granted {
  std::variant<lease<leased_rights, leased_memory>, lease<leased_rights>> right;
  /// Empty if the lease owns the memory, or uses the memory's own key.
  std::optional<std::variant<leased_memory, shared_leased_memory>> memory{};
  place where{};
  std::uint64_t number = 0;
  bool is_closing = false;  ///< the peer was asked to stop using it

  [[nodiscard]] bool is_open() const {
    return std::visit([](const auto& each) { return each.is_open(); }, right);
  }
  [[nodiscard]] lease_by by() const {
    return std::visit([](const auto& each) { return each.by(); }, right);
  }
};

/// Stops a wait when the other end has given up.
struct peer_token {
  const board_end* other;
  std::uint64_t connection;
  [[nodiscard]] bool stop_requested() const noexcept {
    return other->ended.load() >= connection || other->broken.load() >= connection;
  }
};

class end {
 public:
  /// `kill_peer` ends the other process, `revive_peer` restarts it; both are empty if it is a
  /// thread.
  end(const options& wanted, board& shared, unsigned which, std::function<void()> kill_peer,
      std::function<void()> revive_peer);
  end(const end&) = delete;
  end& operator=(const end&) = delete;

  /// Runs until both ends want to stop. Throws a description of any failure.
  void run(std::uint64_t first_connection);

  [[nodiscard]] const std::map<std::string, std::uint64_t>& counts() const { return counts_; }
  /// The first failure of each kind, one in each line.
  [[nodiscard]] const std::string& first_failures() const { return first_failures_; }
  [[nodiscard]] const punctuality& limits() const { return limits_; }

 private:
  static constexpr unsigned blocks = 8;
  static constexpr std::uint64_t credits = 24;

  // Random choices.
  [[nodiscard]] std::uint64_t any(std::uint64_t below) { return random_() % below; }
  [[nodiscard]] bool once_in(std::uint64_t times) { return any(times) == 0; }

  // Steps of both ends.
  void reach(step what);
  void await(step what);
  void check_failed() const;
  [[nodiscard]] std::string of_other() const;  ///< a description of its progress
  [[nodiscard]] bool peer_has_given_up() const;
  /// The other end may itself wait for `patience`, and Linux's driver takes 50 seconds to destroy a
  /// queue pair with a bound window.
  [[nodiscard]] clock::duration patience_with_other() const { return 3 * wanted_.patience; }
  void will_end(const char* how);

  // The life of a connection.
  void prepare();
  void connect();
  void traffic();
  void take_leave();
  void finish();
  void judge(bool was_orderly);
  [[nodiscard]] prepared_channel build();
  template <class Builder>
  [[nodiscard]] result<prepared_channel> build(const Builder& start);
  void take_memory_back();

  // Requests.
  [[nodiscard]] bool choose(work& job, bool may_be_inline);
  void split(work& job, std::size_t size);
  void undo(work& job);
  void settle(work& job, bool has_succeeded);
  void settle_all(std::vector<work>& jobs, bool have_succeeded);
  void check(const work& job) const;
  void count_posted(const work& job);
  template <class Use>
  auto with_operation(const work& job, Use use);
  void note_failure(const error& cause, const char* where);
  /// Reports a request that did not finish within the longest wait: a failure, except once on rxe.
  void note_standstill();
  void must_be_broken(const char* where) const;
  void check_refused(const error& cause, const char* where) const;

  void step_at_random();
  void block();
  void post_one();
  void post_owned();
  void post_shared();
  void use_scope(unsigned depth);
  void use_stream();
  void use_passed_limit();
  void misuse();
  void give_up_at_random();

  // Leases.
  void grant_lease();
  template <lease_by By>
  void grant_lease(leased_memory memory, place where);
  void grant_lease_by_connection();
  void announce_lease(granted given);
  void look_after_lease();
  void end_lease();
  void use_lease();
  void give_back_lease(std::uint64_t number);

  [[nodiscard]] wait_limit patient_limit();
  bool take_finished(held& one, const transport_result<completed_work>& result);
  /// \returns true if it has finished
  bool take(held& one, bool waits);
  void take_some();
  void take_late(bool all);
  void drop(held& one);
  void look_after_shared();

  void post_receives();
  void post_receives(prepared_channel& to, std::uint64_t count);
  template <class Poster>
  void post_one_receive(Poster& to);
  void take_receives();
  void take_receive(awaited& one, const transport_result<completed_work>& result);
  void arrived(const awaited& one, const completed_work& done);
  void drop_receives(bool asks);

  // Memory.
  [[nodiscard]] int take_slot();
  void give_slot(int index);
  [[nodiscard]] private_memory take_owned(place& where);
  void give_owned(private_memory memory, place where);
  void claim(bool holds, const std::string& what) const;

  const options& wanted_;
  board& board_;
  board_end& mine_;
  board_end& other_;
  public_words& doing_;
  const unsigned which_;
  /// True for Linux's software driver. It retransmits a fenced read or atomic (after a lost packet,
  /// or for a receiver that was not ready) only when all earlier reads and atomics are done, but
  /// counts the first attempt among them. It then waits for itself, so none are fenced. In rare
  /// cases, it does not retransmit another request.
  const bool is_rxe_;
  std::function<void()> kill_peer_;
  std::function<void()> revive_peer_;
  std::mt19937_64 random_;
  std::map<std::string, std::uint64_t> counts_{};
  std::uint64_t until_end_ = 0;  ///< the number of steps until the end
  punctuality limits_;

  verbspp::context context_;
  protection_domain domain_;
  private_memory arena_;
  std::vector<place> slots_{};
  std::vector<int> free_{};
  exposed_memory exposed_;
  std::array<place, blocks> mine_blocks_{};
  std::array<place, blocks + 1> gaps_{};
  struct owned {
    private_memory memory;
    place where;
  };
  std::vector<owned> owned_{};

  std::deque<unleased> unleased_{};
  std::optional<granted> granted_{};
  std::optional<directly_leased_memory> direct_{};  ///< for leases by connection
  place direct_where_{};
  std::uint64_t leases_ = 0;
  bool has_windows_ = true;

  channel channel_{};
  std::uint64_t connection_ = 0;
  bool wants_uc_ = false;  ///< both ends use UC in this connection
  bool has_uc_ = false;    ///< the channel uses UC
  bool peer_was_killed_ = false;
  std::optional<peer_memory> far_{};
  std::deque<awaited> receives_{};
  std::vector<held> held_{};
  std::vector<held> late_{};  ///< handles of connections that have ended
  std::vector<left_alone> left_alone_{};
  std::string why_{};
  std::string first_failures_{};

  // The contents of the peer's memory when all posted requests are done.
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::array<std::uint64_t, blocks> content_{};
  std::array<std::uint64_t, blocks> busy_{};  ///< until the peer has taken this many messages
  std::array<unsigned, blocks> readers_{};
  std::uint64_t sum_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t swapped_ = 0;
};

}  // namespace verbspp::soak
