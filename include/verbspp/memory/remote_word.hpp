// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/remote_memory.hpp>

#include <cstdint>

namespace verbspp {

template <access_flags Rights>
concept RemotelyAtomic = detail::because(
    Rights.contains(access::remote_atomic),
    "this handle to remote memory lacks access::remote_atomic, which atomic operations need");

/// Eight bytes of a peer's memory, aligned to eight bytes, on which an atomic operation can work.
class remote_word {
 public:
  /// Returns the word at an offset in bytes.
  /// \errors `invalid_input` if it is not within the memory, or its address is not a multiple of 8
  template <access_flags Rights>
    requires RemotelyAtomic<Rights>
  [[nodiscard]] static constexpr result<detail::dependent<remote_word, Rights>> at(
      const remote_memory<Rights>& memory, std::uint64_t offset = 0) noexcept {
    VERBSPP_TRY(part, memory.slice(offset, size));
    if (part.address() % size != 0)
      return error::out_of_range("remote_word::at", "address (a multiple of 8)", part.address(),
                                 "atomic operations need a word that is aligned to 8 bytes: check "
                                 "the offset, and the alignment of the peer's memory");
    return remote_word(part.address(), part.rkey());
  }

  template <class Other>
  remote_word(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  template <access_flags Rights>
  remote_word(const remote_memory<Rights>&)
      VERBSPP_DETAIL_REFUSED(RemotelyAtomic<Rights> || !RemotelyAtomic<Rights>,
                             "an atomic operation works on one word of remote memory: write "
                             ".remote = remote_word::at(memory, offset).value()");
  VERBSPP_DETAIL_NO_DEFAULT(remote_word,
                            "an atomic operation needs a word of remote memory: write "
                            ".remote = remote_word::at(memory, offset).value()");

  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] constexpr remote_key rkey() const noexcept { return rkey_; }
  friend constexpr bool operator==(const remote_word&, const remote_word&) noexcept = default;

 private:
  static constexpr std::uint64_t size = 8;

  constexpr remote_word(std::uint64_t address, remote_key rkey) noexcept
      : address_(address), rkey_(rkey) {}

  std::uint64_t address_;
  remote_key rkey_;
};

}  // namespace verbspp
