// SPDX-License-Identifier: Apache-2.0
/// \file
/// The MPI version of 18_halo.cpp: computation, division and order of steps are the same. It uses
/// two-sided messages, and waits for them after it has computed the interior.
///
///     mpirun -n 4 halo_mpi [--rows N] [--columns N] [--steps N] ...

#include "heat.hpp"

#include <mpi.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

namespace {

using heat::side;

/// A part of the plate, and its neighbours.
class halo {
 public:
  halo(const heat::settings& given, const heat::division& division, int rank)
      : own_(division.part_of(static_cast<std::uint32_t>(rank))) {
    for (auto& each : cells_) {
      each.resize(heat::field::size(own_));
      heat::field(each.data(), own_).set_edges(given.columns);
    }
    for (const side beyond : heat::sides)
      if (const auto found = division.neighbour(static_cast<std::uint32_t>(rank), beyond)) {
        const bool is_column = beyond == side::left || beyond == side::right;
        neighbours_.push_back({.rank = static_cast<int>(*found),
                               .beyond = beyond,
                               .leaving = std::vector<double>(is_column ? own_.rows : 0),
                               .arriving = std::vector<double>(is_column ? own_.rows : 0)});
      }
  }

  [[nodiscard]] heat::field field(std::uint32_t step) { return {cells_[step % 2].data(), own_}; }

  /// Computes the field of the next step from the field of this one.
  void advance(std::uint32_t step, heat::stopwatch& watch) {
    const heat::field now = field(step);
    const heat::field next = field(step + 1);
    std::array<MPI_Request, 8> requests{};
    int count = 0;
    const auto exchange = [&](const neighbour& with, double* edge, double* ghosts,
                              std::size_t length) {
      MPI_Irecv(ghosts, static_cast<int>(length), MPI_DOUBLE, with.rank, 0, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(count++)]);
      MPI_Isend(edge, static_cast<int>(length), MPI_DOUBLE, with.rank, 0, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(count++)]);
    };
    for (neighbour& with : neighbours_) {
      if (with.beyond == side::above) {
        exchange(with, now.row(1) + 1, now.row(0) + 1, own_.columns);
      } else if (with.beyond == side::below) {
        exchange(with, now.row(own_.rows) + 1, now.row(own_.rows + 1) + 1, own_.columns);
      } else {
        now.pack(with.beyond == side::left ? 1 : own_.columns, with.leaving.data());
        exchange(with, with.leaving.data(), with.arriving.data(), own_.rows);
      }
    }
    watch.communicated();
    heat::advance_interior(now, next);
    watch.computed();
    MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
    for (const neighbour& from : neighbours_)
      if (!from.arriving.empty())
        now.unpack(from.arriving.data(), from.beyond == side::left ? 0 : own_.columns + 1);
    watch.communicated();
    heat::advance_edges(now, next);
    watch.computed();
  }

 private:
  struct neighbour {
    int rank;
    side beyond;
    std::vector<double> leaving;
    std::vector<double> arriving;
  };

  heat::part own_;
  std::array<std::vector<double>, 2> cells_{};
  std::vector<neighbour> neighbours_{};
};

[[nodiscard]] double reduced(double own, MPI_Op operation) {
  double all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
  return all;
}

int run(const heat::settings& given) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto ranks = static_cast<std::uint32_t>(size);
  const heat::division division(ranks, given.rows, given.columns);
  if (!division.is_possible()) {
    std::cerr
        << "the ranks' grid has more rows or columns than the plate: start fewer ranks, or give "
           "more --rows or --columns\n";
    return 1;
  }
  halo plate(given, division, rank);
  if (rank == 0) heat::tell_division(given, division);
  MPI_Barrier(MPI_COMM_WORLD);

  heat::stopwatch watch;
  for (std::uint32_t step = 0; step < given.steps; ++step) {
    plate.advance(step, watch);
    if ((step + 1) % given.steps_per_residual != 0) continue;
    const double change = heat::largest_change(plate.field(step), plate.field(step + 1));
    watch.computed();
    const double largest = reduced(change, MPI_MAX);
    watch.communicated();
    if (rank == 0) heat::tell_residual(step + 1, largest);
  }
  const double computing = reduced(watch.computing(), MPI_SUM);
  const double communicating = reduced(watch.communicating(), MPI_SUM);
  if (rank == 0) heat::tell_times(given, computing, communicating, ranks);
  if (!given.is_checked) return 0;
  const double largest =
      reduced(heat::difference_to_serial(given, division.part_of(static_cast<std::uint32_t>(rank)),
                                         plate.field(given.steps)),
              MPI_MAX);
  if (rank == 0) heat::tell_difference(largest);
  return largest > heat::tolerance ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = heat::read_arguments(argc, argv);
  if (!given) {
    std::cerr << "usage: " << argv[0] << ' ' << heat::usage;
    return 2;
  }
  MPI_Init(&argc, &argv);
  const int status = run(*given);
  MPI_Finalize();
  return status;
}
