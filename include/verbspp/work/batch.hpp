// SPDX-License-Identifier: Apache-2.0
/// \file
/// Batches, which consist of several requests that are posted with one doorbell, either as a linked
/// list or between `ibv_wr_start` and `ibv_wr_complete`.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/receive_queue_operations.hpp>
#include <verbspp/work/send_queue_operations.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/transport_error.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace verbspp {

namespace detail {

/// Returns the error for a failure of the extended interface. `longest_inline` is the length of the
/// longest inline data in the batch, and `most_elements` is the length of the longest range of
/// elements.
[[nodiscard, gnu::cold]] batch_error extended_post_failure(
    int returned, std::uint32_t longest_inline, std::size_t most_elements,
    const queue_pair_capacities& granted) noexcept;
/// Returns the error for an addition that would make the batch too long: it would have `count` of
/// `what`, and has room for `limit`.
[[nodiscard]] error batch_too_long(const char* what, std::size_t count, std::size_t limit) noexcept;

/// A batch that is being posted through the extended interface.
template <transport Transport, class Native>
class extended_posting {
 public:
  VERBSPP_DATA_PATH explicit extended_posting(Native* native) noexcept : native_(native) {
    ibv_wr_start(native_);
  }
  extended_posting(const extended_posting&) = delete;
  extended_posting& operator=(const extended_posting&) = delete;
  /// Aborts the batch, unless `post` has passed it to the driver.
  VERBSPP_DATA_PATH ~extended_posting() {
    if (native_ != nullptr) [[unlikely]]
      ibv_wr_abort(native_);
  }

  template <class Operation>
  VERBSPP_DATA_PATH void add(const Operation& operation, work_tag tag) noexcept {
    using traits = operation_traits<Operation>;
    if (!is_sound<Transport>(operation)) [[unlikely]]
      return refuse(unsoundness<Transport>(operation));
    if (!traits::has_call(native_)) [[unlikely]]
      return refuse(no_such_operation(traits::name));
    native_->wr_id = tag.id;
    // The calls below determine whether data is inline, but some drivers (rxe) check the flag.
    native_->wr_flags = flags_of(operation, tag);
    traits::start(native_, operation);
    const native_elements elements = traits::elements(operation);
    if (elements.is_inline) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): libibverbs uses both types for addresses
      ibv_wr_set_inline_data(native_, reinterpret_cast<void*>(elements.single.addr),
                             elements.single.length);
      if (elements.single.length > longest_inline_) longest_inline_ = elements.single.length;
    } else if (elements.range != nullptr) {
      ibv_wr_set_sge_list(native_, elements.size, elements.range);
      if (elements.size > most_elements_) most_elements_ = elements.size;
    } else if (elements.size == 1) {
      ibv_wr_set_sge(native_, elements.single.lkey, elements.single.addr, elements.single.length);
    } else if constexpr (traits::has_elements) {
      // Drivers finish building a request when its elements are set, so this call is necessary even
      // if there are no elements.
      ibv_wr_set_sge_list(native_, 0, nullptr);
    }
  }

  /// Makes `post` fail without posting anything.
  VERBSPP_DATA_PATH void refuse(const error& cause) noexcept {
    if (!failure_) failure_ = cause;
  }
  /// Always returns 0, because the requests are posted together or not at all, so their positions
  /// do not matter.
  [[nodiscard]] VERBSPP_DATA_PATH static std::size_t next_place() noexcept { return 0; }

  /// Posts all requests and calls `then`, or posts nothing.
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
  std::size_t most_elements_ = 0;  ///< the length of the longest range of elements
  std::optional<error> failure_{};
};

/// The default number of inline bytes for which a list of `Requests` requests has room.
template <std::size_t Requests>
inline constexpr std::size_t usual_inline_bytes = Requests < 64 ? 256 * Requests : 16384;

/// The maximum size of a batch's lists, in bytes. It is limited because the lists are on the stack,
/// and threads often have small stacks.
inline constexpr std::size_t largest_list = std::size_t{256} * 1024;

/// The storage for a batch's list of requests. It is left uninitialized until requests are added,
/// because clearing all of it would take time.
template <class Native, std::size_t Requests, std::size_t Elements, std::size_t InlineBytes = 0>
struct list_storage {
  static_assert(Requests > 0, "a batch needs room for at least one request");
  static_assert(because(Requests <= largest_list / sizeof(Native) &&
                            Elements <= largest_list / sizeof(ibv_sge) &&
                            InlineBytes <= largest_list &&
                            Requests * sizeof(Native) + Elements * sizeof(ibv_sge) + InlineBytes <=
                                largest_list,
                        "the list of a batch is stored on the stack, and this one would take more "
                        "than 256 KiB: post several smaller batches"));

  Native requests[Requests];
  ibv_sge elements[Elements > 0 ? Elements : 1];
  std::byte inline_bytes[InlineBytes > 0 ? InlineBytes : 1];
};

/// Builds a batch as a linked list. The list is a separate object, because its address is passed to
/// the driver. The compiler can therefore keep the counters of this object in registers.
template <class Native, std::size_t Requests, std::size_t Elements, std::size_t InlineBytes>
class listed_posting {
 public:
  VERBSPP_DATA_PATH explicit listed_posting(
      list_storage<Native, Requests, Elements, InlineBytes>& storage) noexcept
      : storage_(storage) {}
  listed_posting(const listed_posting&) = delete;
  listed_posting& operator=(const listed_posting&) = delete;

  /// Adds a request with these elements; `fill` writes its other members.
  template <class Fill>
  VERBSPP_DATA_PATH void add(const native_elements& elements, Fill fill) noexcept {
    // These are separate `if` statements, because clang would merge the operands of "||" into one
    // condition, which takes more instructions.
    if (next_ == storage_.requests + Requests) [[unlikely]]
      return refuse(batch_too_long("requests in the batch", Requests + 1, Requests));
    // A request with one element does not change `spare_elements_`. If the compiler knows that all
    // requests have one element, and there is room for one per request, it omits the test.
    spare_elements_ -= static_cast<std::ptrdiff_t>(elements.size) - 1;
    if (spare_elements_ < 0) [[unlikely]]
      if (elements.size > static_cast<std::size_t>(storage_.elements + Elements - next_element_))
        return refuse(batch_too_long(
            "elements in the batch",
            static_cast<std::size_t>(next_element_ - storage_.elements) + elements.size, Elements));
    Native& native = *next_;
    if (elements.is_inline) {
      if (!take_inline(elements.single)) [[unlikely]]
        return refuse(batch_too_long("inline bytes in the batch",
                                     inline_bytes_ + elements.single.length, InlineBytes));
    } else if (elements.range != nullptr) {
      for (std::size_t i = 0; i < elements.size; ++i) next_element_[i] = elements.range[i];
    } else if (elements.size == 1) {
      next_element_->addr = elements.single.addr;
      next_element_->length = elements.single.length;
      next_element_->lkey = elements.single.lkey;
    }
    fill(native);
    native.next = ++next_;
    native.sg_list = next_element_;
    native.num_sge = static_cast<int>(elements.size);
    next_element_ += elements.size;
  }
  VERBSPP_DATA_PATH void refuse(const error& cause) noexcept {
    if (!failure_) failure_ = cause;
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_refused() const noexcept { return failure_.has_value(); }
  /// The index of the next request.
  [[nodiscard]] VERBSPP_DATA_PATH std::size_t next_place() const noexcept {
    return static_cast<std::size_t>(next_ - storage_.requests);
  }

  /// Posts the list by calling `post(first, &rejected)`. If that fails, `rejected` points to the
  /// first request that was not posted; if it is still null, no request was posted. `granted`
  /// contains the limits that the error message shows: the capacities of the queue pair, or the
  /// maximum number of elements. `granted` is a reference, because it is read only after a failure.
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

  /// Copies the bytes to storage that lives until the list is posted. Returns false if there is not
  /// enough room.
  [[nodiscard]] VERBSPP_DATA_PATH bool take_inline(const ibv_sge& bytes) noexcept {
    if (bytes.length > InlineBytes - inline_bytes_) [[unlikely]]
      return false;
    std::byte* const copy = storage_.inline_bytes + inline_bytes_;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): libibverbs uses both types for addresses
    const auto* const from = reinterpret_cast<const std::byte*>(bytes.addr);
    if (bytes.length != 0) std::memcpy(copy, from, bytes.length);
    *next_element_ = {reinterpret_cast<std::uintptr_t>(copy), bytes.length, bytes.lkey};
    inline_bytes_ += bytes.length;
    return true;
  }

  list_storage<Native, Requests, Elements, InlineBytes>& storage_;
  Native* next_ = storage_.requests;
  ibv_sge* next_element_ = storage_.elements;
  std::size_t inline_bytes_ = 0;  ///< the number of copied bytes
  /// The number of free elements, minus the number of requests that can still be added. If it is
  /// negative, the free elements may still be enough, because the batch may have fewer requests.
  std::ptrdiff_t spare_elements_ = std::ptrdiff_t{Elements} - std::ptrdiff_t{Requests};
  std::optional<error> failure_{};
};

}  // namespace detail

/// A batch of receives. `post_receive_batch` passes it to the program's function, which adds
/// receives to the batch. If a receive has fewer than `Shortest` bytes, posting the batch fails.
/// The elements of a receive need to live only until the call that adds the receive returns.
template <class List, std::size_t Shortest = 0>
class receive_batch
    : public receive_queue_operations<receive_batch<List, Shortest>, queue_pair_state::init,
                                      receive_queue_kind::own> {
 public:
  /// Used by the library only.
  VERBSPP_DATA_PATH explicit receive_batch(List& list) noexcept : list_(list) {}
  receive_batch(const receive_batch&) = delete;
  receive_batch& operator=(const receive_batch&) = delete;
  ~receive_batch() = default;

 private:
  friend receive_queue_operations<receive_batch, queue_pair_state::init, receive_queue_kind::own>;

  VERBSPP_DATA_PATH void submit(const receive_operation& operation, receive_tag tag) noexcept {
    if constexpr (Shortest != 0)
      if (operation.elements.total_length() < Shortest) [[unlikely]]
        return list_.refuse(detail::no_room_for_header(operation.elements.total_length()));
    list_.add(detail::native_of(operation.elements),
              [&](ibv_recv_wr& native) { native.wr_id = tag.id; });
  }

  List& list_;
};

/// A batch of requests. `queue_pair::post_batch` passes it to the program's function, which adds
/// requests to the batch. The batch accepts the same requests as the queue pair, except binds of
/// windows of type 1. All of its requests are posted together when the function returns. Ranges of
/// elements and inline bytes need to live only until the call that adds the request returns.
template <transport Transport, posting_interface Posting, class List, std::size_t Requests>
class send_batch
    : public send_queue_operations<send_batch<Transport, Posting, List, Requests>, Transport,
                                   queue_pair_state::ready_to_send, Posting> {
 public:
  /// Used by the library only.
  VERBSPP_DATA_PATH explicit send_batch(List& list) noexcept : list_(list) {}
  send_batch(const send_batch&) = delete;
  send_batch& operator=(const send_batch&) = delete;
  ~send_batch() = default;

  /// Used by the library only: stores the new keys in the windows whose binds are among the first
  /// `posted` requests of the batch. This must not be called before the batch has been posted,
  /// because drivers read the old keys until then.
  VERBSPP_DATA_PATH void keep_keys(std::size_t posted) noexcept {
    for (std::size_t i = 0; i < binds_; ++i)
      if (bound_[i].place < posted) bound_[i].window->rkey = bound_[i].rkey;
  }

 private:
  friend send_queue_operations<send_batch, Transport, queue_pair_state::ready_to_send, Posting>;

  struct bound_window {
    ibv_mw* window;
    std::uint32_t rkey;
    std::size_t place;
  };

  template <class Operation>
  VERBSPP_DATA_PATH void submit(const Operation& operation, work_tag tag) noexcept {
    if constexpr (Posting == posting_interface::extended) {
      list_.add(operation, tag);
    } else {
      if (!detail::is_sound<Transport>(operation)) [[unlikely]]
        return list_.refuse(detail::unsoundness<Transport>(operation));
      list_.add(operation_traits<Operation>::elements(operation),
                [&](ibv_send_wr& native) { detail::fill(native, operation, tag); });
    }
  }
  template <memory_window_type Type, access_flags Rights>
    requires BoundByRequest<Type>
  [[nodiscard]] VERBSPP_DATA_PATH remote_memory<Rights> submit_bind(memory_window<Type>& window,
                                                                    const window_part<Rights>& part,
                                                                    bind_options options,
                                                                    work_tag tag) noexcept {
    if (window.native_handle() == nullptr) [[unlikely]] {
      list_.refuse(detail::window_is_gone("bind in a batch"));
      return part.remote(window.rkey());
    }
    const detail::bind_operation bind(window.native_handle(), part, options);
    if (binds_ == Requests) [[unlikely]] {
      list_.refuse(detail::batch_too_long("binds in the batch", Requests + 1, Requests));
    } else {
      bound_[binds_++] = {bind.window, bind.rkey, list_.next_place()};
      submit(bind, tag);
    }
    return part.remote(remote_key(bind.rkey));
  }

  List& list_;
  std::size_t binds_ = 0;
  bound_window bound_[Requests];  // written as binds are added; unused without binds
};

}  // namespace verbspp
