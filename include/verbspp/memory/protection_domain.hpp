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
  // Of a parent domain; none otherwise.
  reference<protection_domain_state> below{};
  reference<thread_domain_state> threads{};
};

}  // namespace detail

/// What memory regions and queue pairs have to share in order to work together.
///
/// A shared handle, cheap to copy; it keeps its context alive, and is released when the last copy
/// and the last object made in it are gone. Thread-safe. What shall be made in one that was moved
/// from is refused (`invalid_input`).
class protection_domain {
 public:
  /// `ibv_alloc_pd`.
  /// \errors `resource_exhausted`, `driver`; `invalid_input` if the context was moved from
  [[nodiscard]] static result<protection_domain> allocate(const context& parent) noexcept;
  /// The same protection domain, for what only one thread at a time uses
  /// (`ibv_alloc_parent_domain`): queue pairs and shared receive queues that are made with it
  /// belong to the thread domain, and may work without locks. Regions, windows and address handles
  /// are made in the domain below, and work with the queue pairs of both. It keeps both alive.
  /// \errors `not_supported` where the driver has none; `invalid_input` if the two are of different
  /// contexts, or one was moved from; `resource_exhausted`, `driver`
  [[nodiscard]] static result<protection_domain> create_parent(
      const protection_domain& domain, const thread_domain& threads) noexcept;
  /// Takes over, or borrows, a protection domain of this context.
  /// \errors `invalid_input` for null, or one of another context
  [[nodiscard]] static result<protection_domain> from_native(const class context& parent,
                                                             ibv_pd* native,
                                                             ownership whose) noexcept;
  /// Gives the protection domain away as it is: whoever takes it deallocates it, before the
  /// context.
  /// \errors `busy` while there are other handles of it, or objects in it, and it stays as it is;
  /// `invalid_input` for one that `create_parent` made, or that was moved from
  [[nodiscard]] result<ibv_pd*> release() && noexcept;

  /// Starts the builder of a channel, of transport RC or the one that is named
  /// (`build_channel<transport::uc>()`); defined in <verbspp/channel.hpp>.
  template <auto... Transport>
  [[nodiscard]] auto build_channel() const noexcept;

  /// As one that was moved from, if this protection domain was.
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept { return std::as_const(*this).context(); }
  /// The domain that regions belong to: this one, unless `create_parent` made it.
  [[nodiscard]] protection_domain below() const noexcept;
  /// Null if this protection domain was moved from.
  [[nodiscard]] ibv_pd* native_handle() const noexcept { return state_ ? state_->native : nullptr; }
  friend bool operator==(const protection_domain& a, const protection_domain& b) noexcept {
    return a.native_handle() == b.native_handle();
  }

 private:
  friend detail::memory_registration;  // of which there may be one of no domain
  explicit protection_domain(detail::reference<detail::protection_domain_state> state) noexcept;
  static result<protection_domain> adopt(const class context& parent, ibv_pd* native,
                                         ownership whose, const char* operation) noexcept;

  detail::reference<detail::protection_domain_state> state_;
};

}  // namespace verbspp
