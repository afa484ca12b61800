// SPDX-License-Identifier: Apache-2.0
/// \file
/// Heat in a plate that is divided among ranks in two dimensions, with a halo exchange by RDMA. In
/// each step, a rank writes the edges of its part into the memory of its neighbours, for their
/// ghost cells, and computes its interior in the meantime.
///
///     mpirun -n 4 18_halo [--rows N] [--columns N] [--steps N] ...
///
/// The ranks can also be started without mpirun, with the variables VERBSPP_RANK and so on. If the
/// program is started alone, it runs four ranks as threads. halo/mpi.cpp is the same program with
/// MPI, and halo/compare.py runs both.

#include "common/ranks.hpp"
#include "halo/heat.hpp"
#include <verbspp/ranks.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;
using heat::side;

constexpr access_flags rights = access::local_write | access::remote_write;
using cells = registered_buffer<rights, double>;
using cells_of_peer = cells::handle_for_peers;

/// The layout of a rank's memory; offsets count doubles. It begins with two fields, the one before
/// a step and the one after it, which swap roles at each step. They are followed by contiguous
/// copies of the left and right edge columns: the received columns of two steps, and the columns to
/// send. The copies are necessary because an RDMA write fills contiguous memory, and gathers only a
/// few pieces.
class layout {
 public:
  explicit layout(const heat::part& of) : of_(of), field_(heat::field::size(of)) {}
  [[nodiscard]] std::size_t field(std::uint32_t step) const { return step % 2 * field_; }
  [[nodiscard]] std::size_t row(std::uint32_t step, std::size_t row) const {
    return field(step) + heat::field::index(of_, row, 1);
  }
  /// The offset of the received column of a side, which is left or right.
  [[nodiscard]] std::size_t arriving(std::uint32_t step, side from) const {
    return 2 * field_ + (step % 2 * 2 + (from == side::right ? 1 : 0)) * of_.rows;
  }
  [[nodiscard]] std::size_t leaving(side to) const {
    return 2 * field_ + (to == side::right ? 5 : 4) * of_.rows;
  }
  [[nodiscard]] std::size_t size() const { return 2 * field_ + 6 * of_.rows; }

 private:
  heat::part of_;
  std::size_t field_;
};

/// A part of the plate, its neighbours, and the receives for their edges.
///
/// Two fields are sufficient to protect the neighbours' ghost cells. A rank writes the edges of
/// step n + 2 only after it has received all edges of step n + 1. Its neighbours send these after
/// they have read the edges of step n.
class halo {
 public:
  static group_result<halo> create(world& all, const protection_domain& domain,
                                   const heat::settings& given, const heat::division& division) {
    const heat::part own = division.part_of(all.rank());
    VERBSPP_TRY(memory, cells::allocate(domain, layout(own).size()));
    VERBSPP_TRY(mine, memory.remote());
    VERBSPP_TRY(theirs, all.exchange(mine, given.limit));
    halo made(all, std::move(memory), own, given);
    for (const side beyond : heat::sides)
      if (const auto rank = division.neighbour(all.rank(), beyond)) {
        made.neighbours_.push_back({.rank = *rank,
                                    .beyond = beyond,
                                    .memory = theirs[*rank],
                                    .part = division.part_of(*rank)});
        for (std::uint32_t step = 0; step < receives; ++step)
          VERBSPP_TRYV(made.expect(made.neighbours_.back(), step));
      }
    for (std::uint32_t step = 0; step < 2; ++step) made.field(step).set_edges(given.columns);
    // No rank writes before all ranks are ready.
    VERBSPP_TRYV(all.barrier(given.limit));
    return made;
  }

  [[nodiscard]] heat::field field(std::uint32_t step) {
    return {memory_.data() + places_.field(step), own_};
  }

  /// Computes the field of the next step from the field of this one.
  group_result<void> advance(std::uint32_t step, heat::stopwatch& watch) {
    const heat::field now = field(step);
    const heat::field next = field(step + 1);
    // When the scope returns, the device has finished reading the memory of all writes in it.
    VERBSPP_TRYV(world_->peers().scope(
        [&](group_scope& scope) -> result<void> {
          for (const neighbour& to : neighbours_)
            VERBSPP_TRYV(write_edge(scope[to.rank], to, step));
          watch.communicated();
          heat::advance_interior(now, next);
          watch.computed();
          return success();
        },
        limit_));
    for (neighbour& from : neighbours_) {
      VERBSPP_TRYV(await_edge(from, step));
      if (from.beyond == side::left || from.beyond == side::right)
        now.unpack(memory_.data() + places_.arriving(step, from.beyond),
                   from.beyond == side::left ? 0 : own_.columns + 1);
    }
    watch.communicated();
    heat::advance_edges(now, next);
    watch.computed();
    return success();
  }

  /// Tries to determine the rank that failed first, and notifies the neighbours. A rank that
  /// notices a failure exits, and then appears to have failed itself. So a notification from a
  /// neighbour is more reliable than the failure that this rank has seen.
  group_error explain(group_error found) {
    if (!found.peer())
      for (const neighbour& each : neighbours_)
        if (const auto failure = world_->peers()[each.rank].failure())
          found = group_error(each.rank, failure->root(), 1);
    if (!found.peer()) return found;
    const bool is_neighbour =
        std::ranges::find(neighbours_, *found.peer(), &neighbour::rank) != neighbours_.end();
    // A neighbour sends its notification before it exits, so if it has sent one, the notification
    // has already arrived. A notification from any other rank is passed on by ranks in between,
    // which takes longer.
    const wait_limit patience(is_neighbour ? 0s : limit_);
    do {
      for (neighbour& from : neighbours_)
        for (pending<>& edge : from.arriving)
          if (const auto arrived = edge.poll(); arrived && arrived->has_value())
            note_lost(arrived->value());
    } while (!lost_ && !patience.has_passed());
    if (lost_) found = was_lost();
    for (const neighbour& to : neighbours_)
      if (to.rank != *found.peer())
        // A neighbour that cannot be notified is probably leaving, too.
        static_cast<void>(world_->peers()[to.rank].send(
            {.immediate = immediate_data(lost_flag | *found.peer())}, 1s));
    return found;
  }

 private:
  /// The number of receives for each neighbour, which is at most one step ahead, and may send a
  /// notification before it exits.
  static constexpr std::uint32_t receives = 3;
  /// The time without arrivals after which a neighbour is checked.
  static constexpr auto question_after = 500ms;
  /// A flag in immediate data, which otherwise contains a step.
  static constexpr std::uint32_t lost_flag = 1U << 31;

  struct neighbour {
    std::uint32_t rank;
    side beyond;
    cells_of_peer memory;
    heat::part part;
    std::array<pending<>, receives> arriving{};
  };

  halo(world& all, cells memory, const heat::part& own, const heat::settings& given)
      : world_(&all), memory_(std::move(memory)), own_(own), places_(own), limit_(given.limit) {}

  /// Writes the edge of this step to the neighbour: a row directly into the neighbour's ghost
  /// cells, a column to the place from which the neighbour unpacks it.
  result<void> write_edge(channel_scope& to, const neighbour& whose, std::uint32_t step) {
    const side beyond = whose.beyond;
    const layout theirs(whose.part);
    std::size_t from = 0;
    std::size_t into = 0;
    std::size_t count = 0;
    if (beyond == side::above || beyond == side::below) {
      from = places_.row(step, beyond == side::above ? 1 : own_.rows);
      into = theirs.row(step, beyond == side::above ? whose.part.rows + 1 : 0);
      count = own_.columns;
    } else {
      from = places_.leaving(beyond);
      into = theirs.arriving(step, heat::opposite(beyond));
      count = own_.rows;
      field(step).pack(beyond == side::left ? 1 : own_.columns, memory_.data() + from);
    }
    VERBSPP_TRY(edge, memory_.gather(from, count));
    VERBSPP_TRY(ghosts, whose.memory.slice(into * sizeof(double), count * sizeof(double)));
    VERBSPP_TRYV(
        to.post_write({.elements = edge, .remote = ghosts, .immediate = immediate_data(step)}));
    return success();
  }

  /// Posts a receive for the immediate data of an edge. When it completes, the edge is in place.
  group_result<void> expect(neighbour& from, std::uint32_t step) {
    auto posted = world_->peers()[from.rank].post_receive({});
    if (!posted.has_value()) return group_error(from.rank, posted.error(), 1);
    from.arriving[step % receives] = std::move(posted).value();
    return success();
  }

  group_result<void> await_edge(neighbour& from, std::uint32_t step) {
    pending<>& edge = from.arriving[step % receives];
    auto arrived = edge.poll();
    // The loop waits up to three times the limit: a neighbour may itself be waiting in a collective
    // step, and needs time to find out which rank has failed.
    for (const wait_limit until(3 * limit_); !arrived; arrived = edge.poll()) {
      // A wait on the group breaks nothing when its limit is reached; a wait on the handle would
      // break the channel.
      std::array<arrival, 4> news{};
      const auto any = world_->peers().wait(news, question_after);
      if (any.has_value()) continue;
      if (any.error() != error_kind::timed_out || until.has_passed())
        return group_error(from.rank, any.error(), 1);
      // A rank that only waits does not notice that its peer has failed, so this rank writes 0
      // bytes to the peer to check it.
      const auto answered = world_->peers()[from.rank].write({.remote = from.memory}, limit_);
      if (!answered.has_value()) return group_error(from.rank, answered.error(), 1);
    }
    if (!arrived->has_value()) return group_error(from.rank, arrived->error(), 1);
    note_lost(arrived->value());
    if (lost_) return was_lost();
    return expect(from, step + receives);
  }

  void note_lost(const completed_work& arrived) {
    const std::uint32_t word = arrived.immediate().value_or(immediate_data(0)).value();
    if ((word & lost_flag) != 0) lost_ = word & ~lost_flag;
  }
  [[nodiscard]] group_error was_lost() const {
    return {*lost_,
            error(error_kind::not_connected, "halo exchange",
                  "its neighbours have lost the connection to it"),
            1};
  }

  world* world_;
  cells memory_;
  heat::part own_;
  layout places_;
  std::chrono::seconds limit_;
  std::vector<neighbour> neighbours_{};
  std::optional<std::uint32_t> lost_{};  ///< the rank that a neighbour has reported as failed
};

double larger(double left, double right) { return std::max(left, right); }

group_result<void> run(any_bootstrap launched, const heat::settings& given) {
  VERBSPP_TRY(context, open_device(given.device));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(all, world::join(std::move(launched),
                               domain.build_channel().waiting(wait_mode::spin_then_sleep(100us)),
                               given.limit));
  const heat::division division(all.size(), given.rows, given.columns);
  if (!division.is_possible())
    return error(
        error_kind::invalid_input, "divide the plate",
        "the ranks' grid has more rows or columns than the plate: start fewer ranks, or give more "
        "--rows or --columns");
  VERBSPP_TRY(plate, halo::create(all, domain, given, division));
  if (all.rank() == 0) heat::tell_division(given, division);

  heat::stopwatch watch;
  for (std::uint32_t step = 0; step < given.steps; ++step) {
    const auto advanced = plate.advance(step, watch);
    if (!advanced.has_value()) return plate.explain(advanced.error());
    if ((step + 1) % given.steps_per_residual != 0) continue;
    const double change = heat::largest_change(plate.field(step), plate.field(step + 1));
    watch.computed();
    const auto largest = all.all_reduce(change, larger, given.limit);
    if (!largest.has_value()) return plate.explain(largest.error());
    watch.communicated();
    if (all.rank() == 0) heat::tell_residual(step + 1, largest.value());
  }
  VERBSPP_TRY(computing, all.all_reduce(watch.computing(), std::plus<>(), given.limit));
  VERBSPP_TRY(communicating, all.all_reduce(watch.communicating(), std::plus<>(), given.limit));
  if (all.rank() == 0) heat::tell_times(given, computing, communicating, all.size());
  if (given.is_checked) {
    const double own =
        heat::difference_to_serial(given, division.part_of(all.rank()), plate.field(given.steps));
    VERBSPP_TRY(largest, all.all_reduce(own, larger, given.limit));
    if (all.rank() == 0) heat::tell_difference(largest);
    if (largest > heat::tolerance)
      return error(error_kind::mismatch, "check the plate", "it differs from the serial solution");
  }
  // No rank leaves before all have finished.
  VERBSPP_TRYV(all.barrier(given.limit));
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = heat::read_arguments(argc, argv);
  if (!given) {
    std::cerr << "usage: " << argv[0] << ' ' << heat::usage;
    return 2;
  }
  return run_as_ranks(given->limit,
                      [&](any_bootstrap launched) { return run(std::move(launched), *given); });
}
