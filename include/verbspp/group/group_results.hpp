// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <boost/outcome/success_failure.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>

namespace verbspp {

/// The result for one of the peers of an operation.
struct peer_result {
  std::uint32_t peer = 0;
  transport_result<completed_work> result = error();
};

/// The results of an operation on several peers, each with the number of its peer, in the order in
/// which the peers were listed.
///
///     const group_results done = peers.scatter(peers.all(), part_of);
///     if (!done)
///       for (const peer_result& each : done)
///         if (!each.result) std::cerr << each.peer << ": " << each.result.error() << '\n';
///
/// The operation has succeeded if it succeeded for all peers. `VERBSPP_TRYV` returns a
/// `group_error`, which contains the first failure and the number of failures. A move-only owner.
class [[nodiscard]] group_results {
 public:
  /// Stores the error of an operation that failed as a whole.
  group_results(const class error& refused) noexcept : refused_(refused) {}
  /// Used by the library only.
  group_results(detail::owned<peer_result[]> all, std::uint32_t size) noexcept
      : all_(std::move(all)), size_(size) {
    for (const peer_result& each : *this) failed_ += each.result.has_value() ? 0U : 1U;
  }
  group_results(const group_results&) = delete;
  group_results& operator=(const group_results&) = delete;
  group_results(group_results&& other) noexcept
      : all_(std::move(other.all_)),
        size_(std::exchange(other.size_, 0)),
        failed_(std::exchange(other.failed_, 0)),
        refused_(other.refused_) {}
  group_results& operator=(group_results&& other) noexcept {
    all_ = std::move(other.all_);
    size_ = std::exchange(other.size_, 0);
    failed_ = std::exchange(other.failed_, 0);
    refused_ = other.refused_;
    return *this;
  }
  ~group_results() = default;

  /// True if the operation succeeded for all peers.
  [[nodiscard]] bool has_value() const noexcept { return failed_ == 0 && !refused_; }
  [[nodiscard]] bool has_error() const noexcept { return !has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  /// Raises the error, if there is one.
  void value() const {
    if (!has_value()) error().raise();
  }
  /// The first failure. \pre `has_error()`
  [[nodiscard]] group_error error() const noexcept;
  /// Used by VERBSPP_TRYV.
  [[nodiscard]] detail::failure_type<group_error> as_failure() const noexcept {
    return detail::failure_type<group_error>(error());
  }

  /// The number of results, which is usually the number of listed peers. It is 0 if the operation
  /// failed as a whole, or is a step of a world and has succeeded.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  /// The number of peers for which the operation failed.
  [[nodiscard]] std::uint32_t failed() const noexcept { return failed_; }
  [[nodiscard]] const peer_result* begin() const noexcept { return all_.get(); }
  [[nodiscard]] const peer_result* end() const noexcept { return all_.get() + size_; }
  [[nodiscard]] const peer_result& operator[](std::uint32_t place) const noexcept {
    return all_.get()[place];
  }
  /// Returns one line that lists all failures with their peers, says that all peers succeeded, or
  /// gives the reason why the operation failed as a whole.
  [[nodiscard]] std::string message() const;

 private:
  detail::owned<peer_result[]> all_{};
  std::uint32_t size_ = 0;
  std::uint32_t failed_ = 0;
  std::optional<class error> refused_{};
};

std::ostream& operator<<(std::ostream& out, const group_results& results);

}  // namespace verbspp
