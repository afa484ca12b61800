// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <iosfwd>
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
  // The two domains that `create_parent` has combined; empty if it did not create this domain.
  reference<protection_domain_state> below{};
  reference<thread_domain_state> threads{};
};

}  // namespace detail

/// A protection domain. Memory regions and queue pairs can work together only if they belong to the
/// same protection domain.
///
/// This is a shared handle, which is cheap to copy and keeps its context alive. Unless the
/// protection domain is borrowed, it is deallocated when the last copy and the last object created
/// in it have been destroyed. Thread-safe. Creating an object in a moved-from protection domain
/// returns `invalid_input`.
class protection_domain {
 public:
  /// Allocates a protection domain (`ibv_alloc_pd`).
  /// \errors `resource_exhausted`, `driver`; `invalid_input` if the context was moved from
  [[nodiscard]] static result<protection_domain> allocate(const context& parent) noexcept;
  /// Creates a parent domain (`ibv_alloc_parent_domain`), which combines a protection domain with a
  /// thread domain. Queue pairs and shared receive queues that are created in it belong to the
  /// thread domain. Only one thread at a time may use them, so the driver may omit locks. Regions,
  /// windows and address handles that are created in it belong to `domain`, and work with queue
  /// pairs of either domain. The parent domain keeps both domains alive. If `domain` is itself a
  /// parent domain, the protection domain from which it was created takes its place.
  /// \errors `not_supported` if the driver has no parent domains; `invalid_input` if the arguments
  /// belong to different contexts, or one of them was moved from; `resource_exhausted`, `driver`
  [[nodiscard]] static result<protection_domain> create_parent(
      const protection_domain& domain, const thread_domain& threads) noexcept;
  /// Takes ownership of a protection domain of this context, or borrows it.
  /// \errors `invalid_input` for null, for a protection domain of a different context, or if the
  /// context was moved from; `resource_exhausted`
  [[nodiscard]] static result<protection_domain> from_native(const class context& parent,
                                                             ibv_pd* native,
                                                             ownership whose) noexcept;
  /// Returns the native protection domain, and ends its use by the library. Unless it was borrowed,
  /// the caller must deallocate it before the context is closed.
  /// \errors `busy` if other handles to it or objects in it exist; this handle then keeps the
  /// protection domain. `invalid_input` if `create_parent` created it, or this handle was moved
  /// from
  [[nodiscard]] result<ibv_pd*> release() && noexcept;

  /// Returns a builder for a channel that uses the transport RC, or the specified transport
  /// (`build_channel<transport::uc>()`). Defined in <verbspp/channel.hpp>.
  template <auto... Transport>
  [[nodiscard]] auto build_channel() const noexcept;

  /// Returns the context. The context of a moved-from protection domain is in the moved-from state,
  /// too.
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept { return std::as_const(*this).context(); }
  /// Returns the domain to which regions belong. For a domain from `create_parent`, this is the
  /// protection domain that it combines with a thread domain; otherwise, it is this domain.
  [[nodiscard]] protection_domain below() const noexcept;
  /// Null if this protection domain was moved from.
  [[nodiscard]] ibv_pd* native_handle() const noexcept { return state_ ? state_->native : nullptr; }
  friend std::ostream& operator<<(std::ostream& out, const protection_domain& domain);
  friend bool operator==(const protection_domain& a, const protection_domain& b) noexcept {
    return a.native_handle() == b.native_handle();
  }

 private:
  friend detail::memory_registration;  // creates handles without a domain
  explicit protection_domain(detail::reference<detail::protection_domain_state> state) noexcept;
  static result<protection_domain> adopt(const class context& parent, ibv_pd* native,
                                         ownership whose, const char* operation) noexcept;

  detail::reference<detail::protection_domain_state> state_;
};

}  // namespace verbspp
