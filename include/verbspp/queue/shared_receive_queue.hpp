// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/capacities.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <utility>

namespace verbspp {

/// The granted capacities of a shared receive queue, which are at least those requested.
struct shared_receive_queue_capacities {
  std::uint32_t max_work_requests = 0;
  std::uint32_t max_elements = 0;  ///< scatter-gather elements per receive
};

/// The result of querying a shared receive queue.
struct shared_receive_queue_status {
  shared_receive_queue_capacities capacities;
  /// The limit that was set by `arm_limit`; 0 if no event is requested.
  std::uint32_t limit = 0;
};

namespace detail {

struct shared_receive_queue_state : counted {
  shared_receive_queue_state(protection_domain parent, ibv_srq* made,
                             shared_receive_queue_capacities granted, ownership whose) noexcept
      : owner(std::move(parent)), native(made), capacities(granted), destroyed_by(whose) {}
  shared_receive_queue_state(const shared_receive_queue_state&) = delete;
  shared_receive_queue_state& operator=(const shared_receive_queue_state&) = delete;
  ~shared_receive_queue_state();

  protection_domain owner;
  ibv_srq* native;
  shared_receive_queue_capacities capacities;
  ownership destroyed_by;
  std::uint64_t created_at = moment_now();
};

}  // namespace detail

/// A queue of receives that several queue pairs share. A message to any of them uses the oldest
/// receive.
///
/// A shared handle, which is cheap to copy. The queue keeps its protection domain alive, and queue
/// pairs keep the queue alive. Thread rule: as with an `ibv_srq`, several threads may post at the
/// same time, unless the queue belongs to a thread domain.
///
/// A moved-from handle is empty: its native handle is null, its capacities are 0, and calls that
/// need the device return `invalid_input`. Posting to it, or calling its `protection_domain`, is an
/// error, for which debug builds have an assertion.
class shared_receive_queue {
 public:
  /// Creates a queue (`ibv_create_srq`) for at least `max_work_requests` receives, each with up to
  /// `max_elements` elements.
  /// \errors `invalid_input` above the device's limits, or if `max_work_requests` is 0;
  /// `not_supported`; `resource_exhausted`, `driver`
  [[nodiscard]] static result<shared_receive_queue> create(const class protection_domain& domain,
                                                           work_request_count max_work_requests,
                                                           element_count max_elements = 1) noexcept;

  /// Takes over or borrows a queue of this protection domain that was created elsewhere, and
  /// queries its size (`ibv_query_srq`).
  /// \errors `invalid_input` for null, or for a queue of another protection domain;
  /// `resource_exhausted`, `driver`
  [[nodiscard]] static result<shared_receive_queue> from_native(
      const class protection_domain& domain, ibv_srq* native, ownership whose) noexcept;
  /// Releases the queue to the caller, which must destroy it before its protection domain.
  /// \errors `busy` if there are other handles to the queue, such as one that a queue pair keeps;
  /// this handle then keeps the queue. `invalid_input` if this handle was moved from
  [[nodiscard]] result<ibv_srq*> release() && noexcept;

  /// Provides memory for a message to any of the queue pairs (`ibv_post_srq_recv`). The memory
  /// belongs to the device until the completion arrives, in the completion queue of the queue pair
  /// that got the message. If UD queue pairs use the queue, the first 40 bytes are for the global
  /// route header.
  /// \errors `would_block` if the queue is full, `invalid_input` for too many elements, `driver`
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post_receive(const receive_operation& what,
                                                            receive_tag tag = {}) const noexcept {
    assert(state_ && "this shared receive queue was moved from");
    return detail::post_one_receive(
        what, tag, operation, state_->capacities.max_elements,
        [this](auto* list, auto* rejected) { return ibv_post_srq_recv(native_, list, rejected); });
  }
  /// Posts up to `Requests` receives with one doorbell; see `queue_pair::post_receive_batch`.
  template <std::size_t Requests, std::size_t Elements = Requests, class Fill>
  [[nodiscard]] VERBSPP_DATA_PATH batch_result post_receive_batch(Fill fill) const {
    assert(state_ && "this shared receive queue was moved from");
    detail::list_storage<ibv_recv_wr, Requests, Elements> storage;
    detail::listed_posting list(storage);
    receive_batch batch(list);
    fill(batch);
    return list.post(operation, state_->capacities.max_elements,
                     [this](auto* first, auto* rejected) {
                       return ibv_post_srq_recv(native_, first, rejected);
                     });
  }

  /// Requests one asynchronous event (`IBV_EVENT_SRQ_LIMIT_REACHED`) when fewer than `limit`
  /// receives are left (`ibv_modify_srq`); 0 cancels it.
  /// \errors `invalid_input` above the capacity, `driver`
  [[nodiscard]] result<void> arm_limit(std::uint32_t limit) const noexcept;
  /// Queries the device (`ibv_query_srq`).
  /// \errors `driver`
  [[nodiscard]] result<shared_receive_queue_status> query() const noexcept;

  shared_receive_queue(const shared_receive_queue&) noexcept = default;
  shared_receive_queue(shared_receive_queue&& other) noexcept
      : state_(std::move(other.state_)), native_(std::exchange(other.native_, nullptr)) {}
  shared_receive_queue& operator=(shared_receive_queue other) noexcept {
    std::swap(state_, other.state_);
    std::swap(native_, other.native_);
    return *this;
  }
  ~shared_receive_queue() = default;

  /// The granted capacities.
  [[nodiscard]] shared_receive_queue_capacities capacities() const noexcept {
    return state_ ? state_->capacities : shared_receive_queue_capacities{};
  }
  [[nodiscard]] const class protection_domain& protection_domain() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    assert(state_ && "this shared receive queue was moved from");
    return state_->owner;
  }
  [[nodiscard]] class protection_domain protection_domain() && noexcept {
    return std::as_const(*this).protection_domain();
  }
  [[nodiscard]] ibv_srq* native_handle() const noexcept { return native_; }
  /// True for copies of the same handle.
  friend bool operator==(const shared_receive_queue& a, const shared_receive_queue& b) noexcept {
    return a.state_ == b.state_;
  }

 private:
  friend class async_event;
  static constexpr const char* operation = "ibv_post_srq_recv";

  explicit shared_receive_queue(
      detail::reference<detail::shared_receive_queue_state> state) noexcept
      : state_(std::move(state)), native_(state_->native) {}

  detail::reference<detail::shared_receive_queue_state> state_;
  ibv_srq* native_;  // copied from the state, to save a load in the data path
};

std::ostream& operator<<(std::ostream& out, const shared_receive_queue& queue);

}  // namespace verbspp
