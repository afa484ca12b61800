// SPDX-License-Identifier: Apache-2.0
#include <verbspp/calls/duration_histogram.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

namespace verbspp {

std::uint64_t duration_histogram::count() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

std::chrono::nanoseconds duration_histogram::quantile(double share) const noexcept {
  const std::uint64_t all = count();
  if (all == 0) return {};
  const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(all);
  // `missing` is at least 1, so that quantile 0 belongs to the shortest duration.
  std::uint64_t missing = std::max<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(wanted)), 1);
  std::size_t range = 0;
  while (range < ranges - 1 && counts_[range] < missing) missing -= counts_[range++];
  return end_of(range);
}

void duration_histogram::add(const duration_histogram& other) noexcept {
  for (std::size_t i = 0; i < ranges; ++i) counts_[i] += other.counts_[i];
}

std::ostream& operator<<(std::ostream& out, const duration_histogram& durations) {
  if (durations.count() == 0) return out << "durations: 0";
  const auto in_microseconds = [&](double share) {
    return static_cast<double>(durations.quantile(share).count()) / 1000;
  };
  out << "durations: " << durations.count() << ", in us: 50% below " << in_microseconds(0.5)
      << ", 90% below " << in_microseconds(0.9) << ", 99% below " << in_microseconds(0.99)
      << ", all below " << in_microseconds(1);
  // The last range has no upper limit.
  if (const auto longer = durations.count(duration_histogram::ranges - 1))
    out << ", except " << longer << ", which may be longer";
  return out;
}

}  // namespace verbspp
