// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// The class is not hidden, because an exported class has a member of this type. Its functions,
// except the destructor, are hidden, because only the library calls them.
#define VERBSPP_DETAIL_HIDDEN [[gnu::visibility("hidden")]]

namespace verbspp::detail {

/// Uses a shared secret in an exchange: each side proves that it knows the secret, and then all
/// frames except refusals are encrypted. A relay that forwards the frames between two sides cannot
/// read the encrypted bodies.
///
/// The algorithms are HMAC-SHA256 and AES-256-GCM, from OpenSSL's libcrypto. All keys are specific
/// to this exchange and to one direction, because they are derived from the secret and from the
/// hellos of both sides, which contain random nonces.
class frame_seal {
 public:
  static constexpr std::size_t shortest_secret = 16;
  static constexpr std::size_t longest_secret = 256;
  static constexpr std::size_t proof_size = 32;
  /// The number of bytes that sealing adds to a frame.
  static constexpr std::size_t tag_size = 16;

  /// \errors `invalid_input` for a secret that is too short or too long; `not_supported` if the
  /// library was built without libcrypto; `resource_exhausted`
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN static result<owned<frame_seal>> create(
      std::span<const std::byte> secret) noexcept;
  frame_seal(const frame_seal&) = delete;
  frame_seal& operator=(const frame_seal&) = delete;
  ~frame_seal();

  /// Derives the keys and proofs from the secret and from the bytes of both hellos as they are
  /// sent. \returns false if libcrypto fails
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN bool derive(std::span<const std::byte> own,
                                                  std::span<const std::byte> theirs) noexcept;
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN const std::array<std::byte, proof_size>& own_proof()
      const noexcept {
    return own_proof_;
  }
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN bool is_proof(
      std::span<const std::byte> proof) const noexcept;

  /// Encrypts the body in place, and writes the tag. The header is authenticated as well.
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN bool seal(std::span<const std::byte> header,
                                                std::span<std::byte> body,
                                                std::span<std::byte, tag_size> tag) noexcept;
  /// Reverses `seal`; returns false if the header, the body or the tag was changed.
  [[nodiscard]] VERBSPP_DETAIL_HIDDEN bool open(std::span<const std::byte> header,
                                                std::span<std::byte> body,
                                                std::span<const std::byte, tag_size> tag) noexcept;

 private:
  using key = std::array<std::byte, 32>;

  frame_seal() noexcept = default;

// Without libcrypto, these members are not used.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-private-field"
#endif
  std::array<std::byte, longest_secret> secret_{};
  std::size_t secret_size_ = 0;
  key own_key_{};
  key their_key_{};
  std::array<std::byte, proof_size> own_proof_{};
  std::array<std::byte, proof_size> their_proof_{};
  std::uint64_t sealed_ = 0;
  std::uint64_t opened_ = 0;
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
};

}  // namespace verbspp::detail

#undef VERBSPP_DETAIL_HIDDEN
