// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>

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
  [[nodiscard]] result<bool> advance() noexcept;
  [[nodiscard]] result<cm_identifier> finish() noexcept;
  /// Waits and calls `advance` until the route is resolved, and then calls `finish`.
  [[nodiscard]] result<cm_identifier> run() noexcept;
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return limit_.sleep_until(); }

 private:
  enum class state : std::uint8_t { address, route, done };
  cm_resolution(cm_identifier id, const wait_limit& limit) noexcept
      : id_(std::move(id)), limit_(limit) {}
  error fail(const error& why) noexcept;

  cm_identifier id_;
  wait_limit limit_;
  std::optional<error> failed_{};
  state state_ = state::address;
};

}  // namespace verbspp::detail
