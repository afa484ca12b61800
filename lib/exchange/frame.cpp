// SPDX-License-Identifier: Apache-2.0
#include "exchange/frame.hpp"

#include <verbspp/base/detail/words.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace verbspp::detail {

namespace {

constexpr std::byte frame_magic_1{0x76}, frame_magic_2{0x78};
constexpr const char* reading_frame = "exchange: read a frame";
constexpr const char* reading_hello = "exchange: read the peer's hello";

bool is_printable(char letter) noexcept { return letter >= ' ' && letter <= '~'; }

std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct described_field {
  std::array<char, 200> text{};
};

/// Describes a field for an error message.
described_field describe(const field_description& field) noexcept {
  described_field made;
  const auto print = [&made](const char* what, const field_description& of) {
    std::snprintf(made.text.data(), made.text.size(), what, of.size, of.size == 1 ? "" : "s");
  };
  struct named {
    access_flags right;
    const char* name;
  };
  std::array<char, 96> rights{};
  const auto add = [&rights](const char* name) {
    const std::size_t used = std::string_view(rights.data()).size();
    std::snprintf(rights.data() + used, rights.size() - used, "%s%s", used == 0 ? "" : "|", name);
  };
  for (const named& each :
       {named{access::remote_write, "write"}, named{access::remote_read, "read"},
        named{access::remote_atomic, "atomic"}, named{access::flush_global, "flush_global"},
        named{access::flush_persistent, "flush_persistent"}}) {
    if (field.rights.contains(each.right)) add(each.name);
  }
  // Only a peer of another version, or one that is hostile, sends other rights.
  if (!access::any_remote.contains(field.rights)) add("other");
  if (field.rights.empty()) add("no rights");
  const auto print_memory = [&](const char* what) {
    std::snprintf(made.text.data(), made.text.size(), what, rights.data(), field.size,
                  field.size == 1 ? "" : "s", static_cast<int>(field.name.size()),
                  field.name.data());
  };
  const auto print_structure = [&](const char* order) {
    std::snprintf(made.text.data(), made.text.size(),
                  "the structure '%.*s' of %u byte%s, %s-endian",
                  static_cast<int>(field.name.size()), field.name.data(), field.size,
                  field.size == 1 ? "" : "s", order);
  };
  switch (field.kind) {
    case field_kind::unsigned_integer:
      print("an unsigned integer of %u byte%s", field);
      break;
    case field_kind::signed_integer:
      print("a signed integer of %u byte%s", field);
      break;
    case field_kind::floating_point:
      print("a floating-point number of %u byte%s", field);
      break;
    case field_kind::truth:
      print("a bool of %u byte%s", field);
      break;
    case field_kind::structure_little_endian:
      print_structure("little");
      break;
    case field_kind::structure_big_endian:
      print_structure("big");
      break;
    case field_kind::text:
      print("text of up to %u byte%s", field);
      break;
    case field_kind::bytes:
      print("a byte string of up to %u byte%s", field);
      break;
    case field_kind::remote_memory:
      std::snprintf(made.text.data(), made.text.size(), "remote memory (%s)", rights.data());
      break;
    case field_kind::remote_object:
      print_memory(field.name.empty() ? "a remote object (%s) of %u byte%s"
                                      : "a remote object (%s) of %u byte%s, named '%.*s'");
      break;
    case field_kind::remote_array:
      print_memory(field.name.empty()
                       ? "a remote array (%s) with elements of %u byte%s"
                       : "a remote array (%s) with elements of %u byte%s, named '%.*s'");
      break;
    case field_kind::remote_word:
      print("a remote word of %u byte%s", field);
      break;
  }
  return made;
}

result<field_description> read_field(field_reader& in) noexcept {
  VERBSPP_TRY(kind, in.number(1));
  VERBSPP_TRY(length, in.number(1));
  VERBSPP_TRY(rights, in.number(2));
  VERBSPP_TRY(size, in.number(4));
  if (kind < static_cast<std::uint64_t>(field_kind::unsigned_integer) ||
      kind > static_cast<std::uint64_t>(field_kind::remote_word))
    return error::out_of_range(reading_hello, "type of a field (1..12)", kind,
                               "the peer sent a type that this version of verbspp does not "
                               "support: use the same version at both ends");
  if (length > longest_field_name)
    return error::above_limit(reading_hello, "length of a structure's name", length,
                              longest_field_name);
  VERBSPP_TRY(name, in.bytes(length));
  if (!std::ranges::all_of(text_of(name), is_printable))
    return error(error_kind::invalid_input, reading_hello,
                 "the name of a structure that the peer sends has characters that are not "
                 "printable ASCII: the peer is another program, or the bytes are damaged");
  return field_description{.kind = static_cast<field_kind>(kind),
                           .rights = access_flags::from_bits(static_cast<unsigned>(rights)),
                           .size = static_cast<std::uint32_t>(size),
                           .name = text_of(name)};
}

}  // namespace

const char* to_string(frame_type type) noexcept {
  switch (type) {
    case frame_type::hello:
      return "hello";
    case frame_type::proof:
      return "proof";
    case frame_type::offer:
      return "offer";
    case frame_type::ready:
      return "ready";
    case frame_type::done:
      return "done";
    case frame_type::refused:
      return "refused";
  }
  return "unknown";
}

std::array<std::byte, frame_header_size> frame_header::encode() const noexcept {
  std::array<std::byte, frame_header_size> bytes{frame_magic_1, frame_magic_2};
  const std::span<std::byte> all(bytes);
  field_writer out(all.subspan(2));
  out.number(frame_version, 1);
  out.number(static_cast<std::uint8_t>(type), 1);
  out.number(length, 4);
  return bytes;
}

result<frame_header> frame_header::decode(
    std::span<const std::byte, frame_header_size> bytes) noexcept {
  if (bytes[0] != frame_magic_1 || bytes[1] != frame_magic_2)
    return error(error_kind::invalid_input, reading_frame,
                 "the received bytes are not a frame of an exchange: the peer is another program, "
                 "or is at another point of its protocol");
  if (const int version = std::to_integer<int>(bytes[2]); version != frame_version)
    return error::mismatch(reading_frame, "format version", frame_version, version,
                           "both ends need versions of verbspp that use the same format");
  const auto type = static_cast<frame_type>(bytes[3]);
  switch (type) {
    case frame_type::hello:
    case frame_type::proof:
    case frame_type::offer:
    case frame_type::ready:
    case frame_type::done:
    case frame_type::refused: {
      field_reader in(bytes.subspan<4>());
      VERBSPP_TRY(length, in.number(4));
      return frame_header{.type = type, .length = static_cast<std::uint32_t>(length)};
    }
  }
  return error::out_of_range(
      reading_frame, "type of the frame", std::to_integer<int>(bytes[3]),
      "the peer is another program, or uses another version of verbspp, or the bytes are damaged");
}

std::size_t hello_frame::encode(std::span<std::byte, largest_hello> body) const noexcept {
  field_writer out(body);
  out.bytes(nonce);
  out.number((has_secret ? 1U : 0U) | (is_of_equals ? 2U : 0U) | (is_accepting ? 4U : 0U) |
                 (is_tied ? 8U : 0U),
             1);
  out.number(0, 1);
  out.number(field_count, 1);
  out.number(application.size(), 1);
  out.number(version, 4);
  if (is_of_equals) out.bytes(party);
  out.bytes(std::as_bytes(std::span(application)));
  for (const field_description& field : std::span(fields).first(field_count)) {
    out.number(static_cast<std::uint8_t>(field.kind), 1);
    out.number(field.name.size(), 1);
    out.number(field.rights.bits, 2);
    out.number(field.size, 4);
    out.bytes(std::as_bytes(std::span(field.name)));
  }
  return out.size();
}

result<hello_frame> hello_frame::decode(std::span<const std::byte> body) noexcept {
  field_reader in(body);
  hello_frame made;
  VERBSPP_TRY(nonce, in.bytes(nonce_size));
  std::ranges::copy(nonce, made.nonce.begin());
  VERBSPP_TRY(flags, in.number(1));
  VERBSPP_TRY(reserved, in.number(1));
  VERBSPP_TRY(count, in.number(1));
  VERBSPP_TRY(length, in.number(1));
  VERBSPP_TRY(version, in.number(4));
  if (flags > 15 || reserved != 0)
    return error(error_kind::mismatch, reading_hello,
                 "the peer requests a feature that this version of verbspp does not support: use "
                 "the same version at both ends");
  if (count > most_fields)
    return error::above_limit(reading_hello, "number of values that the peer sends", count,
                              most_fields);
  if (length > longest_application)
    return error::above_limit(reading_hello, "length of the application's name", length,
                              longest_application);
  if ((flags & 2) != 0) {
    VERBSPP_TRY(party, in.bytes(party_size));
    std::ranges::copy(party, made.party.begin());
  }
  VERBSPP_TRY(application, in.bytes(length));
  made.has_secret = (flags & 1) != 0;
  made.is_of_equals = (flags & 2) != 0;
  made.is_accepting = (flags & 4) != 0;
  made.is_tied = (flags & 8) != 0;
  made.version = static_cast<std::uint32_t>(version);
  made.application = text_of(application);
  if (!is_application(made.application))
    return error(error_kind::invalid_input, reading_hello,
                 "the name of the peer's application has characters that are not printable ASCII: "
                 "the peer is another program, or the bytes are damaged");
  for (; made.field_count < count; ++made.field_count) {
    VERBSPP_TRY(field, read_field(in));
    made.fields[made.field_count] = field;
  }
  VERBSPP_TRYV(in.end());
  return made;
}

refused_frame refused_frame::of(const error& why) noexcept {
  refused_frame made;
  made.kind = why.kind();
  made.size = std::min(why.format(made.reason), made.reason.size() - 1);
  return made;
}

std::size_t refused_frame::encode(std::span<std::byte, largest> body) const noexcept {
  field_writer out(body);
  out.number(static_cast<std::uint8_t>(kind), 1);
  out.bytes(std::as_bytes(std::span(reason).first(size)));
  return out.size();
}

result<refused_frame> refused_frame::decode(std::span<const std::byte> body) noexcept {
  if (body.empty() || body.size() > largest)
    return error::out_of_range(reading_frame, "length of the peer's refusal in bytes (1..301)",
                               body.size(),
                               "the peer is another program, or uses another version of verbspp");
  refused_frame made;
  made.kind = static_cast<error_kind>(body.front());
  made.size = body.size() - 1;
  std::ranges::transform(text_of(body.subspan(1)), made.reason.begin(),
                         [](char letter) { return is_printable(letter) ? letter : '?'; });
  return made;
}

error refused_frame::as_error() const noexcept {
  // Errors of these kinds concern both ends, so the receiver reports the same kind. Errors of other
  // kinds concern only the peer, and become `not_connected` here.
  constexpr std::array shared{error_kind::mismatch, error_kind::permission, error_kind::busy,
                              error_kind::resource_exhausted, error_kind::not_supported};
  const bool is_shared = std::ranges::find(shared, kind) != shared.end();
  const error_kind reported = is_shared ? kind : error_kind::not_connected;
  if (size == 0) return {reported, "exchange", "the peer refused, and gave no reason"};
  return error_in_words_of(reported, "exchange", "the peer refused, with the message: %.*s",
                           static_cast<int>(size), reason.data());
}

result<void> check_fields(std::span<const field_description> expected,
                          std::span<const field_description> sent) noexcept {
  constexpr const char* comparing = "exchange: compare the peer's values with those expected";
  for (std::size_t i = 0; i < std::min(expected.size(), sent.size()); ++i) {
    if (expected[i] == sent[i]) continue;
    return error_in_words_of(error_kind::mismatch, comparing,
                             "value %zu differs: expected %s, but the peer sends %s", i + 1,
                             describe(expected[i]).text.data(), describe(sent[i]).text.data());
  }
  if (sent.size() < expected.size())
    return error_in_words_of(error_kind::mismatch, comparing,
                             "value %zu is missing: expected %s, but the peer sends %zu value%s",
                             sent.size() + 1, describe(expected[sent.size()]).text.data(),
                             sent.size(), sent.size() == 1 ? "" : "s");
  if (sent.size() > expected.size())
    return error_in_words_of(
        error_kind::mismatch, comparing,
        "value %zu is not expected: the peer sends %s, but this side expects %zu value%s",
        expected.size() + 1, describe(sent[expected.size()]).text.data(), expected.size(),
        expected.size() == 1 ? "" : "s");
  return success();
}

bool is_application(std::string_view name) noexcept {
  return name.size() <= longest_application && std::ranges::all_of(name, is_printable);
}

}  // namespace verbspp::detail
