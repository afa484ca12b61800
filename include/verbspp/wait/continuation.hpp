// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/list_links.hpp>
#include <verbspp/base/detail/stoppable_limit.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <cassert>
#include <cstdint>
#include <memory>
#include <utility>

namespace verbspp {

namespace detail {

class continuation_list;

/// The links of a continuation in its list, which is sorted by the keys.
struct continuation_links : list_links {
  std::uint64_t key = 0;
};

}  // namespace detail

/// A function that a channel calls once, when a request has finished: the basis of callbacks,
/// coroutines and senders.
///
///     struct done : continuation {
///       done() : continuation([](continuation& self) noexcept { ... static_cast<done&>(self) }) {}
///     };
///     done next;
///     if (!work.then(next)) ...  // the request has finished already: take the result now
///
/// `channel::poll` calls the function, on the thread that polls. By then, the handle has the
/// result, and the memory of the request belongs to the program again. Continuations of one queue
/// are called in the order of their requests. If the channel breaks, requests finish as failures,
/// and `poll` calls their continuations. `channel::close` and `channel::renew` call continuations,
/// too, and the destructor of the channel calls all that are left. The waits of the channel, and of
/// its handles, scopes and inboxes, call no continuations.
///
/// The function may do anything that the thread may do with the channel: post, give a handle a
/// continuation, wait, destroy the channel, or destroy the continuation itself.
///
/// A limit that is a duration begins when the object is constructed. Without a limit, the channel's
/// default limit applies from the time when the continuation is added to a request, and may be
/// exceeded by a quarter. If the limit is reached before the request has finished, the channel
/// breaks, as in `pending::wait`. `channel::deadline` returns the time by which `poll` has to be
/// called to detect that the limit was reached.
///
/// The program owns the object, and has to keep it until the call. Destroying it cancels only the
/// call: the request continues. The object can be used again after the call. It can be neither
/// copied nor moved. Thread rule: as for the channel.
class continuation : detail::continuation_links {
 public:
  using function = void (*)(continuation& self) noexcept;

  explicit continuation(function called) noexcept : call_(called) {}
  continuation(function called, const wait_limit& until) noexcept
      : call_(called), state_(has_own_limit), limit_(until) {}
  continuation(const continuation&) = delete;
  continuation& operator=(const continuation&) = delete;
  VERBSPP_DATA_PATH ~continuation() {
    unlink();
    if (has_limit()) [[unlikely]]
      forget_limit();
  }

  /// True after `pending::then` has accepted the continuation, until it is called or cancelled.
  [[nodiscard]] bool is_waiting() const noexcept { return is_linked(); }
  /// Prevents the call. A no-op if the continuation is not waiting.
  VERBSPP_DATA_PATH void cancel() noexcept { static_cast<void>(taken()); }

  /// Used by the library only: removes the continuation from its list. Returns the continuation,
  /// so that the caller need not keep its address.
  VERBSPP_DATA_PATH continuation& taken() noexcept {
    unlink();
    return has_limit() ? end_limit() : *this;
  }
  /// Used by the library only.
  VERBSPP_DATA_PATH void call() noexcept {
    if ((state_ & resumes) != 0)
      __builtin_coro_resume(frame_);  // headers without coroutines do not include <coroutine>
    else
      call_(*this);
  }
  /// Used by the library only: the number of the request to which the continuation was added last.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t request_number() const noexcept { return key; }
  /// Used by the library only: true if a limit was set, or if the channel's default limit has
  /// begun.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_limit() const noexcept {
    return (state_ & (has_own_limit | has_default_limit)) != 0;
  }
  /// \pre `has_limit()`
  [[nodiscard]] const wait_limit& limit() const noexcept { return limit_.until(); }
  /// Used by the library only: while the continuation waits, a stop request calls `polls.wake`, if
  /// the limit's token has callbacks. \pre `has_limit()`
  void wake_by_stop(detail::stoppable_sleep& polls) noexcept { limit_.begin(polls); }
  /// The time at which the limit has to be checked. \pre `has_limit()`
  [[nodiscard]] wait_limit::time_point alarm() const noexcept { return limit_.alarm(); }
  /// Used by the library only: true if the limit is the channel's default limit.
  [[nodiscard]] bool is_default() const noexcept { return (state_ & has_default_limit) != 0; }
  /// Sets the limit of later waits. \pre the continuation is not waiting
  void set_limit(const wait_limit& until) noexcept {
    assert(!is_waiting());
    make_limit(wait_limit(until), has_own_limit);  // a copy: `until` may be the replaced limit
  }
  void begin_default(wait_limit::time_point end) noexcept { make_limit(end, has_default_limit); }
  /// Used by the library only: true if the limit was reached before the request finished.
  [[nodiscard]] bool has_expired() const noexcept { return (state_ & expired) != 0; }
  void expire() noexcept { state_ |= expired; }

 protected:
  // Used by the library only.

  /// A continuation that resumes a coroutine instead of calling a function. `frame` is the address
  /// of the coroutine's handle.
  VERBSPP_DATA_PATH explicit continuation(void* frame) noexcept : frame_(frame), state_(resumes) {}
  /// Sets the coroutine. \pre the continuation resumes a coroutine
  VERBSPP_DATA_PATH void set_frame(void* frame) noexcept {
    assert((state_ & resumes) != 0);
    frame_ = frame;
  }
  /// Makes the continuation resume a coroutine instead of calling a function.
  void become_coroutine(void* frame) noexcept {
    state_ |= resumes;
    frame_ = frame;
  }

  /// A number that the derived class may set; 0 at first.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint8_t stage() const noexcept {
    return static_cast<std::uint8_t>(state_ >> 8);
  }
  VERBSPP_DATA_PATH void set_stage(std::uint8_t stage) noexcept {
    state_ = (state_ & 0xffU) | std::uint32_t{stage} << 8;
  }
  /// True if the continuation resumes a coroutine, has no limit, and the stage is 0. One
  /// instruction tests all of this.
  [[nodiscard]] VERBSPP_DATA_PATH bool is_plain() const noexcept { return state_ == resumes; }
  /// Sets the stage of a continuation that will not wait again. The stores tell the compiler that
  /// the destructor has nothing to do, so that it removes both.
  /// \pre neither `is_waiting` nor `has_limit`
  VERBSPP_DATA_PATH void note_end(std::uint8_t stage) noexcept {
    assert(!is_waiting() && !has_limit());
    next = nullptr;
    state_ = resumes | std::uint32_t{stage} << 8;
  }
  /// Destroys the limit. \pre `has_limit`
  [[gnu::cold, gnu::noinline]] void forget_limit() noexcept {
    std::destroy_at(&limit_);
    state_ &= ~(has_own_limit | has_default_limit);
  }

 private:
  friend detail::continuation_list;

  VERBSPP_DATA_PATH void begin(std::uint64_t of) noexcept {
    key = of;
    state_ &= ~expired;
    if (has_limit()) [[unlikely]] {
      limit_.end();
      if (is_default()) forget_limit();
    }
  }

  [[gnu::cold, gnu::noinline]] continuation& end_limit() noexcept {
    limit_.end();
    return *this;
  }
  void make_limit(const wait_limit& until, std::uint32_t kind) noexcept {
    if (has_limit()) forget_limit();
    std::construct_at(&limit_, until);
    state_ |= kind;
  }

  // The bits of `state_`.
  static constexpr std::uint32_t has_own_limit = 1;
  static constexpr std::uint32_t has_default_limit = 2;
  static constexpr std::uint32_t expired = 4;
  static constexpr std::uint32_t resumes = 8;

  union {
    function call_;
    void* frame_;  ///< instead of `call_`, if `state_` has the bit `resumes`
  };
  std::uint32_t state_ = 0;  ///< the constants above; the stage from bit 8 on
  union {
    detail::stoppable_limit limit_;  ///< the program's limit, or the default limit, if `has_limit`
  };
};

namespace detail {

/// A list of waiting continuations, sorted by their keys. A key is the number of a request, or 0
/// for other continuations.
class continuation_list {
 public:
  continuation_list() noexcept : head_{{&head_, &head_}, ~std::uint64_t{0}} {}
  continuation_list(const continuation_list&) = delete;
  continuation_list& operator=(const continuation_list&) = delete;
  ~continuation_list() { assert(is_empty()); }

  [[nodiscard]] VERBSPP_DATA_PATH bool is_empty() const noexcept { return head_.next == &head_; }
  /// The continuation with the lowest key. \pre the list is not empty
  [[nodiscard]] VERBSPP_DATA_PATH continuation& first() const noexcept { return of(head_.next); }
  /// True if the list has a continuation whose key is below this one.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_below(std::uint64_t key) const noexcept {
    return static_cast<const continuation_links*>(head_.next)->key < key;
  }
  /// Adds a continuation behind all others whose keys are not higher. Usually that is the end of
  /// the list.
  VERBSPP_DATA_PATH void add(continuation& one, std::uint64_t key) noexcept {
    one.unlink();
    one.begin(key);
    list_links* before = head_.previous;
    while (before != &head_ && of(before).key > key) [[unlikely]]
      before = before->previous;
    one.link_before(*before->next);
  }
  /// Adds a new continuation at the end of the list. \pre no other key is higher
  VERBSPP_DATA_PATH void append(continuation& one, std::uint64_t key) noexcept {
    assert(!one.is_waiting() && (is_empty() || of(head_.previous).key <= key));
    one.key = key;
    one.link_before(head_);
    // The compiler cannot exclude that linking has changed this.
    if (!one.is_waiting()) __builtin_unreachable();
  }
  /// Calls `function` with each continuation whose key is at least `lowest`. The function may
  /// cancel that continuation.
  template <class Function>
  void for_each(Function function, std::uint64_t lowest = 0) noexcept {
    for (list_links* each = head_.next; each != &head_;) {
      continuation& one = of(each);
      each = each->next;
      if (one.key >= lowest) function(one);
    }
  }

 private:
  [[nodiscard]] VERBSPP_DATA_PATH static continuation& of(list_links* links) noexcept {
    return static_cast<continuation&>(*links);
  }

  continuation_links head_;  ///< its key is higher than all others
};

}  // namespace detail

}  // namespace verbspp
