// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/detail/pool_places.hpp>
#include <verbspp/work/immediate_data.hpp>
#include <verbspp/work/work_completion.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace verbspp {

/// A place in a message pool, together with the message in it, which is to be sent or was received.
///
///     VERBSPP_TRY(greeting, pool.take());
///     VERBSPP_TRYV(greeting.assign(bytes));
///     VERBSPP_TRYV(channel.post_send(std::move(greeting)));
///
/// A move-only owner, which may outlive its pool. Dropping it returns the place to the pool. When a
/// message is moved into a send or a write (`post_send`, `async_send`, ...), its place belongs to
/// that request, and returns to the pool when the request has finished, failed or been flushed,
/// whether the handle is kept or not. If a function such as `post_send` fails, the message is
/// unchanged; if an awaited request can't be posted, the place returns to the pool. The handle of
/// a request that fills a message (a read or a receive) owns the message, and returns it with the
/// length to which it was filled. A message that was default constructed or moved from is empty: it
/// has no bytes, and requests with it fail.
///
/// Thread rule: as for a plain value; messages may move between threads.
class [[nodiscard]] message {
 public:
  message() noexcept = default;
  /// Used by the library only: takes ownership of a place that was taken from the pool, or that a
  /// receive has filled.
  message(detail::pool_place* place, std::uint32_t size) noexcept : place_(place), size_(size) {}
  message(const message&) = delete;
  message& operator=(const message&) = delete;
  VERBSPP_DATA_PATH message(message&& other) noexcept
      : place_(std::exchange(other.place_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  /// Returns the previous place to the pool.
  message& operator=(message&& other) noexcept {
    if (this != &other) {
      drop();
      place_ = std::exchange(other.place_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  VERBSPP_DATA_PATH ~message() { drop(); }

  /// True if it has a place.
  explicit operator bool() const noexcept { return place_ != nullptr; }

  // `bytes` cannot be called on a temporary message, whose place would return to the pool before
  // the bytes are used.

  /// The bytes of the message: initially the whole place, later as many bytes as were received, or
  /// as `resize` or `assign` has set.
  [[nodiscard]] std::span<std::byte> bytes() & noexcept VERBSPP_LIFETIMEBOUND {
    return {data(), size_};
  }
  [[nodiscard]] std::span<const std::byte> bytes() const& noexcept VERBSPP_LIFETIMEBOUND {
    return {data(), size_};
  }
  void bytes() const&& = delete;  // a temporary returns its place: store it in a variable
  /// The length in bytes.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// The size of its place, in bytes.
  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return place_ != nullptr ? place_->memory.length : 0;
  }

  /// Changes the length, and leaves the bytes unchanged.
  /// \errors `invalid_input` if the length is above the size of its place
  [[nodiscard]] VERBSPP_DATA_PATH result<void> resize(std::size_t size) noexcept {
    if (size > capacity()) [[unlikely]]
      return place_ == nullptr ? has_no_place("message::resize") : too_long(size, capacity());
    size_ = static_cast<std::uint32_t>(size);
    return success();
  }
  /// Copies the bytes into the message, and sets its length.
  /// \errors as `resize`
  [[nodiscard]] VERBSPP_DATA_PATH result<void> assign(std::span<const std::byte> bytes) noexcept {
    VERBSPP_TRYV(resize(bytes.size()));
    // The argument may refer to bytes of this message, so the ranges may overlap.
    if (!bytes.empty()) std::memmove(data(), bytes.data(), bytes.size());
    return success();
  }

  /// Returns the message as an element that the device can read. The memory is borrowed: the
  /// message has to outlive the request.
  /// \errors `invalid_input` if it is empty
  [[nodiscard]] VERBSPP_DATA_PATH result<gather_element> gather() const noexcept {
    if (place_ == nullptr) [[unlikely]]
      return has_no_place("message::gather");
    return gather_element::from_native(place_->element(size_));
  }
  /// Returns the whole place as an element that the device can write. The memory is borrowed: the
  /// message has to outlive the request.
  /// \errors `invalid_input` if it is empty
  [[nodiscard]] VERBSPP_DATA_PATH result<scatter_element> scatter() const noexcept {
    if (place_ == nullptr) [[unlikely]]
      return has_no_place("message::scatter");
    return scatter_element::from_native(place_->memory);
  }

  /// The result of the receive or read that filled the message; empty if no request has filled it.
  [[nodiscard]] std::optional<completed_work> received() const noexcept {
    return is_filled() ? std::optional(place_->work()) : std::nullopt;
  }
  /// The sender's immediate data, if the message arrived with immediate data.
  [[nodiscard]] std::optional<immediate_data> immediate() const noexcept {
    return is_filled() ? place_->work().immediate() : std::nullopt;
  }
  /// The id of the channel that received the message, if the message arrived in a hub's pool;
  /// otherwise, an id whose generation is 0.
  [[nodiscard]] channel_id source() const noexcept {
    return is_filled() ? place_->source : channel_id();
  }

  /// Used by the library only: hands the place over to a posted request.
  [[nodiscard]] VERBSPP_DATA_PATH detail::kept_memory give() && noexcept {
    size_ = 0;
    return {.keeper = std::exchange(place_, nullptr)};
  }
  /// Used by the library only: records how far a request has filled the place.
  VERBSPP_DATA_PATH void note_filled(const completed_work& work) noexcept {
    size_ = work.bytes_filled(size_);
    place_->fill(work);
  }

 private:
  [[nodiscard]] std::byte* data() const noexcept {
    return place_ != nullptr ? place_->bytes() : nullptr;
  }
  [[nodiscard]] bool is_filled() const noexcept { return place_ != nullptr && place_->is_filled(); }
  VERBSPP_DATA_PATH void drop() noexcept {
    if (place_ != nullptr) place_->give_back();
  }
  // The following functions are static: if the address of a message were passed to even one rare
  // call, the compiler would have to keep the message in memory.
  [[nodiscard]] static error too_long(std::size_t size, std::uint32_t capacity) noexcept;
  [[nodiscard]] static error has_no_place(const char* operation) noexcept;

  detail::pool_place* place_ = nullptr;
  std::uint32_t size_ = 0;
};

template <>
inline constexpr bool enable_work_memory<message> = true;

}  // namespace verbspp
