// SPDX-License-Identifier: Apache-2.0
/// \file
/// A ring of ranks, started as an MPI program is, without MPI: a token goes around, then each rank
/// measures its way to each other, and rank 0 shows the matrix of all, as text and as a picture.
///
///     mpirun -n 4 17_ring [DEVICE [PICTURE.svg]]      or by VERBSPP_RANK and so on; alone, it
///                                                     makes four ranks out of threads

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
  double latency_us = 0;  ///< of one write, until it is acknowledged
  double gbit_per_s = 0;  ///< of many in flight
};

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// Passes a number to the right, again and again; each rank adds one.
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
    // Everybody has a receive posted.
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

void draw(std::ostream& out, const std::vector<way>& ways, std::uint32_t size) {
  constexpr std::uint32_t cell = 90;
  double slowest = 0;
  for (const way& each : ways) slowest = std::max(slowest, each.latency_us);
  out << R"(<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" width=")"
      << (size + 1) * cell << R"(" height=")" << (size + 1) * cell << R"(">)" << '\n';
  const auto text = [&](std::uint32_t x, std::uint32_t y, const std::string& words) {
    out << R"(<text text-anchor="middle" x=")" << x << R"(" y=")" << y << R"(">)" << words
        << "</text>\n";
  };
  out << std::fixed << std::setprecision(1);
  for (std::uint32_t i = 0; i < size; ++i) {
    text((i + 1) * cell + cell / 2, cell / 2, "to " + std::to_string(i));
    text(cell / 2, (i + 1) * cell + cell / 2, "from " + std::to_string(i));
    for (std::uint32_t j = 0; j < size; ++j) {
      const way& each = ways[i * size + j];
      const std::uint32_t x = (j + 1) * cell;
      const std::uint32_t y = (i + 1) * cell;
      // The darker, the slower.
      const int light = static_cast<int>(95 - 45 * each.latency_us / slowest);
      out << R"(<rect x=")" << x << R"(" y=")" << y << R"(" width=")" << cell << R"(" height=")"
          << cell << R"(" stroke="white" fill="hsl(210,60%,)" << light << R"~(%)"/>)~" << '\n';
      std::array<char, 32> words{};
      std::snprintf(words.data(), words.size(), "%.1f us", each.latency_us);
      text(x + cell / 2, y + cell / 2 - 6, words.data());
      std::snprintf(words.data(), words.size(), "%.1f Gbit/s", each.gbit_per_s);
      text(x + cell / 2, y + cell / 2 + 14, words.data());
    }
  }
  out << "</svg>\n";
}

group_result<void> run(any_bootstrap launched, const std::string& device,
                       const std::string& picture) {
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

  // One way at a time; the broadcast of what was measured is what the others wait for.
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
  if (all.rank() == 0) {
    std::cout << "from, to: latency of a write, and bandwidth of many\n" << std::fixed;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      std::cout << std::setw(3) << i << ':' << std::setprecision(1);
      for (std::uint32_t j = 0; j < all.size(); ++j)
        std::cout << std::setw(8) << ways[i * all.size() + j].latency_us << " us" << std::setw(6)
                  << ways[i * all.size() + j].gbit_per_s << " Gbit/s";
      std::cout << "   " << all.name(i) << '\n';
    }
    if (!picture.empty()) {
      std::ofstream file(picture);
      draw(file, ways, all.size());
    }
  }
  // Nobody goes before all are done.
  VERBSPP_TRYV(all.barrier(patience));
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "soft0";
  const std::string picture = argc > 2 ? argv[2] : "";
  return run_as_ranks(
      patience, [&](any_bootstrap launched) { return run(std::move(launched), device, picture); });
}
