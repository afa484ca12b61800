// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/tcp.hpp"
#include <verbspp/verbspp.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace rcopy {

/// FNV-1a with 64 bits: detects accidental damage and reordering.
class checksum {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte each : bytes) value_ = (value_ ^ std::uint64_t(each)) * 0x100000001b3;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// A file that is read or written at given positions, counted in bytes.
class file {
 public:
  [[nodiscard]] static verbspp::result<file> open_to_read(const std::string& name);
  /// Creates the file if it does not exist.
  [[nodiscard]] static verbspp::result<file> open_to_write(const std::string& name);

  [[nodiscard]] verbspp::result<std::uint64_t> size() const;
  /// Fills `bytes`. Returns an error if the file has become too short for that.
  [[nodiscard]] verbspp::result<void> read(std::uint64_t at, std::span<std::byte> bytes) const;
  [[nodiscard]] verbspp::result<void> write(std::uint64_t at,
                                            std::span<const std::byte> bytes) const;
  /// The checksum of the first `size` bytes.
  [[nodiscard]] verbspp::result<checksum> sum(std::uint64_t size) const;
  [[nodiscard]] verbspp::result<void> truncate(std::uint64_t size) const;
  /// Writes the data to the disk, so that it survives a power failure.
  [[nodiscard]] verbspp::result<void> sync() const;

 private:
  explicit file(tcp::descriptor opened) noexcept : file_(std::move(opened)) {}
  tcp::descriptor file_;
};

[[nodiscard]] verbspp::result<void> rename(const std::string& from, const std::string& to);

}  // namespace rcopy
