// SPDX-License-Identifier: Apache-2.0
/// \file
/// Several requests with one doorbell: as a linked list, or between `ibv_wr_start` and
/// `ibv_wr_complete`.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/batch_error.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/work_request.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

struct queue_pair_capacities;

namespace detail {

/// What a failure of the extended interface means, by the largest that the batch had of each.
[[nodiscard, gnu::cold]] batch_error extended_post_failure(
    int returned, std::uint32_t longest_inline, std::size_t most_elements,
    const queue_pair_capacities& granted) noexcept;
[[nodiscard]] error batch_too_long(const char* what, std::size_t limit) noexcept;

/// A batch on its way through the extended interface.
template <class Native>
class extended_posting {
 public:
  VERBSPP_DATA_PATH explicit extended_posting(Native* native) noexcept : native_(native) {
    ibv_wr_start(native_);
  }
  extended_posting(const extended_posting&) = delete;
  extended_posting& operator=(const extended_posting&) = delete;
  /// Unless `post` was reached, nothing is posted.
  VERBSPP_DATA_PATH ~extended_posting() {
    if (native_ != nullptr) [[unlikely]]
      ibv_wr_abort(native_);
  }

  template <class Request>
  VERBSPP_DATA_PATH void add(const Request& request) noexcept {
    if (!is_sound(request)) [[unlikely]]
      return refuse(unsoundness(request));
    if (!has_call(native_, request)) [[unlikely]]
      return refuse(no_such_operation(name_of(request)));
    native_->wr_id = request.id;
    // The calls say whether data is inline, but some drivers (rxe) look at the flag.
    native_->wr_flags = flags_of(request);
    start(native_, request);
    const native_elements elements = elements_of(request);
    if constexpr (requires { request.elements.is_inline(); })
      if (request.elements.is_inline()) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): libibverbs has the one as the other
        ibv_wr_set_inline_data(native_, reinterpret_cast<void*>(elements.first->addr),
                               elements.first->length);
        if (elements.first->length > longest_inline_) longest_inline_ = elements.first->length;
        return;
      }
    if constexpr (!std::is_same_v<Request, local_invalidate_request> &&
                  !std::is_same_v<Request, window_binding>) {
      if (elements.size == 1) [[likely]] {
        ibv_wr_set_sge(native_, elements.first->lkey, elements.first->addr, elements.first->length);
      } else {
        ibv_wr_set_sge_list(native_, elements.size, elements.first);
        if (elements.size > most_elements_) most_elements_ = elements.size;
      }
    }
  }

  /// Has everything refused.
  VERBSPP_DATA_PATH void refuse(const error& cause) noexcept {
    if (!failure_) failure_ = cause;
  }
  /// Requests are posted together or not at all, so their places don't matter.
  [[nodiscard]] VERBSPP_DATA_PATH static std::size_t next_place() noexcept { return 0; }

  /// Posts all, and calls `then`, or nothing.
  template <class Then>
  [[nodiscard]] VERBSPP_DATA_PATH batch_result post(const queue_pair_capacities& granted,
                                                    Then then) noexcept {
    if (failure_) [[unlikely]]
      return batch_error(*failure_, 0);
    const int returned = ibv_wr_complete(std::exchange(native_, nullptr));
    if (returned != 0) [[unlikely]]
      return extended_post_failure(returned, longest_inline_, most_elements_, granted);
    then();
    return success();
  }

 private:
  Native* native_;  // an ibv_qp_ex
  std::uint32_t longest_inline_ = 0;
  std::size_t most_elements_ = 0;  ///< of a request of several
  std::optional<error> failure_;
};

/// Where the list of a batch is. Written as requests come; to clear it first would cost more than
/// to fill it.
template <class Native, std::size_t Requests, std::size_t Elements>
struct list_storage {
  Native requests[Requests];
  ibv_sge elements[Elements];
};

/// A batch as a linked list. The list is elsewhere, since its address is given away: what counts it
/// can stay in registers.
template <class Native, std::size_t Requests, std::size_t Elements>
class listed_posting {
 public:
  VERBSPP_DATA_PATH explicit listed_posting(
      list_storage<Native, Requests, Elements>& storage) noexcept
      : storage_(storage) {}
  listed_posting(const listed_posting&) = delete;
  listed_posting& operator=(const listed_posting&) = delete;

  template <class Request>
  VERBSPP_DATA_PATH void add(const Request& request) noexcept {
    const native_elements elements = elements_of(request);
    // One by one: clang makes a single condition of "||", which takes more instructions.
    if (next_ == storage_.requests + Requests) [[unlikely]]
      return refuse(batch_too_long("requests of the batch", Requests));
    if (!is_sound(request)) [[unlikely]]
      return refuse(unsoundness(request));
    // A request of one element leaves that as it is: nothing is compared where all are such.
    spare_elements_ -= static_cast<std::ptrdiff_t>(elements.size) - 1;
    if (spare_elements_ < 0) [[unlikely]]
      if (elements.size > static_cast<std::size_t>(storage_.elements + Elements - next_element_))
        return refuse(batch_too_long("elements of the batch", Elements));
    Native& native = *next_;
    fill(native, request);
    native.next = ++next_;
    native.sg_list = next_element_;
    native.num_sge = static_cast<int>(elements.size);
    for (std::size_t i = 0; i < elements.size; ++i) next_element_[i] = elements.first[i];
    next_element_ += elements.size;
  }
  VERBSPP_DATA_PATH void refuse(const error& cause) noexcept {
    if (!failure_) failure_ = cause;
  }
  /// How many requests are before the next one.
  [[nodiscard]] VERBSPP_DATA_PATH std::size_t next_place() const noexcept {
    return static_cast<std::size_t>(next_ - storage_.requests);
  }

  /// Posts the list by `post`, a function of its first request and of where to put the one that was
  /// refused. What was granted, limits or just that of the elements, is a reference, since only a
  /// failure looks at it.
  template <class Granted, class Post>
  [[nodiscard]] VERBSPP_DATA_PATH batch_result post(const char* operation, const Granted& granted,
                                                    Post post) noexcept {
    if (failure_) [[unlikely]]
      return batch_error(*failure_, 0);
    if (next_ == storage_.requests) return success();
    next_[-1].next = nullptr;
    Native* rejected = nullptr;
    const int returned = post(storage_.requests, &rejected);
    if (returned != 0) [[unlikely]]
      return rejection(returned, operation, storage_.requests, rejected, granted);
    return success();
  }

 private:
  template <class Granted>
  [[gnu::cold, gnu::noinline]] static batch_error rejection(int returned, const char* operation,
                                                            const Native* first,
                                                            const Native* rejected,
                                                            const Granted& granted) noexcept {
    if (rejected == nullptr) return {post_failure(returned, operation, 0, 0), 0};
    return {post_failure(returned, operation, *rejected, granted),
            static_cast<std::size_t>(rejected - first)};
  }

  list_storage<Native, Requests, Elements>& storage_;
  Native* next_ = storage_.requests;
  ibv_sge* next_element_ = storage_.elements;
  /// How many there are beyond one for each request that there is room for. Below 0 there may still
  /// be as many as the batch needs.
  std::ptrdiff_t spare_elements_ = std::ptrdiff_t{Elements} - std::ptrdiff_t{Requests};
  std::optional<error> failure_;
};

}  // namespace detail

/// What `post_receive_batch` hands to its function: takes receives of `Shortest` bytes or more, as
/// a `send_batch` takes requests.
template <class Posting, std::size_t Shortest = 0>
class receive_batch {
 public:
  VERBSPP_DATA_PATH explicit receive_batch(Posting& posting) noexcept : posting_(posting) {}
  receive_batch(const receive_batch&) = delete;
  receive_batch& operator=(const receive_batch&) = delete;

  VERBSPP_DATA_PATH void receive(const receive_request& request) noexcept {
    if constexpr (Shortest != 0)
      if (request.elements.total_length() < Shortest) [[unlikely]]
        return posting_.refuse(detail::no_room_for_header(request.elements.total_length()));
    posting_.add(request);
  }

 private:
  Posting& posting_;
};

/// What `queue_pair::post_batch` hands to its function: takes requests, which are posted together
/// when the function returns. The elements of a request need to live only until the call that adds
/// it returns.
template <transport Transport, class Posting, std::size_t Requests>
class send_batch {
 public:
  VERBSPP_DATA_PATH explicit send_batch(Posting& posting) noexcept : posting_(posting) {}
  send_batch(const send_batch&) = delete;
  send_batch& operator=(const send_batch&) = delete;

  VERBSPP_DATA_PATH void send(const send_request& request) noexcept
    requires SendsToItsPeer<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void send(const datagram_request& request) noexcept
    requires SendsDatagrams<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void write(const write_request& request) noexcept
    requires CarriesWrites<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void read(const read_request& request) noexcept
    requires CarriesReads<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void compare_and_swap(const compare_and_swap_request& request) noexcept
    requires CarriesAtomics<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void fetch_and_add(const fetch_and_add_request& request) noexcept
    requires CarriesAtomics<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void send_with_invalidate(const send_with_invalidate_request& request) noexcept
    requires CarriesInvalidation<Transport>
  {
    posting_.add(request);
  }
  VERBSPP_DATA_PATH void local_invalidate(const local_invalidate_request& request) noexcept
    requires CarriesInvalidation<Transport>
  {
    posting_.add(request);
  }
  /// Adds a bind, as of `queue_pair::post_bind`, of a window that this batch binds once. Its handle
  /// is worth something only if the bind is posted.
  template <memory_window_type Type, access_flags Rights>
    requires BindsWindows<Transport> && BoundByRequest<Type>
  [[nodiscard]] VERBSPP_DATA_PATH remote_memory<Rights> bind(memory_window<Type>& window,
                                                             const window_part<Rights>& part,
                                                             const bind_request& request) noexcept {
    const detail::window_binding binding(window.native_handle(), part, request);
    if (binds_ == Requests) [[unlikely]] {
      posting_.refuse(detail::batch_too_long("binds of the batch", Requests));
    } else {
      bound_[binds_++] = {binding.window, binding.rkey, posting_.next_place()};
      posting_.add(binding);
    }
    return part.remote(binding.rkey);
  }

  /// For the library: the windows whose binds were posted, those of the first requests, get their
  /// new keys. Not earlier: drivers look at the old ones while they post.
  VERBSPP_DATA_PATH void keep_keys(std::size_t posted) noexcept {
    for (std::size_t i = 0; i < binds_; ++i)
      if (bound_[i].place < posted) bound_[i].window->rkey = bound_[i].rkey;
  }

 private:
  struct bound_window {
    ibv_mw* window;
    std::uint32_t rkey;
    std::size_t place;
  };

  Posting& posting_;
  std::size_t binds_ = 0;
  bound_window bound_[Requests];  // written as binds come; nothing where none does
};

}  // namespace verbspp
