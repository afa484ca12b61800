// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

template <class Memory = void>
class pending;

/// How owned work ended: what came of it, and the memory that it had, whether it succeeded or not.
///
///     auto [result, buffer] = work.wait();
template <class Memory>
struct [[nodiscard]] finished {
  transport_result<completed_work> result;
  Memory memory;
};

namespace detail {

/// A handle of a request whose memory it does not own, or of none.
class pending_request {
 public:
  /// None.
  pending_request() noexcept = default;
  VERBSPP_DATA_PATH pending_request(channel_core* core, const request& posted) noexcept
      : core_(core), request_(posted) {
    core->open_handle();
  }
  pending_request(const pending_request&) = delete;
  pending_request& operator=(const pending_request&) = delete;
  VERBSPP_DATA_PATH pending_request(pending_request&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), request_(other.request_) {}
  /// Lets go of the request that it had, as the destructor does.
  VERBSPP_DATA_PATH pending_request& operator=(pending_request&& other) noexcept {
    if (this != &other) {
      drop();
      core_ = std::exchange(other.core_, nullptr);
      request_ = other.request_;
    }
    return *this;
  }
  VERBSPP_DATA_PATH ~pending_request() { drop(); }

  /// Whether there is a request whose result can be taken: not after that, nor when moved from or
  /// default constructed.
  [[nodiscard]] bool has_request() const noexcept { return core_ != nullptr; }

  /// The result, if it is there; never blocks.
  /// \errors of the request; of the channel, if that was destroyed
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<transport_result<completed_work>> poll() noexcept {
    if (!has_request()) [[unlikely]]
      return no_request();
    if (!look()) return std::nullopt;
    return take(call_limit::of_channel());
  }
  /// Waits for the result. If the limit comes first, this breaks the connection, and all of its
  /// requests end: only then is the memory the program's again.
  /// \errors as `poll`; `timed_out`, or that a stop was requested
  VERBSPP_DATA_PATH transport_result<completed_work> wait(
      call_limit limit = call_limit::of_channel()) noexcept {
    return take(limit);
  }

 protected:
  [[nodiscard]] VERBSPP_DATA_PATH bool is_done() const noexcept { return core_->is_done(request_); }
  /// Looks for completions, if there is a need to.
  [[nodiscard]] VERBSPP_DATA_PATH bool look() noexcept {
    if (!is_done()) core_->collect();
    return is_done();
  }
  /// Takes the result, which is there, or waits for it.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take(call_limit limit) noexcept {
    if (core_ == nullptr) [[unlikely]]
      return no_request();
    channel_core& core = *std::exchange(core_, nullptr);
    return core.take(request_, limit);
  }
  /// Lets go of the request; with `must_wait`, when the device has let go of its memory.
  VERBSPP_DATA_PATH void drop(bool must_wait = false) noexcept {
    if (core_ != nullptr) std::exchange(core_, nullptr)->drop(request_, must_wait);
  }
  [[nodiscard]] static error no_request() noexcept;
  /// Drops the request, which keeps that memory from now on. \pre there is one, on its way
  void leave_with(kept_memory memory) noexcept;

 private:
  // The handle's address is not given away, so that it can be in registers.
  channel_core* core_ = nullptr;  ///< null: no request
  request request_{};
};

}  // namespace detail

/// A request on its way: what posting to a channel gives.
///
/// Its result is taken once, by `poll` or `wait`; asking again is an error (`invalid_input`), and
/// so is asking one that was moved from, or default constructed.
///
/// Dropping it while the request is on its way waits until the device has let go of the memory, at
/// most as long as the channel's default limit; then the connection is given up, and the channel's
/// `failure` says that a drop did it. It may outlive its channel: then the request has finished,
/// and the result says how. So the handle of a receive that may never get its message is better
/// dropped after the channel, or after its `close`, which wait for nothing. Nor does the drop of a
/// request without memory of the program's (no elements, or inline bytes): that goes on, and the
/// message that a receive takes then is lost. Receives of an `inbox` need no such care.
///
/// The memory of the request is *borrowed*: it has to live until the request has finished. That is
/// the program's duty; `pending<Memory>` has the memory itself.
///
/// A move-only owner of a few words. Thread rule: as its channel: one thread at a time for both.
template <>
class [[nodiscard]] pending<void> : public detail::pending_request {
 public:
  using pending_request::pending_request;
  void detach() = delete;  // its memory is borrowed, so someone has to wait: own it, or share it
};

/// A request on its way that a scope sees finished: what posting in a scope gives.
///
/// As a `pending`, but it need not be kept: dropping it waits for nothing, and leaves the result to
/// the scope. After the end of the scope, asking for the result is an error (`invalid_input`).
class scoped_pending : public detail::pending_request {
 public:
  using pending_request::pending_request;
};

/// A request on its way that keeps its memory by itself: what posting a shared buffer, or a place
/// of a pool, gives.
///
/// As a `pending`, but it need not be kept: dropping it waits for nothing, since the memory stays
/// until the device has let go of it. What goes wrong then, the channel's `failure` tells.
class kept_pending : public detail::pending_request {
 public:
  using pending_request::pending_request;
};

namespace detail {

/// Memory that wants to know how far work has filled it.
template <class Memory>
concept NotesFilling =
    requires(Memory& memory, const completed_work& work) { memory.note_filled(work); };

/// Memory that nobody waits for, until the device has let go of it.
template <class Memory>
struct left_memory : memory_keeper {
  explicit left_memory(Memory&& left) noexcept
      : memory_keeper{[](memory_keeper& self, std::uint32_t) noexcept {
          delete static_cast<left_memory*>(&self);
        }},
        memory(std::move(left)) {}
  Memory memory;
};

}  // namespace detail

/// A request that has its memory with it, which comes back with the result, on failure too.
///
/// As a `pending<>`: dropped while its request is on its way, it waits. `detach` is for who wants
/// neither result nor memory.
template <class Memory>
class [[nodiscard]] pending : public detail::pending_request {
 public:
  /// Empty, as its memory is.
  pending() noexcept
    requires std::is_nothrow_default_constructible_v<Memory>
  = default;
  /// For the library.
  VERBSPP_DATA_PATH pending(detail::channel_core* core, const detail::request& posted,
                            Memory&& memory) noexcept
      : pending_request(core, posted), memory_(std::move(memory)) {}
  pending(pending&&) noexcept = default;
  /// Lets go of the request that it had, and then of its memory.
  pending& operator=(pending&& other) noexcept {
    if (this == &other) return *this;
    drop(true);
    pending_request::operator=(std::move(other));
    memory_ = std::move(other.memory_);
    return *this;
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
  VERBSPP_DATA_PATH ~pending() { drop(true); }  // before the memory goes, also in a scope

  /// The result and the memory, if the request has finished; never blocks.
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<finished<Memory>> poll() noexcept {
    if (has_request() && !look()) return std::nullopt;
    return finish(call_limit::of_channel());
  }
  /// The same, waited for, as by `pending<>::wait`.
  VERBSPP_DATA_PATH finished<Memory> wait(call_limit limit = call_limit::of_channel()) noexcept {
    return finish(limit);
  }

  /// Leaves the request to itself, without waiting: it goes on, and its memory is destroyed when
  /// the device has let go of it; never, if it does not. What goes wrong, the channel's `failure`
  /// tells; the message that a receive takes is lost.
  /// \errors `invalid_input` if there is no request; `resource_exhausted`: the handle is as before
  result<void> detach() && noexcept {
    if (!has_request()) return no_request();
    if (look()) {
      drop();
      static_cast<void>(Memory(std::move(memory_)));
      return success();
    }
    auto* const left = new (std::nothrow) detail::left_memory<Memory>(std::move(memory_));
    if (left == nullptr)
      return error(error_kind::resource_exhausted, "pending::detach",
                   "there is no memory for what is left; the handle is as before");
    leave_with({.keeper = left});
    return success();
  }
  void detach() & = delete;  // the handle gives the request away: write std::move(work).detach()

 private:
  [[nodiscard]] VERBSPP_DATA_PATH finished<Memory> finish(call_limit limit) noexcept {
    if constexpr (detail::NotesFilling<Memory>) {
      const auto done = take(limit);
      if (done.has_value()) memory_.note_filled(done.assume_value());
      return finished<Memory>{done, std::move(memory_)};
    } else {
      return finished<Memory>{take(limit), std::move(memory_)};
    }
  }

  Memory memory_{};
};

}  // namespace verbspp
