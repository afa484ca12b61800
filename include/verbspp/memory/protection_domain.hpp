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

struct protection_domain_state : counted {
  protection_domain_state(context parent, ibv_pd* allocated) noexcept
      : owner(std::move(parent)), native(allocated) {}
  protection_domain_state(const protection_domain_state&) = delete;
  protection_domain_state& operator=(const protection_domain_state&) = delete;
  ~protection_domain_state();

  context owner;
  ibv_pd* native;
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
  /// \errors `resource_exhausted`, `driver`
  [[nodiscard]] static result<protection_domain> allocate(const context& parent) noexcept;

  /// As one that was moved from, if this protection domain was.
  [[nodiscard]] const class context& context() const& noexcept VERBSPP_LIFETIMEBOUND;
  [[nodiscard]] class context context() && noexcept { return std::as_const(*this).context(); }
  /// Null if this protection domain was moved from.
  [[nodiscard]] ibv_pd* native_handle() const noexcept {
    return state_ ? state_->native : nullptr;
  }
  friend bool operator==(const protection_domain&, const protection_domain&) noexcept = default;

 private:
  explicit protection_domain(detail::reference<detail::protection_domain_state> state) noexcept
      : state_(std::move(state)) {}

  detail::reference<detail::protection_domain_state> state_;
};

}  // namespace verbspp
