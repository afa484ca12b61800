// SPDX-License-Identifier: Apache-2.0
#include "memory/published_tables.hpp"

#include <sys/mman.h>

#include <cstring>

namespace softverbs {

template <typename Shown>
void published<Shown>::show(const Shown& what) noexcept {
  std::array<std::uint64_t, words> raw{};
  std::memcpy(raw.data(), &what, sizeof(what));
  versions_so_far_ += 2;
  version_.store(versions_so_far_ - 1);
  for (std::size_t at = 0; at < words; ++at) words_[at].store(raw[at], std::memory_order_release);
  version_.store(versions_so_far_);
}

template <typename Shown>
void published<Shown>::hide() noexcept {
  version_.store(0);
}

template <typename Shown>
std::optional<Shown> published<Shown>::read() const noexcept {
  const std::uint64_t version = version_.load();
  if (version == 0 || version % 2 != 0) return std::nullopt;
  std::array<std::uint64_t, words> raw;
  for (std::size_t at = 0; at < words; ++at) raw[at] = words_[at].load(std::memory_order_acquire);
  if (version_.load(std::memory_order_relaxed) != version) return std::nullopt;
  Shown result;
  std::memcpy(&result, raw.data(), sizeof(result));
  return result;
}

template class published<shown_region>;
template class published<shown_pair>;

published_tables* publish_tables(shared_memory& into) noexcept {
  if (into.create(sizeof(published_tables), shared_memory::others::only_read) != 0) return nullptr;
  ::madvise(into.bytes().data(), into.bytes().size(), MADV_DONTFORK);
  // The initial state is all zeros, so no page is touched here.
  return reinterpret_cast<published_tables*>(into.bytes().data());
}

const published_tables* tables_in(const shared_memory& mapped) noexcept {
  if (mapped.bytes().size() != sizeof(published_tables)) return nullptr;
  return reinterpret_cast<const published_tables*>(mapped.bytes().data());
}

}  // namespace softverbs
