// SPDX-License-Identifier: Apache-2.0
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/pool/detail/pool_places.hpp>

#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr std::size_t cache_line = 64;

constexpr const char* creating_pool = "message_pool::create";

}  // namespace

pool_places::pool_places(registered_buffer<>&& buffer, owned<place_record[]>&& records,
                         std::uint32_t count, std::uint32_t size, std::size_t distance) noexcept
    : memory_keeper{[](memory_keeper& self, std::uint32_t place) noexcept {
        static_cast<pool_places&>(self).give_back(place);
      }},
      buffer_(std::move(buffer)),
      lkey_(buffer_.native_handle()->lkey),
      count_(count),
      size_(size),
      distance_(distance),
      is_watched_(device_memory_is_watched()),
      records_(records.get()),
      records_owner_(std::move(records)) {
  for (std::uint32_t place = 0; place < count; ++place)
    record(place).next = place + 1 < count ? place + 1 : place_record::end_of_list;
  // The program must not access a free place.
  if (is_watched_)
    device_takes(reinterpret_cast<std::uintptr_t>(buffer_.data()), count_ * distance_);
}

pool_places::~pool_places() {
  if (is_watched_)
    device_returns(reinterpret_cast<std::uintptr_t>(buffer_.data()), count_ * distance_);
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
  owned<place_record[]> records(new (std::nothrow) place_record[count]);
  if (!records) return error::from_errno(ENOMEM, creating_pool);
  auto* const made =
      new (std::nothrow) pool_places(std::move(buffer), std::move(records), count, size, distance);
  if (made == nullptr) return error::from_errno(ENOMEM, creating_pool);
  return made;
}

std::uint32_t pool_places::take_with_care() noexcept {
  const brief_guard guard(lock_);
  const std::uint32_t place = unlist();
  if (is_watched_ && place != place_record::end_of_list) show(place);
  return place;
}

void pool_places::give_back_with_care(std::uint32_t place) noexcept {
  if (is_watched_) hide(place);
  lock_.lock();
  const bool is_last = list(place) && uses_ == unused();
  lock_.unlock();
  if (is_last) destroy();
}

/// Completes `give_back` in a process with one thread.
void pool_places::finish_giving_back(std::uint32_t place) noexcept {
  if (is_watched_) hide(place);
  if (uses_ == unused()) destroy();
}

void pool_places::destroy() noexcept { delete this; }

void pool_places::hide(std::uint32_t place) noexcept {
  device_takes(reinterpret_cast<std::uintptr_t>(at(place)), size_);
}

void pool_places::show(std::uint32_t place) noexcept {
  device_returns(reinterpret_cast<std::uintptr_t>(at(place)), size_);
}

}  // namespace verbspp::detail
