// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include <verbspp/memory/remote_memory.hpp>

#include <cinttypes>
#include <cstdio>
#include <limits>
#include <ostream>

namespace verbspp::detail {

namespace {

// Byte offsets in the encoded form, which remote_memory::encode documents.
constexpr std::size_t magic_at = 0, version_at = 1, rights_at = 2, rkey_at = 4, address_at = 8,
                      length_at = 16;
constexpr std::byte magic{0x6d};
constexpr std::byte version{1};

}  // namespace

std::array<std::byte, remote_memory_encoded_size> encode(
    const remote_memory_description& memory) noexcept {
  std::array<std::byte, remote_memory_encoded_size> bytes{};
  const std::span<std::byte, remote_memory_encoded_size> out(bytes);
  out[magic_at] = magic;
  out[version_at] = version;
  store_big_endian(out.subspan<rights_at, 2>(), memory.rights.bits);
  store_big_endian(out.subspan<rkey_at, 4>(), memory.rkey.value());
  store_big_endian(out.subspan<address_at, 8>(), memory.address);
  store_big_endian(out.subspan<length_at, 8>(), memory.length);
  return bytes;
}

result<remote_memory_description> remote_memory_description::decode(
    std::span<const std::byte> bytes, access_flags needed) noexcept {
  constexpr const char* operation = "decode remote memory";
  if (bytes.size() != remote_memory_encoded_size)
    return error::out_of_range(operation, "length (24 bytes)",
                               static_cast<std::int64_t>(bytes.size()),
                               "pass exactly the bytes that the peer created with encode, and use "
                               "the same version of verbspp at both ends");
  const std::span<const std::byte, remote_memory_encoded_size> in(
      bytes.first<remote_memory_encoded_size>());
  if (in[magic_at] != magic)
    return error(
        error_kind::invalid_input, operation,
        "these bytes are not a remote memory handle: pass bytes that the peer created with encode");
  if (in[version_at] != version)
    return error::mismatch(operation, "format version", std::to_integer<int>(version),
                           std::to_integer<int>(in[version_at]),
                           "use the same version of verbspp at both ends");
  const remote_memory_description memory{
      .address = load_big_endian(in.subspan<address_at, 8>()),
      .length = load_big_endian(in.subspan<length_at, 8>()),
      .rkey = remote_key(static_cast<std::uint32_t>(load_big_endian(in.subspan<rkey_at, 4>()))),
      .rights = access_flags::from_bits(
          static_cast<unsigned>(load_big_endian(in.subspan<rights_at, 2>())))};
  if (!access::any_remote.contains(memory.rights))
    return error::out_of_range(operation, "rights", memory.rights.bits,
                               "the handle contains rights that are not remote access rights: the "
                               "bytes are damaged, or were not created with encode");
  if (memory.length > std::numeric_limits<std::uint64_t>::max() - memory.address)
    return error(
        error_kind::invalid_input, operation,
        "the memory would end at or beyond 2^64: the bytes are damaged, or were not created "
        "with encode from a valid handle");
  if (!memory.rights.contains(needed))
    return error(error_kind::permission, operation,
                 "the handle does not grant all of the requested rights: the peer must grant "
                 "them when it registers the memory or binds the window, and when it creates the "
                 "handle");
  return memory;
}

void print(std::ostream& out, const remote_memory_description& memory) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(),
                "remote memory 0x%" PRIx64 "+%" PRIu64 ", rkey 0x%08" PRIx32 ", ", memory.address,
                memory.length, memory.rkey.value());
  out << text.data();
  if (memory.rights.empty())
    out << "no rights";
  else
    out << memory.rights;
}

}  // namespace verbspp::detail
