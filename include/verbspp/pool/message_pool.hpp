// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/pool/message.hpp>

#include <cstdint>
#include <iosfwd>
#include <utility>

namespace verbspp {

/// A pool of registered places, all of one size, for messages that are to be sent or received.
///
/// The program takes a place as a `message`, and passes it to a request. The place then returns to
/// the pool automatically, on any thread, so no place is lost, unless the device does not release
/// its memory. Taking and returning places does not allocate memory, and uses no atomic operations
/// while the process is known to have only one thread.
///
/// A shared handle, which is cheap to copy. The places and the protection domain exist until the
/// last handle has been destroyed and the last message has returned its place. A moved-from handle
/// is empty: it has no places, and `take` fails (`invalid_input`). Thread-safe.
class message_pool {
 public:
  /// Allocates and registers `count` places of `size` bytes each, in one buffer. Each place begins
  /// at the start of a cache line, so no two places share a cache line. The library keeps
  /// another 96 bytes for each place, which are not registered.
  /// \errors `invalid_input` if `count` or `size` is 0, or `count` is above 2^28; as
  /// `registered_buffer::allocate`
  [[nodiscard]] static result<message_pool> create(const class protection_domain& domain,
                                                   std::uint32_t count, std::uint32_t size,
                                                   const buffer_options& options = {}) noexcept {
    VERBSPP_TRY(places, detail::pool_places::create(domain, count, size, options));
    return message_pool(places);
  }

  message_pool(const message_pool& other) noexcept : places_(other.places_) {
    if (places_ != nullptr) places_->add_handle();
  }
  message_pool(message_pool&& other) noexcept : places_(std::exchange(other.places_, nullptr)) {}
  message_pool& operator=(message_pool other) noexcept {
    std::swap(places_, other.places_);
    return *this;
  }
  ~message_pool() {
    if (places_ != nullptr) places_->drop_handle();
  }

  /// Takes a place. The message is as long as the place, and still contains the bytes from the
  /// previous use of the place.
  /// \errors `would_block` if all places are in use; `invalid_input` if the handle is empty
  [[nodiscard]] VERBSPP_DATA_PATH result<message> take() const noexcept {
    if (places_ == nullptr) [[unlikely]]
      return has_none();
    detail::pool_place* const place = places_->take();
    if (place == nullptr) [[unlikely]]
      return has_none();
    return result<message>(std::in_place, place, place->memory.length);
  }

  /// The number of places.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return places_ != nullptr ? places_->count() : 0;
  }
  /// The number of places that can currently be taken.
  [[nodiscard]] std::uint32_t available() const noexcept {
    return places_ != nullptr ? places_->available() : 0;
  }
  /// The size of a place, in bytes.
  [[nodiscard]] std::uint32_t message_size() const noexcept {
    return places_ != nullptr ? places_->place_size() : 0;
  }
  /// Used by the library only: the places; null if the handle is empty.
  [[nodiscard]] detail::pool_places* places() const noexcept { return places_; }

  /// True for two handles to the same pool, and for two empty handles.
  friend bool operator==(const message_pool& one, const message_pool& other) noexcept {
    return one.places_ == other.places_;
  }
  friend std::ostream& operator<<(std::ostream& out, const message_pool& pool);

 private:
  explicit message_pool(detail::pool_places* places) noexcept : places_(places) {}
  [[nodiscard]] error has_none() const noexcept;

  detail::pool_places* places_;
};

}  // namespace verbspp
