// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/group/group_error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The maximum number of ranks: a group cannot have more members.
inline constexpr std::uint32_t most_ranks = 65'535;

/// The values that the ranks have published, and the number of fences that each rank has reached.
class values_of_ranks {
 public:
  explicit values_of_ranks(std::uint32_t size) : fences_(size), last_(size) {}

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(fences_.size());
  }
  void put(std::uint32_t rank, std::string_view key, std::span<const std::byte> value) {
    values_.insert_or_assign({rank, std::string(key)},
                             std::vector<std::byte>(value.begin(), value.end()));
  }
  /// Returns the value; null if the rank has published none under this key.
  [[nodiscard]] const std::vector<std::byte>* get(std::uint32_t rank, std::string_view key) const {
    const auto found = values_.find({rank, std::string(key)});
    return found != values_.end() ? &found->second : nullptr;
  }
  /// Records that the rank has reached its next fence. \returns the fence's number
  std::uint32_t arrive(std::uint32_t rank) noexcept {
    const std::uint32_t fence = ++fences_[rank];
    if (fence - 1 == all_at_ && --last_ == 0) {
      all_at_ = std::ranges::min(fences_);
      last_ = static_cast<std::uint32_t>(std::ranges::count(fences_, all_at_));
    }
    return fence;
  }
  [[nodiscard]] std::uint32_t fences_of(std::uint32_t rank) const noexcept { return fences_[rank]; }
  [[nodiscard]] bool all_at(std::uint32_t fence) const noexcept { return all_at_ >= fence; }
  struct absence {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  [[nodiscard]] absence missing_at(std::uint32_t fence) const noexcept {
    absence found;
    for (std::uint32_t rank = 0; rank < size(); ++rank)
      if (fences_[rank] < fence && found.count++ == 0) found.first = rank;
    return found;
  }

 private:
  std::map<std::pair<std::uint32_t, std::string>, std::vector<std::byte>> values_{};
  std::uint32_t all_at_ = 0;  ///< the last fence that all ranks have reached
  std::vector<std::uint32_t> fences_;
  std::uint32_t last_;  ///< the number of ranks that have not reached the fence after `all_at_`
};

/// Copies a value into the caller's memory, and returns the value's size.
[[nodiscard]] inline result<std::size_t> copy_value(std::span<const std::byte> value,
                                                    std::span<std::byte> into) noexcept {
  if (value.size() > into.size())
    return error::above_limit(
        "get the value of a rank", "bytes", value.size(), into.size(),
        "the value is larger than the memory for it: pass more memory, or run "
        "the same program and the same version of verbspp on all ranks");
  std::ranges::copy(value, into.begin());
  return value.size();
}

[[nodiscard]] inline error moved_from_bootstrap(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this bootstrap was moved from"};
}

/// Calls a function that may run out of memory or threads, and turns its exception into an error.
template <class Function>
[[nodiscard]] auto without_exceptions(const char* operation, Function function) noexcept
    -> decltype(function()) {
#ifdef __cpp_exceptions
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return error::from_errno(ENOMEM, operation);
  } catch (const std::system_error& failed) {
    return error::from_errno(failed.code().value(), operation);
  }
#else
  static_cast<void>(operation);
  return function();
#endif
}

}  // namespace verbspp::detail

#pragma GCC visibility pop
