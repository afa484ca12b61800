// SPDX-License-Identifier: Apache-2.0
/// \file
/// A ring of ranks, started like an MPI program, but without MPI. A token goes around; then each
/// rank measures its connection to each rank, itself included, and rank 0 prints the results as
/// matrices and, on request, draws them as a picture.
///
///     mpirun -n 4 17_ring [DEVICE [PICTURE.svg]]
///
/// The ranks can also be started without mpirun, with the variables VERBSPP_RANK and so on. If the
/// program is started alone, it runs four ranks as threads.

#include "common/ranks.hpp"
#include <verbspp/ranks.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr auto patience = 60s;
constexpr std::uint32_t rounds = 100;
constexpr std::uint32_t writes = 100;
constexpr std::size_t block = 65536;
constexpr access_flags rights = access::local_write | access::remote_write;

struct way {
  double latency_us = 0;  ///< the mean duration of a write, until it is acknowledged
  double gbit_per_s = 0;  ///< the bandwidth, with many writes in flight
};

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// Passes a number around the ring repeatedly; each rank adds one.
group_result<void> pass_token(world& all, registered_buffer<rights, std::uint64_t>& token) {
  channel& left = all.peers()[(all.rank() + all.size() - 1) % all.size()];
  channel& right = all.peers()[(all.rank() + 1) % all.size()];
  const auto pass = [&]() -> transport_result<void> {
    VERBSPP_TRY(out, token.gather());
    VERBSPP_TRYV(right.send({.elements = out}, patience));
    return success();
  };
  VERBSPP_TRY(into, token.scatter());
  for (std::uint32_t round = 0; round < rounds; ++round) {
    VERBSPP_TRY(arriving, left.post_receive({.elements = into}));
    // After this barrier, all ranks have a receive posted.
    VERBSPP_TRYV(all.barrier(patience));
    if (all.rank() == 0) VERBSPP_TRYV(pass());
    VERBSPP_TRYV(arriving.wait(patience));
    token[0] += 1;
    if (all.rank() != 0) VERBSPP_TRYV(pass());
  }
  if (all.rank() == 0)
    std::cout << "the token went around " << rounds << " times and was counted up to " << token[0]
              << '\n';
  return success();
}

transport_result<way> measure(channel& to, const registered_buffer<rights>& from,
                              const remote_memory<access::remote_write>& memory) {
  way found;
  VERBSPP_TRY(small, from.gather(0, 8));
  auto start = clock_type::now();
  for (std::uint32_t i = 0; i < writes; ++i)
    VERBSPP_TRYV(to.write({.elements = small, .remote = memory}, patience));
  found.latency_us = seconds_since(start) / writes * 1e6;
  VERBSPP_TRY(large, from.gather());
  start = clock_type::now();
  VERBSPP_TRYV(to.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::uint32_t i = 0; i < writes; ++i)
          VERBSPP_TRYV(stream.post_write({.elements = large, .remote = memory}));
        return success();
      },
      {}, patience));
  found.gbit_per_s = static_cast<double>(block) * writes * 8 / seconds_since(start) / 1e9;
  return found;
}

/// A measured number that is shown for each pair of ranks.
struct matrix {
  const char* title;
  const char* unit;
  double way::* number;
  bool is_better_if_large;
};
constexpr std::array matrices{
    matrix{"latency of a write of 8 bytes, until it is acknowledged", "us", &way::latency_us,
           false},
    matrix{"bandwidth of a stream of 100 writes of 64 KiB", "Gbit/s", &way::gbit_per_s, true},
};

void print(const matrix& shown, const std::vector<way>& ways, const world& all) {
  const std::uint32_t size = all.size();
  std::cout << shown.title << ", " << shown.unit << "\n from\\to";
  for (std::uint32_t to = 0; to < size; ++to) std::cout << std::setw(8) << to;
  std::cout << '\n' << std::fixed << std::setprecision(1);
  for (std::uint32_t from = 0; from < size; ++from) {
    std::cout << std::setw(8) << from;
    for (std::uint32_t to = 0; to < size; ++to)
      std::cout << std::setw(8) << ways[from * size + to].*shown.number;
    std::cout << "   " << all.name(from) << '\n';
  }
}

/// A picture of the matrices, side by side, in which paler cells are better.
class picture {
 public:
  picture(std::ostream& out, std::uint32_t size) : out_(out), size_(size) {
    out_ << R"(<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" )"
         << R"(text-anchor="middle" width=")" << width() * matrices.size() << R"(" height=")"
         << top + size_ * cell + below << R"(">)" << '\n'
         << R"(<rect width="100%" height="100%" fill="white"/>)" << '\n'
         << std::fixed << std::setprecision(1);
  }
  picture(const picture&) = delete;
  picture& operator=(const picture&) = delete;
  ~picture() { out_ << "</svg>\n"; }

  void draw(const matrix& shown, const std::vector<way>& ways) {
    const auto less = [&](const way& one, const way& other) {
      return one.*shown.number < other.*shown.number;
    };
    const auto [least, most] = std::ranges::minmax(ways, less);
    const double low = least.*shown.number;
    const double high = most.*shown.number;
    text(width() / 2, 20, shown.title);
    text(left + size_ * cell / 2, 44, "to rank");
    text(24, top + size_ * cell / 2, "from");
    for (std::uint32_t from = 0; from < size_; ++from) {
      text(left + from * cell + cell / 2, top - 8, std::to_string(from));
      text(left - 14, top + from * cell + cell / 2 + 4, std::to_string(from));
      for (std::uint32_t to = 0; to < size_; ++to) {
        const double number = ways[from * size_ + to].*shown.number;
        box(left + to * cell, top + from * cell, cell, badness(shown, number, low, high));
        text(left + to * cell + cell / 2, top + from * cell + cell / 2 + 4, number);
      }
    }
    // The scale: the meaning of the colours.
    const std::uint32_t y = top + size_ * cell + 20;
    for (std::uint32_t i = 0; i < steps; ++i)
      box(left + i * step, y, step,
          badness(shown, low + (high - low) * i / (steps - 1), low, high));
    text(left, y + 32, low);
    text(left + steps * step, y + 32, high);
    text(left + steps * step / 2, y + 32, shown.unit);
    at_ += width();
  }

 private:
  static constexpr std::uint32_t cell = 64;
  static constexpr std::uint32_t left = 70;
  static constexpr std::uint32_t top = 72;
  static constexpr std::uint32_t below = 70;
  static constexpr std::uint32_t steps = 16;
  static constexpr std::uint32_t step = 16;

  [[nodiscard]] std::uint32_t width() const { return std::max(left + size_ * cell + 30, 400U); }
  /// Maps a number to the range from 0, the best, to 1, the worst.
  static double badness(const matrix& shown, double number, double low, double high) {
    const double part = high > low ? (number - low) / (high - low) : 0;
    return shown.is_better_if_large ? 1 - part : part;
  }
  void box(std::uint32_t x, std::uint32_t y, std::uint32_t side, double bad) {
    out_ << R"(<rect x=")" << at_ + x << R"(" y=")" << y << R"(" width=")" << side
         << R"(" height=")" << std::min(side, cell) << R"(" fill="rgb()"
         << 240 - static_cast<int>(140 * bad) << ',' << 246 - static_cast<int>(90 * bad) << ','
         << 252 - static_cast<int>(30 * bad) << R"~()"/>)~" << '\n';
  }
  template <class Words>
  void text(std::uint32_t x, std::uint32_t y, const Words& words) {
    out_ << R"(<text x=")" << at_ + x << R"(" y=")" << y << R"(">)" << words << "</text>\n";
  }

  std::ostream& out_;
  std::uint32_t size_;
  std::uint32_t at_ = 0;
};

group_result<void> run(any_bootstrap launched, const std::string& device,
                       const std::string& picture_name) {
  VERBSPP_TRY(context, open_device(device));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(all, world::join(std::move(launched),
                               domain.build_channel().max_send_work_requests(64), patience));
  VERBSPP_TRY(token, (registered_buffer<rights, std::uint64_t>::allocate(domain, 1)));
  VERBSPP_TRYV(pass_token(all, token));

  VERBSPP_TRY(from, registered_buffer<rights>::allocate(domain, block));
  VERBSPP_TRY(into, registered_buffer<rights>::allocate(domain, block));
  VERBSPP_TRY(mine, into.remote());
  VERBSPP_TRY(memory, all.exchange(mine, patience));

  // Only one rank measures at a time, while the others wait for the broadcast of its result.
  std::vector<way> ways;
  for (std::uint32_t i = 0; i < all.size(); ++i)
    for (std::uint32_t j = 0; j < all.size(); ++j) {
      way measured;
      if (all.rank() == i) {
        VERBSPP_TRY(found, measure(all.peers()[j], from, memory[j]));
        measured = found;
      }
      VERBSPP_TRY(told, all.broadcast(measured, i, patience));
      ways.push_back(told);
    }
  // No rank leaves before all have finished.
  VERBSPP_TRYV(all.barrier(patience));
  if (all.rank() != 0) return success();
  for (const matrix& each : matrices) print(each, ways, all);
  if (picture_name.empty()) return success();
  std::ofstream file(picture_name);
  {
    picture drawn(file, all.size());
    for (const matrix& each : matrices) drawn.draw(each, ways);
  }
  if (!file.flush())
    return error(error_kind::driver, "write the picture", "the file can't be written");
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "soft0";
  const std::string picture = argc > 2 ? argv[2] : "";
  return run_as_ranks(
      patience, [&](any_bootstrap launched) { return run(std::move(launched), device, picture); });
}
