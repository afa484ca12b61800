// SPDX-License-Identifier: Apache-2.0
#include "memory/region_table.hpp"

#include "base/passage.hpp"
#include "device/device.hpp"
#include "memory/protection_domain.hpp"

#include <cerrno>
#include <new>

namespace softverbs {
namespace {

/// The number of freed indexes that must accumulate before one is reused, as long as there are
/// indexes that were never used.
constexpr std::size_t resting_indexes = 4096;

constexpr unsigned writing = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
/// The rights that a bind may request. Optional rights, and the right to local writes, have no
/// effect.
constexpr unsigned of_windows = writing | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED |
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_OPTIONAL_RANGE;
constexpr std::uint32_t variable_part = 0xff;

/// True if a window with these parameters may be bound to the region.
bool may_bind(const memory_region& region, const window_binding& asked) noexcept {
  if ((region.access & IBV_ACCESS_MW_BIND) == 0) return false;
  if ((asked.access & writing) != 0 && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
  if (asked.address < region.iova) return false;
  const std::uint64_t offset = asked.address - region.iova;
  return offset <= region.length && asked.length <= region.length - offset;
}

std::byte* translate(const memory_region& region, std::uint32_t domain, std::uint64_t address,
                     std::uint64_t length, unsigned right) noexcept {
  if (number_of(region.pd) != domain || (region.access & right) != right) return nullptr;
  if (address < region.iova) return nullptr;
  const std::uint64_t offset = address - region.iova;
  if (offset > region.length || length > region.length - offset) return nullptr;
  // A region of the whole address space starts at the null pointer, to which no offset may be
  // added.
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(region.memory) + offset);
}

}  // namespace

int region_table::take_index(std::uint32_t& index) noexcept try {
  if (free_.size() >= resting_indexes ||
      slots_.size() > static_cast<std::size_t>(limits::memory_regions)) {
    if (free_.empty()) return ENOMEM;
    index = free_.front();
    free_.pop_front();
  } else {
    // Index 0 stays unused, so that no key is 0.
    if (slots_.empty()) slots_.emplace_back();
    index = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  }
  ++slots_[index].variant;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void region_table::show(const memory_region& region) noexcept {
  shown_->regions[region.handle].show(
      {region.lkey, region.access, number_of(region.pd), 0, region.iova, region.length,
       reinterpret_cast<std::uintptr_t>(region.memory), false, region.device != nullptr});
}

void region_table::show(const memory_window& window) noexcept {
  const std::uint32_t pair = window.pair == nullptr ? 0 : window.pair->qp_num;
  shown_->regions[window.handle].show(
      {key_of(window.handle), window.access, number_of(window.pd), pair, window.start,
       window.length, reinterpret_cast<std::uintptr_t>(window.memory), true, false});
}

void region_table::unbind(memory_window& window) noexcept {
  shown_->regions[window.handle].hide();
  if (window.region != nullptr) --window.region->windows;
  window.region = nullptr;
}

void region_table::free(std::uint32_t index) noexcept {
  shown_->regions[index].hide();
  slots_[index].region = nullptr;
  slots_[index].window = nullptr;
  free_.push_back(index);
}

std::uint32_t region_table::key_of(std::uint32_t index) const noexcept {
  return index << key_index_shift | slots_[index].variant;
}

int region_table::add(memory_region& region) noexcept {
  std::uint32_t index = 0;
  if (const int error = take_index(index)) return error;
  slots_[index].region = &region;
  region.handle = index;
  region.lkey = key_of(index);
  region.rkey = region.lkey | remote_key_bit;
  show(region);
  return 0;
}

void region_table::remove(const memory_region& region) noexcept { free(region.handle); }

const region_table::slot* region_table::find(std::uint32_t key) const noexcept {
  const std::uint32_t index = key >> key_index_shift;
  if (index >= slots_.size()) return nullptr;
  const slot& place = slots_[index];
  return place.variant == (key & 0xff) ? &place : nullptr;
}

std::uint32_t region_table::domain_of(std::uint32_t index) const noexcept {
  const memory_region* region = region_at(index);
  return region == nullptr ? 0 : number_of(region->pd);
}

const memory_region* region_table::region_of(std::uint32_t lkey) const noexcept {
  const slot* place = find(lkey);
  return place == nullptr ? nullptr : place->region;
}

std::byte* region_table::local(const ibv_pd* domain, std::uint32_t lkey, std::uint64_t address,
                               std::uint64_t length, bool writes) const noexcept {
  const slot* place = find(lkey);
  if (place == nullptr || place->region == nullptr) return nullptr;
  return translate(*place->region, number_of(domain), address, length,
                   writes ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U);
}

std::byte* region_table::remote(const reach& within, std::uint32_t rkey, std::uint64_t address,
                                std::uint64_t length, unsigned right) const noexcept {
  const slot* place = (rkey & remote_key_bit) == 0 ? nullptr : find(rkey & ~remote_key_bit);
  if (place == nullptr) return nullptr;
  if (place->window != nullptr) return through(*place->window, within, address, length, right);
  if (place->region == nullptr) return nullptr;
  return translate(*place->region, within.domain, address, length, right);
}

std::span<std::byte> region_table::all_of(const reach& within, std::uint32_t rkey,
                                          unsigned right) const noexcept {
  const slot* place = (rkey & remote_key_bit) == 0 ? nullptr : find(rkey & ~remote_key_bit);
  if (place == nullptr || place->region == nullptr) return {};
  const memory_region& region = *place->region;
  std::byte* memory = translate(region, within.domain, region.iova, region.length, right);
  return memory == nullptr ? std::span<std::byte>{} : std::span{memory, region.length};
}

int region_table::add(memory_window& window) noexcept {
  std::uint32_t index = 0;
  if (const int error = take_index(index)) return error;
  slots_[index].window = &window;
  ++windows_;
  window.handle = index;
  window.rkey = key_of(index) | remote_key_bit;
  return 0;
}

void region_table::remove(memory_window& window) noexcept {
  unbind(window);
  passage::wait_for_all();
  free(window.handle);
  --windows_;
}

bool region_table::bind(const ibv_qp& pair, const window_binding& asked) noexcept {
  memory_window* bound = asked.window < slots_.size() ? slots_[asked.window].window : nullptr;
  if (bound == nullptr || !same_domain(bound->pd, pair.pd)) return false;
  memory_window& window = *bound;
  const bool second_type = window.type == IBV_MW_TYPE_2;
  const bool only_unbinds = asked.region == 0 || asked.length == 0;
  const std::uint32_t key = key_of(asked.window) | remote_key_bit;
  if ((asked.access & ~of_windows) != 0 || (key ^ asked.rkey) > variable_part || key == asked.rkey)
    return false;
  // A bind can neither unbind a window of type 2, nor bind one that is already bound.
  if (second_type && (window.region != nullptr || only_unbinds)) return false;
  const bool zero_based = (asked.access & IBV_ACCESS_ZERO_BASED) != 0;
  if (!second_type && zero_based) return false;
  const slot* target = only_unbinds ? nullptr : find(asked.region);
  memory_region* region = target == nullptr ? nullptr : target->region;
  if (!only_unbinds &&
      (region == nullptr || !same_domain(region->pd, pair.pd) || !may_bind(*region, asked)))
    return false;

  unbind(window);
  passage::wait_for_all();
  slots_[asked.window].variant = static_cast<std::uint8_t>(asked.rkey & variable_part);
  if (region == nullptr) return true;
  ++region->windows;
  window.region = region;
  window.pair = second_type ? &pair : nullptr;
  window.start = zero_based ? 0 : asked.address;
  window.length = asked.length;
  window.memory = region->memory + (asked.address - region->iova);
  window.access = asked.access;
  show(window);
  return true;
}

bool region_table::invalidate(const ibv_qp& pair, std::uint32_t rkey) noexcept {
  const slot* place = (rkey & remote_key_bit) == 0 ? nullptr : find(rkey & ~remote_key_bit);
  memory_window* window = place == nullptr ? nullptr : place->window;
  if (window == nullptr || window->region == nullptr || window->pair != &pair) return false;
  unbind(*window);
  passage::wait_for_all();
  return true;
}

void region_table::forget(const ibv_qp& pair) noexcept {
  if (windows_ == 0) return;
  for (const slot& each : slots_)
    if (each.window != nullptr && each.window->pair == &pair) unbind(*each.window);
  passage::wait_for_all();
}

std::byte* region_table::through(const memory_window& window, const reach& within,
                                 std::uint64_t address, std::uint64_t length,
                                 unsigned right) noexcept {
  const bool open = window.type == IBV_MW_TYPE_2 ? window.pair == &within.pair
                                                 : number_of(window.pd) == within.domain;
  if (window.region == nullptr || !open || (window.access & right) != right) return nullptr;
  if (address < window.start) return nullptr;
  const std::uint64_t offset = address - window.start;
  if (offset > window.length || length > window.length - offset) return nullptr;
  return window.memory + offset;
}

}  // namespace softverbs
