// SPDX-License-Identifier: Apache-2.0
/// \file
/// The heat in a plate, without communication. This is the common part of 18_halo.cpp and its MPI
/// version, halo/mpi.cpp, which differ only in the way that ranks communicate.
///
/// The plate is a grid of points, whose edges are held at fixed temperatures. In each step, each
/// point moves towards the mean of its four neighbours (the heat equation, five-point stencil,
/// explicit Euler). Points are divided among ranks in two dimensions.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace heat {

using clock_type = std::chrono::steady_clock;

struct settings {
  std::string_view device = "soft0";
  std::size_t rows = 256;
  std::size_t columns = 256;
  std::uint32_t steps = 500;
  std::uint32_t steps_per_residual = 100;
  bool is_checked = true;          ///< compare with the serial solution, which every rank computes
  std::chrono::seconds limit{30};  ///< for the waits of 18_halo.cpp
};

/// Reads the settings from the command line. \returns nothing if an argument is not valid
inline std::optional<settings> read_arguments(int argc, char** argv) {
  settings given;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--no-check") {
      given.is_checked = false;
      continue;
    }
    if (i + 1 == argc) return std::nullopt;
    const char* const value = argv[++i];
    char* end = nullptr;
    const unsigned long number = std::strtoul(value, &end, 10);
    const bool is_number = *value >= '0' && *value <= '9' && *end == '\0' && number > 0;
    if (name == "--device")
      given.device = value;
    else if (name == "--rows" && is_number)
      given.rows = number;
    else if (name == "--columns" && is_number)
      given.columns = number;
    else if (name == "--steps" && is_number && number <= UINT32_MAX)
      given.steps = static_cast<std::uint32_t>(number);
    else if (name == "--residual" && is_number && number <= UINT32_MAX)
      given.steps_per_residual = static_cast<std::uint32_t>(number);
    else if (name == "--limit" && is_number && number <= 3600)
      given.limit = std::chrono::seconds(number);
    else
      return std::nullopt;
  }
  return given;
}

constexpr const char* usage =
    "[--device NAME] [--rows N] [--columns N] [--steps N] [--residual STEPS] "
    "[--limit SECONDS] [--no-check]\n";

enum class side : std::uint8_t { above, below, left, right };
constexpr std::array sides{side::above, side::below, side::left, side::right};
[[nodiscard]] constexpr side opposite(side of) {
  return of == side::above   ? side::below
         : of == side::below ? side::above
         : of == side::left  ? side::right
                             : side::left;
}

/// The points of one rank: a rectangle of the plate.
struct part {
  std::size_t first_row;
  std::size_t first_column;
  std::size_t rows;
  std::size_t columns;
};

/// Divides the points among the ranks. The ranks form a grid that is as square as their number
/// allows.
class division {
 public:
  division(std::uint32_t ranks, std::size_t rows, std::size_t columns)
      : rows_(rows), columns_(columns) {
    for (std::uint32_t down = 1; down * down <= ranks; ++down)
      if (ranks % down == 0) down_ = down;
    across_ = ranks / down_;
  }
  [[nodiscard]] std::uint32_t down() const { return down_; }
  [[nodiscard]] std::uint32_t across() const { return across_; }
  /// True if each rank has a point.
  [[nodiscard]] bool is_possible() const { return rows_ >= down_ && columns_ >= across_; }
  [[nodiscard]] part part_of(std::uint32_t rank) const {
    const std::size_t row = rank / across_;
    const std::size_t column = rank % across_;
    const std::size_t first_row = rows_ * row / down_;
    const std::size_t first_column = columns_ * column / across_;
    return {first_row, first_column, rows_ * (row + 1) / down_ - first_row,
            columns_ * (column + 1) / across_ - first_column};
  }
  /// The rank next to the given one on that side; empty at the edge of the plate.
  [[nodiscard]] std::optional<std::uint32_t> neighbour(std::uint32_t rank, side beyond) const {
    const std::uint32_t row = rank / across_;
    const std::uint32_t column = rank % across_;
    if (beyond == side::above && row > 0) return rank - across_;
    if (beyond == side::below && row + 1 < down_) return rank + across_;
    if (beyond == side::left && column > 0) return rank - 1;
    if (beyond == side::right && column + 1 < across_) return rank + 1;
    return std::nullopt;
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::uint32_t down_ = 1;
  std::uint32_t across_ = 1;
};

/// A view of a part's points, with a border of one point on each side. The border consists of ghost
/// cells, which contain the neighbours' points or the fixed edge of the plate. Row 0 and column 0
/// are in the border.
class field {
 public:
  field(double* cells, const part& of) : cells_(cells), of_(&of) {}
  [[nodiscard]] static std::size_t size(const part& of) { return (of.rows + 2) * (of.columns + 2); }
  [[nodiscard]] static std::size_t index(const part& of, std::size_t row, std::size_t column) {
    return row * (of.columns + 2) + column;
  }
  [[nodiscard]] double* row(std::size_t row) const { return cells_ + index(*of_, row, 0); }
  [[nodiscard]] std::size_t rows() const { return of_->rows; }
  [[nodiscard]] std::size_t columns() const { return of_->columns; }

  /// Sets the fixed edge above the plate: warm, and warmest in the middle. The other edges, and
  /// initially the interior, are cold, because the memory is filled with zeros.
  void set_edges(std::size_t columns_of_plate) const {
    if (of_->first_row != 0) return;
    for (std::size_t column = 1; column <= columns(); ++column)
      row(0)[column] = std::sin(std::numbers::pi * static_cast<double>(of_->first_column + column) /
                                static_cast<double>(columns_of_plate + 1));
  }
  /// Copies a column of the part, or of the border, to or from contiguous memory.
  void pack(std::size_t column, double* into) const {
    for (std::size_t i = 1; i <= rows(); ++i) into[i - 1] = row(i)[column];
  }
  void unpack(const double* from, std::size_t column) const {
    for (std::size_t i = 1; i <= rows(); ++i) row(i)[column] = from[i - 1];
  }

 private:
  double* cells_;
  const part* of_;
};

/// Performs one step for the rows from `first_row` up to, but not including, `last_row`, and for
/// the columns in the same way.
inline void advance(const field& from, const field& to, std::size_t first_row, std::size_t last_row,
                    std::size_t first_column, std::size_t last_column) {
  for (std::size_t i = first_row; i < last_row; ++i) {
    const double* const above = from.row(i - 1);
    const double* const here = from.row(i);
    const double* const below = from.row(i + 1);
    double* const next = to.row(i);
    for (std::size_t j = first_column; j < last_column; ++j)
      next[j] = here[j] + 0.2 * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j]);
  }
}
/// Performs one step for the points that don't depend on the border.
inline void advance_interior(const field& from, const field& to) {
  advance(from, to, 2, from.rows(), 2, from.columns());
}
/// Performs one step for the points that depend on the border.
inline void advance_edges(const field& from, const field& to) {
  const std::size_t rows = from.rows();
  const std::size_t columns = from.columns();
  advance(from, to, 1, 2, 1, columns + 1);
  if (rows > 1) advance(from, to, rows, rows + 1, 1, columns + 1);
  advance(from, to, 2, rows, 1, 2);
  if (columns > 1) advance(from, to, 2, rows, columns, columns + 1);
}

inline double largest_change(const field& from, const field& to) {
  double largest = 0;
  for (std::size_t i = 1; i <= from.rows(); ++i)
    for (std::size_t j = 1; j <= from.columns(); ++j)
      largest = std::max(largest, std::abs(to.row(i)[j] - from.row(i)[j]));
  return largest;
}

/// The largest difference between a part and the serial solution for the whole plate.
inline double difference_to_serial(const settings& given, const part& of, const field& found) {
  const part plate{0, 0, given.rows, given.columns};
  std::array<std::vector<double>, 2> cells;
  for (auto& each : cells) {
    each.resize(field::size(plate));
    field(each.data(), plate).set_edges(given.columns);
  }
  for (std::uint32_t step = 0; step < given.steps; ++step)
    advance(field(cells[step % 2].data(), plate), field(cells[(step + 1) % 2].data(), plate), 1,
            plate.rows + 1, 1, plate.columns + 1);
  const field solution(cells[given.steps % 2].data(), plate);
  double largest = 0;
  for (std::size_t i = 1; i <= of.rows; ++i)
    for (std::size_t j = 1; j <= of.columns; ++j)
      largest = std::max(
          largest, std::abs(found.row(i)[j] - solution.row(of.first_row + i)[of.first_column + j]));
  return largest;
}
/// All ranks compute points with the same operations, but the compiler may fuse some of them into
/// multiply-adds, so results may differ by rounding.
constexpr double tolerance = 1e-12;

/// Measures the time that a rank spends on computation and on communication.
class stopwatch {
 public:
  /// Counts the time since the last call as computation, or as communication.
  void computed() { computing_ += lap(); }
  void communicated() { communicating_ += lap(); }
  [[nodiscard]] double computing() const { return computing_; }
  [[nodiscard]] double communicating() const { return communicating_; }

 private:
  double lap() {
    const auto now = clock_type::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }
  clock_type::time_point last_ = clock_type::now();
  double computing_ = 0;
  double communicating_ = 0;
};

inline void tell_division(const settings& given, const division& ranks) {
  std::cout << "points: " << given.rows << " x " << given.columns << ", steps: " << given.steps
            << ", ranks: " << ranks.down() * ranks.across() << " (" << ranks.down() << " x "
            << ranks.across() << ')' << std::endl;
}
inline void tell_residual(std::uint32_t steps, double largest) {
  std::cout << "in step " << steps << " the largest change is " << largest << std::endl;
}
inline void tell_difference(double largest) {
  std::cout << "largest difference from the serial solution: " << largest << '\n';
}
/// Prints the times, given the sums over all ranks.
inline void tell_times(const settings& given, double computing, double communicating,
                       std::uint32_t ranks) {
  const double all = computing + communicating;
  std::cout << "time per step: " << all / ranks / given.steps * 1e6
            << " us, of which communication " << communicating / all * 100 << " %\n";
}

}  // namespace heat
