// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lanes: additional queue pairs, over which a service accesses memory that its callers lend.
///
/// A lane belongs to one call at a time. If that call ends before its answer arrives, the caller
/// revokes the lease of the memory, and uses the lane for no other call, because a late access of
/// the service would break the lane. Calls on other lanes, and the connection that carries the
/// messages, are not affected. A later call that lends memory connects another lane, if none is
/// idle.
///
/// Small memory usually needs no lane: its bytes are part of the messages of the call.
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/list_links.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/waiting.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbspp::detail {

/// The size, in bytes, of the description of lent memory with which the body of a call begins: the
/// encoded `remote_memory` (24), the number of the lane (2), and zeros (6).
inline constexpr std::size_t loan_size = 32;
/// The size of a request for a lane, in bytes: the number of the lane (2 bytes), zeros (6), and the
/// caller's endpoint.
inline constexpr std::size_t lane_request_size = 8 + endpoint::encoded_size;
/// The number in place of a lane's number in a call that lends 0 bytes, which uses no lane.
inline constexpr std::uint16_t no_lane = UINT16_MAX;
/// The number in place of a lane's number if the bytes of the lent memory are sent with the
/// messages of the call.
inline constexpr std::uint16_t sent_lane = no_lane - 1;

/// The size, in bytes, of the bits that record which bytes of lent memory a service has written.
[[nodiscard]] constexpr std::uint64_t size_of_bits(std::uint64_t length) noexcept {
  return length / 8 + (length % 8 != 0 ? 1 : 0);
}
/// The space that a call needs in the service's message if the bytes of its memory are sent: the
/// description of the memory, its bytes, the request, which the answer replaces, and the bits.
[[nodiscard]] constexpr std::uint64_t space_for_sending(const method_description& of,
                                                        std::uint64_t length,
                                                        std::uint64_t request) noexcept {
  return loan_size + length + std::max<std::uint64_t>(request, of.answer_size) +
         (of.lends.contains(access::remote_write) ? size_of_bits(length) : 0);
}

/// Returns the number of the lane in the body of a call that lends memory.
[[nodiscard]] std::uint16_t lane_in(std::span<const std::byte> body) noexcept;

/// The caller's end of a lane.
class calling_lane {
 public:
  enum class stage : std::uint8_t {
    closed,
    requested,  ///< the service was asked to connect its end
    idle,
    lends,  ///< a call uses it
  };
  stage at = stage::closed;
  bool is_new = false;         ///< no call has used it since it was connected
  std::uint16_t slot = 0;      ///< while `requested`, the slot of that request
  bool uses_copy = false;      ///< the call lends `copy` instead of the program's memory
  bool is_accessible = false;  ///< the access could not be revoked when the caller was closed
  std::span<std::byte> copied_back{};  ///< the program's memory if the copy has to be copied back
  std::optional<shared_buffer<access::local_write | access::window_bind>> copy{};
  /// The connection of the last call that ended early. It is kept, so that the device refuses late
  /// accesses. Otherwise, the service would repeat these accesses until its retries are exhausted.
  channel former{};
  channel link{};
  lease_owner lease{};  ///< declared last, so it ends before the connection

  /// Destroys the queue pair, to end the service's access.
  /// \returns false if the lease could not be revoked, so the service may still access its memory
  bool close() noexcept {
    at = stage::closed;
    link = channel();
    const bool has_ended = drop_lease();
    uses_copy = false;
    copied_back = {};
    return has_ended;
  }
  /// Ends the service's access. If the queue pair is connected, and the lease could be revoked,
  /// this function moves the queue pair to `former`, and destroys the queue pair that `former`
  /// held.
  /// \returns false if the service may still access memory of the program
  bool retire() noexcept {
    bool has_ended = true;
    if (link.is_connected()) {
      has_ended = drop_lease();
      if (has_ended) former = std::move(link);
      has_ended |= uses_copy;
    }
    return close() && has_ended;
  }

 private:
  /// \returns false if the lease could not be revoked
  bool drop_lease() noexcept {
    lease_owner ended;
    lease.swap(ended);
    if (ended.drop()) return true;
    copy.reset();
    return false;
  }
};

/// An answer or refusal may begin with bytes that a service has written. Copies these bytes into
/// the memory that the call has lent, and moves the rest of the body to its beginning. Writes
/// nothing if the body is malformed. \returns the size of the rest
[[nodiscard]] result<std::size_t> take_written(std::span<std::byte> body,
                                               std::span<std::byte> into) noexcept;

/// The memory that a call lends, as the caller sees it.
struct loan {
  lease_request what;
  /// If the call keeps shared memory: the memory's handle, and the function that keeps the memory
  /// alive. Otherwise null.
  const void* shared = nullptr;
  kept_memory (*keep)(const void* shared) noexcept = nullptr;
  std::uint32_t request_size = any_size;  ///< the size of the request, if it is known

  [[nodiscard]] kept_memory kept() const noexcept {
    return keep != nullptr ? keep(shared) : kept_memory();
  }
};

/// Creates the channel of a lane, with the parameters of the channel `beside`, but with short
/// queues of its own.
[[nodiscard]] result<prepared_channel> prepare_lane(const channel_core& beside, wait_mode waiting,
                                                    access_flags rights) noexcept;

/// The service's end of a lane. A call that uses it keeps a reference to it.
///
/// An access of a call either blocks the thread of the handler, or is awaited by a coroutine. A
/// call cannot have accesses of both kinds at the same time. The thread that has the client's turn
/// polls for awaited accesses (see `calling_client`), and resumes the coroutines without holding
/// the lock.
class serving_lane : public counted {
 public:
  /// An awaited access. When it has finished, it is in the lane's list until its coroutine is
  /// resumed.
  struct waiting_access : list_links {
    void* waiting = nullptr;  ///< the address of the coroutine
  };

  explicit serving_lane(channel&& link) noexcept : link_(std::move(link)) {}
  serving_lane(const serving_lane&) = delete;
  serving_lane& operator=(const serving_lane&) = delete;
  ~serving_lane() = default;

  /// \errors as `channel::read`; `busy` if another thread uses the lane, or coroutines await
  /// accesses
  [[nodiscard]] result<void> read(const scatter_list& into, const remote_source& from,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, const remote_destination& to,
                                   call_limit limit) noexcept;
  /// False if a request has failed or has not finished, or another thread uses the lane. The caller
  /// then has to connect another lane.
  [[nodiscard]] bool is_usable() noexcept;

  // Awaited accesses.

  /// Guards the next five functions.
  [[nodiscard]] brief_lock& lock() noexcept { return lock_; }
  /// Adds an awaited access. \errors `busy` if an access blocks another thread
  [[nodiscard]] result<void> open_access() noexcept;
  void close_access() noexcept { --accesses_; }
  /// Makes the next `resume_next` resume the coroutine of an access that has finished.
  void note_finished(waiting_access& one) noexcept { one.link_before(finished_); }
  [[nodiscard]] channel_core& core() noexcept { return link_.core(); }
  /// True if `end` has broken the connection of the lane.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

  /// Processes completions, stop requests and limits.
  void poll() noexcept;
  /// Resumes the coroutine of the first access that has finished. \returns false if there is none
  bool resume_next() noexcept;
  /// True if the lane has to be polled.
  [[nodiscard]] bool is_busy() noexcept;
  /// Ends all awaited accesses with an error. `resume_next` then resumes their coroutines.
  void end(const error& why) noexcept;
  /// Makes the lane's descriptor readable at the next event that requires `poll`.
  /// \returns false if the lane has to be polled immediately
  [[nodiscard]] bool ask_to_be_woken() noexcept;
  /// The descriptor for `ask_to_be_woken`; -1 if there is none, or an access blocks a thread.
  [[nodiscard]] int descriptor() noexcept;
  /// The time at which `poll` has to be called to check a limit.
  [[nodiscard]] wait_limit::time_point deadline() noexcept;

 private:
  friend class calling_client;

  template <class Operation>
  [[nodiscard]] result<void> run(Operation&& operation) noexcept;

  brief_lock lock_{};
  bool is_blocking_ = false;  ///< an access blocks a thread, which uses the lane without the lock
  bool has_ended_ = false;
  std::uint32_t accesses_ = 0;  ///< awaited accesses
  list_links finished_{&finished_, &finished_};
  channel link_;

  // For the client.
  reference<serving_lane> next_{};  ///< in the client's list of lanes to poll
  bool is_listed_ = false;
  bool wakes_client_ = false;  ///< the hub reports the client when `descriptor` is readable
};

/// The memory that a call lends, as the service sees it.
class lent_memory : public counted {
 public:
  lent_memory(reference<serving_lane> lane, const remote_memory_description& what) noexcept
      : lane_(std::move(lane)), what_(what) {}
  /// For memory whose bytes are sent.
  /// \param body the body of the received call, in whose place the answer is written later
  lent_memory(const remote_memory_description& what, std::span<std::byte> body) noexcept
      : what_(what), body_(body) {}
  lent_memory(const lent_memory&) = delete;
  lent_memory& operator=(const lent_memory&) = delete;
  ~lent_memory() = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return what_.length; }
  [[nodiscard]] result<void> read(const scatter_list& into, std::uint64_t offset,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, std::uint64_t offset,
                                   call_limit limit) noexcept;
  [[nodiscard]] bool is_lane_usable() noexcept { return !lane_ || lane_->is_usable(); }
  [[nodiscard]] const reference<serving_lane>& lane() const noexcept { return lane_; }
  /// Checks an awaited access, and executes it if the bytes are sent, or there are none.
  /// \returns the memory that the device has to access; empty if the access was executed
  [[nodiscard]] result<std::optional<remote_source>> begin(const scatter_list& into,
                                                           std::uint64_t offset) noexcept;
  [[nodiscard]] result<std::optional<remote_destination>> begin(const gather_list& from,
                                                                std::uint64_t offset) noexcept;

  [[nodiscard]] bool is_sent() const noexcept { return !body_.empty(); }
  [[nodiscard]] bool has_written() const noexcept { return written_ != 0; }
  /// The position of the request in the body of the call.
  [[nodiscard]] std::size_t request_offset() const noexcept {
    return loan_size + (is_sent() ? what_.length : 0);
  }
  /// The space in which the answer or refusal is composed. \pre is_sent()
  [[nodiscard]] std::span<std::byte> space() const noexcept {
    return body_.first(body_.size() - bits().size()).subspan(request_offset());
  }
  /// Completes the body of an answer or refusal, whose own `size` bytes are in `space()`. If the
  /// service has written to the lent memory, places the written bytes in front of those `size`
  /// bytes and, if there are gaps, the bits behind them. \returns the size of the whole body
  /// \pre is_sent()
  [[nodiscard]] std::size_t complete(std::size_t size) noexcept;

 private:
  /// One bit for each byte of the lent memory, set if it was written; used once a write has left a
  /// gap.
  [[nodiscard]] std::span<std::byte> bits() const noexcept {
    const bool is_writable = what_.rights.contains(access::remote_write);
    return body_.last(is_writable ? size_of_bits(what_.length) : 0);
  }
  void note_written(std::size_t offset, std::size_t length) noexcept;

  reference<serving_lane> lane_{};  ///< empty if the call lends 0 bytes, or its bytes are sent
  remote_memory_description what_;
  std::span<std::byte> body_{};  ///< empty unless the bytes are sent
  std::size_t written_ = 0;      ///< no byte from this offset on was written
  bool has_gaps_ = false;        ///< a write has left a gap before its first byte
};

}  // namespace verbspp::detail
