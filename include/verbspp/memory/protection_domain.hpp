// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <utility>

namespace verbspp {

class protection_domain;
class thread_domain;

namespace detail {

struct thread_domain_state;
class memory_registration;

struct protection_domain_state : counted {
  protection_domain_state(context parent, ibv_pd* allocated, ownership whose) noexcept;
  protection_domain_state(const protection_domain_state&) = delete;
  protection_domain_state& operator=(const protection_domain_state&) = delete;
  ~protection_domain_state();

  context owner;
  ibv_pd* native;
  ownership destroyed_by;
  // Set only for a parent domain.
  reference<protection_domain_state> below{};
  reference<thread_domain_state> threads{};
};

}  // namespace detail

/// A protection domain: memory regions and queue pairs must belong to the same one to work
/// together.
///
/// A shared handle, cheap to copy. It keeps its context alive, and is released when the last copy
/// and the last object created in it have been destroyed. Thread-safe. Creating an object in one
/// that was moved from returns `invalid_input`.
class protection_domain {
 public:
  /// Allocates a protection domain (`ibv_alloc_pd`).
  /// \errors `resource_exhausted`, `driver`; `invalid_input` if the context was moved from
  [[nodiscard]] static result<protection_domain> allocate(const context& parent) noexcept;
  /// Creates a parent domain (`ibv_alloc_parent_domain`) of this domain, for objects that only one
  /// thread at a time uses: queue pairs and shared receive queues that are created with it belong
  /// to the thread domain, and may work without locks. Regions, windows and address handles are
  /// created in the domain below, and work with queue pairs of both. Keeps both domains alive.
  /// \errors `not_supported` if the driver has none; `invalid_input` if the two belong to different
  /// contexts, or one was moved from; `resource_exhausted`, `driver`
  [[nodiscard]] static result<protection_domain> create_parent(
      const protection_domain& domain, const thread_domain& threads) noexcept;
  /// Takes over or borrows a protection domain of this context.
  /// \errors `invalid_input` for null, or one of another context
  [[nodiscard]] static result<protection_domain> from_native(const class context& parent,
                                                             ibv_pd* native,
                                                             ownership whose) noexcept;
  /// Releases the protection domain to the caller, which must deallocate it before the context is
  /// closed.
  /// \errors `busy` while other handles of it, or objects in it, exist, and this handle keeps it;
  /// `invalid_input` for one that `create_parent` created, or that was moved from
  [[nodiscard]] result<ibv_pd*> release() && noexcept;

  /// Starts the builder of a channel, with transport RC or the specified one
  /// (`build_channel<transport::uc>()`). Defined in <verbspp/channel.hpp>.
  template <auto... Transport>
  [[nodiscard]] auto build_channel() const noexcept;

  /// The context; one that was moved from if this protection domain was moved from.
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept { return std::as_const(*this).context(); }
  /// The domain that regions belong to: this one, unless `create_parent` created it.
  [[nodiscard]] protection_domain below() const noexcept;
  /// Null if this protection domain was moved from.
  [[nodiscard]] ibv_pd* native_handle() const noexcept { return state_ ? state_->native : nullptr; }
  friend bool operator==(const protection_domain& a, const protection_domain& b) noexcept {
    return a.native_handle() == b.native_handle();
  }

 private:
  friend detail::memory_registration;  // may have one without a domain
  explicit protection_domain(detail::reference<detail::protection_domain_state> state) noexcept;
  static result<protection_domain> adopt(const class context& parent, ibv_pd* native,
                                         ownership whose, const char* operation) noexcept;

  detail::reference<detail::protection_domain_state> state_;
};

}  // namespace verbspp
