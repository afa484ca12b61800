// SPDX-License-Identifier: Apache-2.0
#include "exchange/frame_seal.hpp"

#include "base/bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#if defined(VERBSPP_HAS_LIBCRYPTO)
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

namespace verbspp::detail {

namespace {

constexpr const char* using_secret = "exchange: use the shared secret";

result<void> check_secret(std::span<const std::byte> secret) noexcept {
  if (secret.size() < frame_seal::shortest_secret)
    return error::out_of_range(using_secret, "length of the secret in bytes (16..256)",
                               secret.size(), "a short secret can be guessed: use 32 random bytes");
  if (secret.size() > frame_seal::longest_secret)
    return error::above_limit(using_secret, "length of the secret in bytes", secret.size(),
                              frame_seal::longest_secret);
  return success();
}

}  // namespace

#if defined(VERBSPP_HAS_LIBCRYPTO)

namespace {

const unsigned char* of_openssl(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* into_openssl(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
int length_of(std::span<const std::byte> bytes) noexcept { return static_cast<int>(bytes.size()); }

/// Owns libcrypto's state for encrypting or decrypting one frame.
class cipher_context {
 public:
  cipher_context() noexcept : context_(::EVP_CIPHER_CTX_new()) {}
  cipher_context(const cipher_context&) = delete;
  cipher_context& operator=(const cipher_context&) = delete;
  ~cipher_context() { ::EVP_CIPHER_CTX_free(context_); }
  [[nodiscard]] EVP_CIPHER_CTX* get() const noexcept { return context_; }

 private:
  EVP_CIPHER_CTX* context_;
};

/// The nonce of a frame is its number, which is never reused under the same key.
std::array<std::byte, 12> numbered(std::uint64_t frame) noexcept {
  std::array<std::byte, 12> made{};
  store_big_endian(std::span(made).last<8>(), frame);
  return made;
}

}  // namespace

result<owned<frame_seal>> frame_seal::create(std::span<const std::byte> secret) noexcept {
  VERBSPP_TRYV(check_secret(secret));
  owned<frame_seal> made(new (std::nothrow) frame_seal);
  if (!made) return error::from_errno(ENOMEM, using_secret);
  std::ranges::copy(secret, made->secret_.begin());
  made->secret_size_ = secret.size();
  return made;
}

frame_seal::~frame_seal() {
  for (const std::span<std::byte> each :
       {std::span<std::byte>(secret_), std::span<std::byte>(own_key_),
        std::span<std::byte>(their_key_)})
    ::OPENSSL_cleanse(each.data(), each.size());
}

bool frame_seal::derive(std::span<const std::byte> own,
                        std::span<const std::byte> theirs) noexcept {
  // Each result is an HMAC of a word that names its purpose, and of both hellos, the sender's
  // first. The words have the same length, and each hello contains its own length, so the text is
  // unambiguous.
  struct derived {
    const char* purpose;
    std::span<const std::byte> sender;
    std::span<const std::byte> receiver;
    std::span<std::byte> into;
  };
  std::array<std::byte, 2048> text{};
  constexpr std::size_t word = 24;
  if (word + own.size() + theirs.size() > text.size()) return false;
  for (const derived& each : {derived{"verbspp exchange 2 proof", own, theirs, own_proof_},
                              derived{"verbspp exchange 2 proof", theirs, own, their_proof_},
                              derived{"verbspp exchange 2 key  ", own, theirs, own_key_},
                              derived{"verbspp exchange 2 key  ", theirs, own, their_key_}}) {
    std::memcpy(text.data(), each.purpose, word);
    const auto behind_sender = std::ranges::copy(each.sender, text.begin() + word).out;
    std::ranges::copy(each.receiver, behind_sender);
    unsigned length = 0;
    if (::HMAC(::EVP_sha256(), secret_.data(), static_cast<int>(secret_size_), of_openssl(text),
               word + own.size() + theirs.size(), into_openssl(each.into), &length) == nullptr ||
        length != each.into.size())
      return false;
  }
  return true;
}

bool frame_seal::is_proof(std::span<const std::byte> proof) const noexcept {
  return proof.size() == their_proof_.size() &&
         ::CRYPTO_memcmp(proof.data(), their_proof_.data(), their_proof_.size()) == 0;
}

bool frame_seal::seal(std::span<const std::byte> header, std::span<std::byte> body,
                      std::span<std::byte, tag_size> tag) noexcept {
  const cipher_context context;
  int length = 0;
  return context.get() != nullptr &&
         ::EVP_EncryptInit_ex(context.get(), ::EVP_aes_256_gcm(), nullptr, of_openssl(own_key_),
                              of_openssl(numbered(sealed_++))) == 1 &&
         ::EVP_EncryptUpdate(context.get(), nullptr, &length, of_openssl(header),
                             length_of(header)) == 1 &&
         (body.empty() || ::EVP_EncryptUpdate(context.get(), into_openssl(body), &length,
                                              of_openssl(body), length_of(body)) == 1) &&
         ::EVP_EncryptFinal_ex(context.get(), into_openssl(tag), &length) == 1 &&
         ::EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, length_of(tag), tag.data()) ==
             1;
}

bool frame_seal::open(std::span<const std::byte> header, std::span<std::byte> body,
                      std::span<const std::byte, tag_size> tag) noexcept {
  const cipher_context context;
  std::array<std::byte, tag_size> expected{};
  std::ranges::copy(tag, expected.begin());
  std::array<std::byte, tag_size> rest{};
  int length = 0;
  return context.get() != nullptr &&
         ::EVP_DecryptInit_ex(context.get(), ::EVP_aes_256_gcm(), nullptr, of_openssl(their_key_),
                              of_openssl(numbered(opened_++))) == 1 &&
         ::EVP_DecryptUpdate(context.get(), nullptr, &length, of_openssl(header),
                             length_of(header)) == 1 &&
         (body.empty() || ::EVP_DecryptUpdate(context.get(), into_openssl(body), &length,
                                              of_openssl(body), length_of(body)) == 1) &&
         ::EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, length_of(expected),
                               expected.data()) == 1 &&
         ::EVP_DecryptFinal_ex(context.get(), into_openssl(rest), &length) == 1;
}

#else

result<owned<frame_seal>> frame_seal::create(std::span<const std::byte> secret) noexcept {
  VERBSPP_TRYV(check_secret(secret));
  return error(error_kind::not_supported, using_secret,
               "verbspp was built without libcrypto: install OpenSSL (libssl-dev), and build "
               "verbspp with -Dsecrets=enabled");
}

// Without libcrypto, no object can be created, so these functions are never called.
frame_seal::~frame_seal() = default;
bool frame_seal::derive(std::span<const std::byte> /*own*/,
                        std::span<const std::byte> /*theirs*/) noexcept {
  return false;
}
bool frame_seal::is_proof(std::span<const std::byte> /*proof*/) const noexcept { return false; }
bool frame_seal::seal(std::span<const std::byte> /*header*/, std::span<std::byte> /*body*/,
                      std::span<std::byte, tag_size> /*tag*/) noexcept {
  return false;
}
bool frame_seal::open(std::span<const std::byte> /*header*/, std::span<std::byte> /*body*/,
                      std::span<const std::byte, tag_size> /*tag*/) noexcept {
  return false;
}

#endif

}  // namespace verbspp::detail
