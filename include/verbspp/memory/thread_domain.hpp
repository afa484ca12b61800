// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <utility>

namespace verbspp {

namespace detail {

struct thread_domain_state : counted {
  thread_domain_state(context parent, ibv_td* allocated) noexcept
      : owner(std::move(parent)), native(allocated) {}
  thread_domain_state(const thread_domain_state&) = delete;
  thread_domain_state& operator=(const thread_domain_state&) = delete;
  ~thread_domain_state();

  context owner;
  ibv_td* native;
};

}  // namespace detail

/// Promises the driver that only one thread at a time uses the objects that belong to this thread
/// domain.
///
/// Pass a thread domain to `protection_domain::create_parent`. Queue pairs and shared receive
/// queues that are created in the parent domain then belong to the thread domain, and may work
/// without locks. Thread rule: no two threads may post to these queues at the same time, not even
/// to different ones. Violations are not reported, and may corrupt the queues. This is a shared
/// handle, which is cheap to copy. The thread domain is freed when the last copy and the last
/// protection domain that uses it have been destroyed.
class thread_domain {
 public:
  /// Allocates a thread domain (`ibv_alloc_td`).
  /// \errors `not_supported` if the driver has no thread domains; `resource_exhausted`, `driver`;
  /// `invalid_input` if the context was moved from
  [[nodiscard]] static result<thread_domain> create(const context& parent) noexcept;

  /// Null if this thread domain was moved from.
  [[nodiscard]] ibv_td* native_handle() const noexcept { return state_ ? state_->native : nullptr; }
  friend bool operator==(const thread_domain&, const thread_domain&) noexcept = default;

 private:
  friend class protection_domain;
  explicit thread_domain(detail::reference<detail::thread_domain_state> state) noexcept
      : state_(std::move(state)) {}

  detail::reference<detail::thread_domain_state> state_;
};

}  // namespace verbspp
