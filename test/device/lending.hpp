// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the tests of calls that lend memory: methods, and a service for them.
#pragma once

#include "calls.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

namespace verbspp::test {

constexpr access_flags readable = access::remote_read;
constexpr access_flags writable = access::remote_write;

/// Returns the sum of the lent bytes. The request is the size of the parts in which the service
/// reads them.
struct add_up {
  static constexpr std::uint16_t number = 11;
  static constexpr const char* name = "add_up";
  static constexpr access_flags lends = readable;
  using request = std::uint64_t;
  using answer = std::uint64_t;
};
/// Fills the lent memory with the byte in the request. \returns the number of bytes
struct fill {
  static constexpr std::uint16_t number = 12;
  static constexpr const char* name = "fill";
  static constexpr access_flags lends = writable;
  using request = std::uint8_t;
  using answer = std::uint64_t;
};
/// Reads the lent memory, adds 1 to each byte, and writes the bytes back. Returns the bytes of the
/// request.
struct increment {
  static constexpr std::uint16_t number = 13;
  static constexpr const char* name = "increment";
  static constexpr access_flags lends = readable | writable;
  using request = bytes;
  using answer = bytes;
};
/// A method whose calls the test answers itself.
struct keep {
  static constexpr std::uint16_t number = 14;
  static constexpr const char* name = "keep";
  static constexpr access_flags lends = readable | writable;
  using request = std::uint32_t;
  using answer = std::uint32_t;
};

/// Like `keep`, but the service may only write.
struct keep_to_write {
  static constexpr std::uint16_t number = 15;
  static constexpr const char* name = "keep_to_write";
  static constexpr access_flags lends = writable;
  using request = std::uint32_t;
  using answer = std::uint32_t;
};

using window_memory = registered_buffer<access::local_write | access::window_bind>;
using plain_memory = registered_buffer<>;

template <class Buffer>
[[nodiscard]] Buffer filled(const testbed& bed, std::size_t size, std::byte with) {
  Buffer made = must(Buffer::allocate(bed.domain, size));
  std::ranges::fill(made, with);
  return made;
}
[[nodiscard]] inline bool all_are(std::span<const std::byte> bytes, unsigned value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

/// A service for the methods above, and for `sum_method`.
class lending_service : public service_threads {
 public:
  static constexpr std::size_t most = 1 << 20;

  explicit lending_service(const testbed& bed, unsigned threads = 1,
                           const service_options& options = default_options)
      : service_threads(bed), scratch_(must(plain_memory::allocate(bed.domain, most))) {
    serve(service::create(
              bed.domain, options, handles<sum_method>([](const two_numbers& asked) {
                return asked.first + asked.second;
              }),
              handles<add_up>([this](received_call<add_up> call) { answer(call); }),
              handles<fill>([this](received_call<fill> call) { answer(call); }),
              handles<increment>([this](received_call<increment> call) { answer(call); }),
              handles<keep>([this](received_call<keep> call) { kept.put(std::move(call)); }),
              handles<keep_to_write>([this](received_call<keep_to_write> call) {
                kept_to_write.put(std::move(call));
              })),
          threads);
  }
  lending_service(const lending_service&) = delete;
  lending_service& operator=(const lending_service&) = delete;
  ~lending_service() { close(); }

  /// Connects a caller that lends all memory over lanes.
  [[nodiscard]] caller call(caller_options options = {}) {
    options.sent_size = 0;
    return call_with(options);
  }
  [[nodiscard]] caller call_with(const caller_options& options) {
    auto [calls, link] = prepare(options);
    must(calls.start<sum_method, add_up, fill, increment, keep, keep_to_write>(std::move(link),
                                                                               patience));
    return std::move(calls);
  }
  /// Waits for a call of `keep`, and takes it.
  [[nodiscard]] received_call<keep> take_kept() { return std::move(kept.take(1)[0]); }

  kept_calls<keep> kept{};
  kept_calls<keep_to_write> kept_to_write{};

 private:
  void answer(received_call<add_up>& call) {
    const std::lock_guard guard(lock_);
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < call.lent_size();) {
      const std::uint64_t size = std::min(call.request(), call.lent_size() - at);
      const auto read = call.read(scratch_.scatter(0, size).value(), at, patience);
      if (read.has_error()) return call.refuse(read.error());
      for (std::uint64_t i = 0; i < size; ++i) sum += std::to_integer<std::uint64_t>(scratch_[i]);
      at += size;
    }
    static_cast<void>(call.answer(sum));
  }
  void answer(received_call<fill>& call) {
    const std::lock_guard guard(lock_);
    std::ranges::fill(scratch_, static_cast<std::byte>(call.request()));
    for (std::uint64_t at = 0; at < call.lent_size(); at += most) {
      const std::uint64_t size = std::min<std::uint64_t>(most, call.lent_size() - at);
      const auto written = call.write(scratch_.gather(0, size).value(), at, patience);
      if (written.has_error()) return call.refuse(written.error());
    }
    static_cast<void>(call.answer(call.lent_size()));
  }
  void answer(received_call<increment>& call) {
    const std::lock_guard guard(lock_);
    const std::size_t size = call.lent_size();
    auto done = call.read(scratch_.scatter(0, size).value());
    for (std::size_t i = 0; i < size; ++i)
      scratch_[i] = static_cast<std::byte>(std::to_integer<unsigned>(scratch_[i]) + 1);
    if (done.has_value()) done = call.write(scratch_.gather(0, size).value());
    if (done.has_error()) return call.refuse(done.error());
    static_cast<void>(call.answer(call.request()));
  }

  std::mutex lock_{};  // guards `scratch_`
  plain_memory scratch_;
};

}  // namespace verbspp::test
