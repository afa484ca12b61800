// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/stoppable_limit.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>

#include <poll.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp::detail {

/// Resolves an address, and then the route to it.
class cm_resolution {
 public:
  [[nodiscard]] static result<cm_resolution> start(const cm_address& destination,
                                                   const cm_route_options& options,
                                                   cm_service service,
                                                   const wait_limit& limit) noexcept;
  [[nodiscard]] result<bool> poll() noexcept;
  [[nodiscard]] result<cm_identifier> finish() noexcept;
  /// Waits and calls `poll` until the route is resolved, and then calls `finish`.
  [[nodiscard]] result<cm_identifier> run() noexcept;
  [[nodiscard]] int file_descriptor() const noexcept {
    return descriptor_.get(id_.file_descriptor(), POLLIN, limit_);
  }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return descriptor_.alarm(limit_);
  }

 private:
  enum class state : std::uint8_t { address, route, done };
  cm_resolution(cm_identifier id, const wait_limit& limit) noexcept
      : id_(std::move(id)), limit_(limit) {}
  error fail(const error& why) noexcept;

  cm_identifier id_;
  wait_limit limit_;
  mutable session_descriptor descriptor_{};  ///< created when it is first needed
  std::optional<error> failed_{};
  state state_ = state::address;
};

}  // namespace verbspp::detail
