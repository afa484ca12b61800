// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/wait/continuation.hpp>

#include <concepts>
#include <new>
#include <type_traits>
#include <utility>

namespace verbspp {

/// A handle to a request whose result can be passed to a function, such as `pending`.
template <class Work>
concept FollowableWork = requires(Work& work, continuation& next) {
  { work.then(next) } -> std::same_as<bool>;
  work.wait();
};

/// A function that can be called with the result of a request: a `transport_result<completed_work>`
/// or, if the request owns its memory, a `finished`, which also contains the memory.
template <class Function, class Work>
concept CallbackOf = std::move_constructible<Function> && FollowableWork<Work> &&
                     requires(Function& function, Work& work) { function(work.wait()); };

/// A request with a function that `channel::poll` calls with the request's result. It allocates
/// nothing.
///
///     VERBSPP_TRY(work, link.post_write(shared, {.remote = theirs}));
///     callback done(std::move(work), [](const auto& result) { ... });
///
/// The function is called once, on the thread that polls, closes, renews or destroys the channel;
/// the constructor calls it if the result is available already. It may do anything that the thread
/// may do with the channel: post, destroy the channel, or, unless the constructor has called it,
/// destroy this object. An exception that it throws ends the program. If the channel breaks, is
/// closed or is destroyed first, the result is an error.
///
/// The program owns the object. Destroying it before the call cancels the call, and destroys the
/// handle to the request. The destructors of some types of handles wait for the request. The object
/// can be neither copied nor moved. Thread rule: as for the channel.
template <class Work, class Function>
class callback : continuation {
 public:
  callback(Work&& posted, Function called) noexcept
    requires CallbackOf<Function, Work>
      : callback([](continuation& self) noexcept { static_cast<callback&>(self).finish(); }, posted,
                 called) {
    if (!work_.then(*this)) finish();
  }

  /// True until the call.
  using continuation::is_waiting;

  /// Used by the library only: like the constructor, but for an object that is allocated here, and
  /// that destroys itself after the call. \returns false if memory is exhausted
  [[nodiscard]] static bool begin(Work& posted, Function& called) noexcept {
    auto* const made = new (std::nothrow) callback(
        [](continuation& self) noexcept {
          auto& mine = static_cast<callback&>(self);
          mine.finish();
          delete &mine;
        },
        posted, called);
    if (made == nullptr) return false;
    if (!made->work_.then(*made)) made->call();
    return true;
  }

 private:
  callback(function finishes, Work& posted, Function& called) noexcept
      : continuation(finishes), work_(std::move(posted)), last_(std::move(called)) {}
  /// Calls the function, which may destroy this object.
  void finish() noexcept {
    Function last = std::move(last_);
    last(work_.wait());
  }

  Work work_;
  Function last_;
};

/// Makes `channel::poll` call a function with the result of a request, and keeps the handle and the
/// function until that call. Allocates one record, which holds both.
///
///     VERBSPP_TRYV(then(link.post_write(shared, {.remote = theirs}),
///                       [](const transport_result<completed_work>& done) { ... }));
///
/// The function is called once, on the thread that polls, closes, renews or destroys the channel;
/// `then` itself calls it if the result is available already. It may do anything that the thread
/// may do with the channel, and may destroy the channel; an exception that it throws ends the
/// program. If the channel breaks, is closed or is destroyed first, the function gets an error, so
/// the record does not outlive the channel.
///
/// Borrowed memory, and all objects to which the function refers, have to live until the call.
/// Thread rule: as for the channel.
/// \errors `resource_exhausted`: the function is never called, and the handle is unchanged
template <FollowableWork Work, CallbackOf<Work> Function>
result<void> then(Work&& posted, Function called) noexcept
  requires(!std::is_reference_v<Work>)
{
  if (!callback<Work, Function>::begin(posted, called))
    return error(error_kind::resource_exhausted, "then",
                 "out of memory for the record of the callback; the function is never called");
  return success();
}
/// As above, but takes the result of a function that posts, such as `post_write`.
/// \errors as above, except that the handle is destroyed, and its destructor may wait for the
/// request; the errors of posting, in which case the function is never called
template <FollowableWork Work, CallbackOf<Work> Function>
result<void> then(result<Work>&& posted, Function called) noexcept {
  if (!posted.has_value()) return posted.assume_error();
  return then(std::move(posted).assume_value(), std::move(called));
}

}  // namespace verbspp
