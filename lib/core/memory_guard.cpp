// SPDX-License-Identifier: Apache-2.0
#include <verbspp/core/detail/memory_guard.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>

#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

memory_guard::memory_guard() noexcept : is_active_(device_memory_is_watched()) {}

result<void> memory_guard::allocate(std::size_t places, std::uint32_t elements) noexcept {
  if (!is_active_) return success();
  used_ = owned<ibv_sge[]>(new (std::nothrow) ibv_sge[places * elements]{});
  uses_ = owned<use[]>(new (std::nothrow) use[places]{});
  if (!used_ || !uses_) return error::from_errno(ENOMEM, "build a channel");
  elements_ = elements;
  return success();
}

template <class Tell>
void memory_guard::each(std::size_t place, Tell tell) const noexcept {
  const ibv_sge* const first = used_.get() + place * elements_;
  for (std::uint32_t i = 0; i < elements_ && first[i].length != 0; ++i)
    tell(first[i].addr, first[i].length);
}

void memory_guard::note(std::size_t place, const native_elements& elements) noexcept {
  ibv_sge* const first = used_.get() + place * elements_;
  ibv_sge single;
  const ibv_sge* const range = elements.at(single);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < elements.size && count < elements_; ++i)
    if (range[i].length != 0) first[count++] = range[i];
  if (count < elements_) first[count] = {};
}

bool memory_guard::hide(std::size_t place) noexcept {
  each(place, device_takes);
  const bool is_any = used_.get()[place * elements_].length != 0;
  if (is_any) uses_.get()[place] = use::written;
  return is_any;
}

void memory_guard::protect(std::size_t place, const native_elements& elements) noexcept {
  note(place, elements);
  each(place, device_reads);
  uses_.get()[place] = use::read;
}

void memory_guard::show(std::size_t place) noexcept {
  switch (std::exchange(uses_.get()[place], use::none)) {
    case use::none:
      return;
    case use::written:
      return each(place, device_returns);
    case use::read:
      return each(place, device_has_read);
  }
}

}  // namespace verbspp::detail
