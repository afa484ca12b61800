// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lanes: additional queue pairs, over which a service accesses memory that its callers lend.
///
/// A lane belongs to one call at a time. If that call ends before its answer arrives, the caller
/// destroys its end of the lane, which ends the service's access. The connection of the messages
/// and calls on other lanes are not affected. Without lanes, an access to a revoked lease would
/// break the connection of the messages. A later call that lends memory connects another lane, if
/// none is idle.
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/qp/endpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbspp::detail {

/// The number of bytes before the request, in the body of a call that lends memory: the encoded
/// `remote_memory` (24 bytes), the number of the lane (2), and zeros (6).
inline constexpr std::size_t loan_size = 32;
/// The size of a request for a lane, in bytes: the number of the lane (2 bytes), zeros (6), and the
/// caller's endpoint.
inline constexpr std::size_t lane_request_size = 8 + endpoint::encoded_size;
/// The number in place of a lane's number in a call that lends 0 bytes, which uses no lane.
inline constexpr std::uint16_t no_lane = UINT16_MAX;

/// Returns the number of the lane in the body of a call that lends memory.
[[nodiscard]] std::uint16_t lane_in(std::span<const std::byte> body) noexcept;

/// The caller's end of a lane.
struct calling_lane {
  enum class stage : std::uint8_t {
    closed,
    requested,  ///< the service was asked to connect its end
    idle,
    lends,  ///< a call uses it
  };
  stage at = stage::closed;
  bool is_new = false;                 ///< no call has used it since it was connected
  std::uint16_t slot = 0;              ///< while `requested`, the slot of that request
  bool uses_copy = false;              ///< the call lends `copy` instead of the program's memory
  std::span<std::byte> copied_back{};  ///< the program's memory if the copy has to be copied back
  std::optional<shared_buffer<access::local_write | access::window_bind>> copy{};
  channel link{};
  lease_owner lease{};  ///< declared last, so it ends before the connection

  /// Destroys the queue pair, which ends the service's access.
  void close() noexcept {
    at = stage::closed;
    link = channel();
    lease_owner ended;
    lease.swap(ended);
    if (!ended.drop()) copy.reset();
    uses_copy = false;
    copied_back = {};
  }
};

/// The memory that a call lends, as the caller sees it.
struct loan {
  lease_request what;
  /// For shared memory: its handle, and the function that keeps it. Otherwise null.
  const void* shared = nullptr;
  kept_memory (*keep)(const void* shared) noexcept = nullptr;

  [[nodiscard]] kept_memory kept() const noexcept {
    return keep != nullptr ? keep(shared) : kept_memory();
  }
};

/// Creates the channel of a lane, with the parameters of the channel `beside`, but with short
/// queues of its own.
[[nodiscard]] result<prepared_channel> prepare_lane(const channel_core& beside, wait_mode waiting,
                                                    access_flags rights) noexcept;

/// The service's end of a lane. A call that lends memory keeps a reference to it.
class serving_lane : public counted {
 public:
  explicit serving_lane(channel&& link) noexcept : link_(std::move(link)) {}
  serving_lane(const serving_lane&) = delete;
  serving_lane& operator=(const serving_lane&) = delete;
  ~serving_lane() = default;

  /// \errors as `channel::read`; `busy` if another thread uses the lane, which happens only if the
  /// client has lent memory to two calls over the same lane
  [[nodiscard]] result<void> read(const scatter_list& into, const remote_source& from,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, const remote_destination& to,
                                   call_limit limit) noexcept;
  /// False if a request has failed, or another thread uses the lane. The caller then has to connect
  /// another lane.
  [[nodiscard]] bool is_usable() noexcept;

 private:
  template <class Operation>
  [[nodiscard]] result<void> run(Operation&& operation) noexcept;

  brief_lock lock_{};
  channel link_;
};

/// The memory that a call lends, as the service sees it.
class lent_memory : public counted {
 public:
  lent_memory(reference<serving_lane> lane, const remote_memory_description& what) noexcept
      : lane_(std::move(lane)), what_(what) {}
  lent_memory(const lent_memory&) = delete;
  lent_memory& operator=(const lent_memory&) = delete;
  ~lent_memory() = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return what_.length; }
  [[nodiscard]] result<void> read(const scatter_list& into, std::uint64_t offset,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, std::uint64_t offset,
                                   call_limit limit) noexcept;
  [[nodiscard]] bool is_lane_usable() noexcept { return !lane_ || lane_->is_usable(); }

 private:
  reference<serving_lane> lane_;  ///< empty if the call lends 0 bytes
  remote_memory_description what_;
};

}  // namespace verbspp::detail
