// expect: a bootstrap is movable, and has rank(), size(), put(key, bytes)
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/ranks.hpp>

struct launcher {
  std::uint32_t rank();
  std::uint32_t size();
  verbspp::result<void> put(std::string_view key, std::span<const std::byte> value);
#ifndef MUST_FAIL
  verbspp::group_result<void> fence(const verbspp::wait_limit& limit);
#endif
  verbspp::result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                   std::span<std::byte> into, const verbspp::wait_limit& limit);
};

verbspp::group_result<verbspp::world> join(launcher from,
                                           const verbspp::protection_domain& domain) {
  return verbspp::world::join(from, domain.build_channel(), std::chrono::seconds(1));
}
