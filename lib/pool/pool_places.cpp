// SPDX-License-Identifier: Apache-2.0
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/pool/detail/pool_places.hpp>
#include <verbspp/work/detail/wr_id.hpp>

#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr std::size_t cache_line = 64;

constexpr const char* creating_pool = "message_pool::create";

}  // namespace

pool_place::pool_place() noexcept
    : ibv_recv_wr{}, memory_keeper{[](memory_keeper& self) noexcept {
        static_cast<pool_place&>(self).give_back();
      }} {
  reset_wr_id();
  sg_list = &memory;
  num_sge = 1;
}

std::uint32_t message_list::drop_rejected(const ibv_recv_wr* rejected) noexcept {
  std::uint32_t accepted = 0;
  pool_place* end = nullptr;  // the last receive that was accepted
  pool_place* each = first;
  for (; rejected != nullptr && each != nullptr && each != rejected; ++accepted) {
    end = each;
    each = each->next_place();
  }
  while (each != nullptr) {
    pool_place& place = *std::exchange(each, each->next_place());
    place.reset_wr_id();
    place.end_receive();
    place.give_back_unfilled();
  }
  if (end == nullptr)
    first = nullptr;
  else
    end->next = nullptr;
  last = end;
  return accepted;
}

pool_places::pool_places(registered_buffer<>&& buffer, owned<pool_place[]>&& places,
                         std::uint32_t count, std::uint32_t size) noexcept
    : buffer_(std::move(buffer)),
      count_(count),
      size_(size),
      is_watched_(device_memory_is_watched()),
      places_(std::move(places)),
      first_(places_.get()) {
  assert(is_shared_receive(first_->wr_id));
  const std::size_t distance = buffer_.size() / count;
  for (std::uint32_t i = 0; i < count; ++i) {
    pool_place& place = (*this)[i];
    place.memory = {.addr = reinterpret_cast<std::uintptr_t>(buffer_.data() + i * distance),
                    .length = size,
                    .lkey = buffer_.native_handle()->lkey};
    place.pool = this;
    place.next = i + 1 < count ? &(*this)[i + 1] : nullptr;
  }
  // The program must not access a free place.
  if (is_watched_) device_takes(reinterpret_cast<std::uintptr_t>(buffer_.data()), buffer_.size());
}

pool_places::~pool_places() {
  if (is_watched_) device_returns(reinterpret_cast<std::uintptr_t>(buffer_.data()), buffer_.size());
}

result<pool_places*> pool_places::create(const protection_domain& domain, std::uint32_t count,
                                         std::uint32_t size,
                                         const buffer_options& options) noexcept {
  if (count == 0 || size == 0)
    return error(error_kind::invalid_input, creating_pool,
                 "a pool must have at least one place, and a place at least one byte");
  if (count > most) return error::above_limit(creating_pool, "places", count, most);
  const std::size_t distance = (std::size_t{size} + cache_line - 1) / cache_line * cache_line;
  VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, count * distance, options));
  owned<pool_place[]> places(new (std::nothrow) pool_place[count]);
  if (!places) return error::from_errno(ENOMEM, creating_pool);
  auto* const made =
      new (std::nothrow) pool_places(std::move(buffer), std::move(places), count, size);
  if (made == nullptr) return error::from_errno(ENOMEM, creating_pool);
  return made;
}

pool_place* pool_places::take_with_care() noexcept {
  const brief_guard guard(lock_);
  pool_place* const place = unlist();
  if (is_watched_ && place != nullptr) show(*place);
  return place;
}

void pool_places::give_back_with_care(pool_place& place) noexcept {
  pool_places& pool = *place.pool;
  if (pool.is_watched_) pool.hide(place);
  pool.lock_.lock();
  const bool is_last = pool.list(place) && pool.uses_ == pool.unused();
  pool.lock_.unlock();
  if (is_last) pool.destroy();
}

/// Completes `give_back` in a process with one thread.
void pool_places::finish_giving_back(pool_place& place) noexcept {
  pool_places& pool = *place.pool;
  if (pool.is_watched_) pool.hide(place);
  if (pool.uses_ == pool.unused()) pool.destroy();
}

void pool_places::destroy() noexcept { delete this; }

void pool_places::hide(const pool_place& place) noexcept { device_takes(place.memory.addr, size_); }

void pool_places::show(const pool_place& place) noexcept {
  device_returns(place.memory.addr, size_);
}

}  // namespace verbspp::detail
