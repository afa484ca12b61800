// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp {

/// A part of a registered buffer, which owns the whole buffer. Pass it to a request that should own
/// a buffer but use only a part of it.
///
/// Created by `std::move(buffer).part(first, count)`; `std::move(part).buffer()` returns the
/// buffer. Because a part owns the whole buffer, a buffer has only one part at a time. To have
/// several parts in flight, use `registered_buffer::share`. Move-only. A part that was moved from
/// has no elements, and making scatter-gather elements or handles for peers from it returns an
/// error.
template <class Buffer>
class VERBSPP_CONSUMABLE buffer_part {
  // The same type as `verbspp::result<Value>`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent_on<Value, Buffer>>;

 public:
  static constexpr access_flags rights = Buffer::rights;
  using buffer_type = Buffer;
  using value_type = typename Buffer::value_type;
  using handle_for_peers = typename Buffer::handle_for_peers;

  VERBSPP_DATA_PATH buffer_part(buffer_part&& other) noexcept
      : buffer_(std::move(other.buffer_)),
        first_(std::exchange(other.first_, 0)),
        count_(std::exchange(other.count_, 0)) {}
  /// Deregisters and frees the previous buffer.
  VERBSPP_DATA_PATH buffer_part& operator=(buffer_part&& other) noexcept {
    buffer_part taken(std::move(other));
    std::swap(buffer_, taken.buffer_);
    std::swap(first_, taken.first_);
    std::swap(count_, taken.count_);
    return *this;
  }
  ~buffer_part() = default;

  // Access to the elements of the part. The functions that return pointers or references are
  // deleted for a temporary part, because its memory is freed at the end of the expression.

  [[nodiscard]] value_type* data() & noexcept VERBSPP_LIFETIMEBOUND {
    return buffer_.data() + first_;
  }
  [[nodiscard]] const value_type* data() const& noexcept VERBSPP_LIFETIMEBOUND {
    return buffer_.data() + first_;
  }
  void data() const&& = delete;  // a temporary frees its memory: store the part in a variable
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] value_type* begin() & noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  [[nodiscard]] const value_type* begin() const& noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  void begin() const&& = delete;  // a temporary frees its memory: store the part in a variable
  [[nodiscard]] value_type* end() & noexcept VERBSPP_LIFETIMEBOUND { return data() + count_; }
  [[nodiscard]] const value_type* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return data() + count_;
  }
  void end() const&& = delete;  // a temporary frees its memory: store the part in a variable
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED value_type& operator[](std::size_t index) & noexcept
      VERBSPP_LIFETIMEBOUND {
    assert(index < count_);
    return data()[index];
  }
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const value_type& operator[](
      std::size_t index) const& noexcept VERBSPP_LIFETIMEBOUND {
    assert(index < count_);
    return data()[index];
  }
  void operator[](std::size_t) const&& = delete;  // a temporary frees its memory: use a variable
  /// The index of the part's first element in the buffer.
  [[nodiscard]] std::size_t first() const noexcept { return first_; }

  /// Returns the part as a gather element, for the device to read.
  /// \errors `invalid_input` if the part has more than 2^32 - 1 bytes, or was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather() const noexcept {
    return buffer_.gather(first_, count_);
  }
  /// Returns the part as a scatter element, for the device to write.
  /// \errors those of `gather`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter() noexcept
    requires LocallyWritable<rights>
  {
    return buffer_.scatter(first_, count_);
  }
  /// Used by the library only: like `is_one_element` and `all` of `registered_buffer`, but for this
  /// part.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH bool is_one_element() const noexcept {
    return buffer_.size() != 0 && count_ <= UINT32_MAX / sizeof(value_type);
  }
  template <class Part>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH Part all() noexcept {
    if constexpr (std::is_same_v<Part, scatter_element>)
      return buffer_.scatter_unchecked(first_, count_);
    else
      return buffer_.gather_unchecked(first_, count_);
  }

  /// The handle that a peer needs to access the part. Its key grants access to the whole buffer.
  /// \errors `invalid_input` if the part was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<rights>
  {
    VERBSPP_TRY(whole, buffer_.remote());
    return whole.slice(first_ * sizeof(value_type), count_ * sizeof(value_type));
  }

  /// The `ibv_mr` of the whole buffer; null if the part was moved from.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return buffer_.native_handle(); }

  /// Returns the whole buffer, and leaves the part empty.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES Buffer buffer() && noexcept {
    first_ = count_ = 0;
    return std::move(buffer_);
  }
  void buffer() const& = delete;  // the buffer is moved out of the part: std::move(part).buffer()

 private:
  friend Buffer;
  buffer_part(Buffer buffer, std::size_t first, std::size_t count) noexcept
      : buffer_(std::move(buffer)), first_(first), count_(count) {}

  Buffer buffer_;
  std::size_t first_;
  std::size_t count_;
};

template <class Buffer>
inline constexpr bool enable_work_memory<buffer_part<Buffer>> = enable_work_memory<Buffer>;

}  // namespace verbspp
