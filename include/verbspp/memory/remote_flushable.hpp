// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/remote_memory.hpp>

#include <cstdint>

namespace verbspp {

template <access_flags Rights>
concept RemotelyFlushable =
    detail::because(Rights.intersects(access::flush_global | access::flush_persistent),
                    "this remote memory lacks access::flush_global and access::flush_persistent: "
                    "its owner did not grant flushes");

/// What an RDMA flush is for: any remote memory that grants one, or both, of the placements.
class remote_flushable {
 public:
  template <access_flags Rights>
    requires RemotelyFlushable<Rights>
  constexpr remote_flushable(const remote_memory<Rights>& memory) noexcept
      : address_(memory.address()),
        length_(memory.length()),
        rkey_(memory.rkey()),
        rights_(Rights) {}
  template <class Other>
  remote_flushable(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result, which may hold an error: take the value out of it, "
                             "by .value() or VERBSPP_TRY");
  VERBSPP_DETAIL_NO_DEFAULT(remote_flushable,
                            "a flush needs to know of what: give it .remote = memory of the "
                            "peer, as its region.remote() or remote_memory::decode gives it");

  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  /// In bytes.
  [[nodiscard]] constexpr std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] constexpr remote_key rkey() const noexcept { return rkey_; }
  /// What its owner granted.
  [[nodiscard]] constexpr access_flags rights() const noexcept { return rights_; }

 private:
  std::uint64_t address_;
  std::uint64_t length_;
  remote_key rkey_;
  access_flags rights_;
};

}  // namespace verbspp
