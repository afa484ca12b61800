// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Whatever bytes a peer sends, a decoder must return either an error or a
/// value that encodes to the same bytes, apart from the differences that comments in `decode`
/// describe. The corpus contains examples of each kind of value.

#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/work/datagram.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Checks that the error has a message, and that the message is as long as `format` reports.
void require_words(const verbspp::error& e) {
  require(e.message().size() > 10 && e.message().size() == e.format({}));
}

template <class Decoded>
void decode(std::span<const std::byte> bytes) {
  const auto decoded = Decoded::decode(bytes);
  if (decoded.has_error()) return require_words(decoded.error());
  const auto encoded = decoded.value().encode();
  require(Decoded::decode(encoded).value() == decoded.value());
  // If the bytes contain rights that the handle's type does not have, the decoder drops them.
  constexpr std::size_t rights_at = 2, behind_rights = 4;
  const bool keeps_all = std::same_as<Decoded, verbspp::endpoint>;
  const std::size_t compared_from = keeps_all ? rights_at : behind_rights;
  // An endpoint in the previous format is a prefix of one in the current format, except for the
  // version number.
  const bool is_former = keeps_all && bytes.size() < encoded.size();
  require(is_former ||
          std::ranges::equal(std::span(encoded).first(rights_at), bytes.first(rights_at)));
  require(
      std::ranges::equal(std::span(encoded).subspan(compared_from, bytes.size() - compared_from),
                         bytes.subspan(compared_from)));
}

/// Reads a datagram. The 40 bytes of its header are part of the input, because they also come from
/// the network.
void read_datagram(std::span<const std::byte> bytes) {
  std::vector<std::byte> memory(bytes.begin(), bytes.end());
  ibv_wc native{};
  native.opcode = IBV_WC_RECV;
  native.wc_flags = IBV_WC_GRH;
  native.byte_len = static_cast<std::uint32_t>(memory.size()) + 1;
  const auto datagram =
      verbspp::received_datagram::from(verbspp::work_completion(native), memory).value();
  const bool has_header = memory.size() >= verbspp::datagram_header_size;
  require(datagram.source_address().has_value() == has_header);
  require(datagram.destination_address().has_value() == has_header);
  require(datagram.payload().size() ==
          (has_header ? memory.size() - verbspp::datagram_header_size : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbspp;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  decode<endpoint>(bytes);
  decode<remote_memory<access::all_remote>>(bytes);

  if (const auto end = endpoint::decode(bytes); end.has_value()) {
    require(check_compatible(end.value(), end.value()).has_value());
    endpoint other = end.value();
    other.type = other.type == transport::ud ? transport::rc : transport::ud;
    require_words(check_compatible(end.value(), other).error());

    endpoint newer = end.value();
    ++newer.generation;
    const bool counts = newer.owner != 0 && newer.generation != 0;
    require(check_newer(end.value(), end.value()).has_value() == (end.value().owner == 0));
    require(!counts || check_newer(newer, end.value()).has_value());
    require(!counts || check_newer(end.value(), newer).has_error());
  }
  read_datagram(bytes);
  return 0;
}
