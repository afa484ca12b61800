// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/protection_domain.hpp>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <utility>

namespace verbspp {

/// A registered region of a dma-buf, which is usually memory on another device, such as a graphics
/// card. The RDMA device accesses this memory without a copy. The program itself might be unable to
/// access it.
template <access_flags Rights = access::local_read>
class VERBSPP_CONSUMABLE dmabuf_region : public registered_region<Rights> {
 public:
  /// Used by the library only: takes ownership of a registration that has these rights.
  explicit dmabuf_region(detail::memory_registration registration) noexcept
      : registered_region<Rights>(std::move(registration)) {}

  /// Takes ownership of a registration in this protection domain, or borrows it. The caller vouches
  /// that the registration has at least these rights and starts at `start`, because an `ibv_mr`
  /// contains neither.
  /// \errors `invalid_input` for null, or a registration in a different protection domain
  [[nodiscard]] static result<dmabuf_region> from_native(const class protection_domain& domain,
                                                         ibv_mr* native, ownership whose,
                                                         std::uint64_t start) noexcept {
    VERBSPP_TRY(registration,
                detail::registration_of<Rights>::from_native(domain, native, whose, start));
    return dmabuf_region(std::move(registration));
  }

  friend std::ostream& operator<<(std::ostream& out, const dmabuf_region& region) {
    detail::print(out, "dma-buf region", region.registration_, Rights);
    return out;
  }
};

/// The part of a dma-buf to register.
struct dmabuf_range {
  /// The descriptor that the exporting driver created. The caller keeps ownership of the
  /// descriptor, and may close it after the registration.
  int file_descriptor;
  std::size_t length;        ///< in bytes
  std::uint64_t offset = 0;  ///< in bytes
  /// The address by which scatter-gather elements and peers refer to the first byte. The default is
  /// the offset.
  std::optional<std::uint64_t> start{};
};

/// Registers a part of a dma-buf (`ibv_reg_dmabuf_mr`): `register_dmabuf<access::local_write>(pd,
/// {.file_descriptor = fd, .length = size})`.
/// \errors `invalid_input` for an empty range, a negative file descriptor, a file that is not a
/// dma-buf, a range outside of the dma-buf, rights that include window_bind, on_demand or RDMA
/// flush, or if `start` and `offset` differ modulo the page size; `not_supported` if libibverbs,
/// the kernel or the device lacks support; `driver` (EBADF) if the descriptor is not open;
/// `resource_exhausted`
template <access_flags Rights = access::local_read>
  requires RegistrableRights<Rights>
[[nodiscard]] result<dmabuf_region<Rights>> register_dmabuf(const protection_domain& domain,
                                                            const dmabuf_range& range) noexcept {
  VERBSPP_TRY(registration, detail::registration_of<Rights>::create(
                                domain, detail::dmabuf_part{range.file_descriptor, range.offset},
                                range.length, range.start.value_or(range.offset), Rights));
  return dmabuf_region<Rights>(std::move(registration));
}

}  // namespace verbspp
