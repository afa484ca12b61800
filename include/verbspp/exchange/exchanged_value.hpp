// SPDX-License-Identifier: Apache-2.0
/// \file
/// The types of values that an exchange can send: numbers, `bool`, enumerations, structures that
/// have a name, text and bytes of limited length, and handles to remote memory.
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/exchange/bounded_text.hpp>
#include <verbspp/exchange/detail/field.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/remote_object.hpp>
#include <verbspp/memory/remote_word.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The name that identifies a structure of the program at both ends. A program that specializes
/// this template asserts that the structure's bytes mean the same at both ends. Change the name
/// whenever the structure changes:
///
///     template <>
///     inline constexpr std::string_view verbspp::exchanged_name<greeting> = "greeting 1";
///
/// The name consists of 1 to 31 printable ASCII characters. It is sent to the peer, and has to
/// equal the name that the peer uses. A `remote_object` or `remote_array` of a named structure
/// sends the name as well.
template <class Structure>
inline constexpr std::string_view exchanged_name{};

namespace detail {

constexpr bool is_field_name(std::string_view name) noexcept {
  for (const char letter : name)
    if (letter < ' ' || letter > '~') return false;
  return !name.empty() && name.size() <= longest_field_name;
}

/// The encoding of a type; `exists` is false for types that cannot be sent.
template <class Value>
struct exchanged_field {
  static constexpr bool exists = false;
};

template <class Number>
  requires((std::integral<Number> && !std::same_as<Number, bool>) || std::is_enum_v<Number>) &&
          (sizeof(Number) <= 8)
struct exchanged_field<Number> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = sizeof(Number);
  static constexpr field_description description{
      .kind = static_cast<Number>(-1) < static_cast<Number>(0) ? field_kind::signed_integer
                                                               : field_kind::unsigned_integer,
      .size = sizeof(Number)};
  static constexpr void write(field_writer& out, Number value) noexcept {
    out.number(static_cast<std::uint64_t>(value), sizeof(Number));
  }
  static constexpr result<Number> read(field_reader& in) noexcept {
    VERBSPP_TRY(value, in.number(sizeof(Number)));
    return static_cast<Number>(value);
  }
};

template <>
struct exchanged_field<bool> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = 1;
  static constexpr field_description description{.kind = field_kind::truth, .size = 1};
  static constexpr void write(field_writer& out, bool value) noexcept {
    out.number(value ? 1 : 0, 1);
  }
  static constexpr result<bool> read(field_reader& in) noexcept {
    VERBSPP_TRY(value, in.number(1));
    if (value > 1) return error::out_of_range("exchange: read a bool", "value (0 or 1)", value);
    return value == 1;
  }
};

template <class Number>
  requires std::same_as<Number, float> || std::same_as<Number, double>
struct exchanged_field<Number> {
  using bits = std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>;
  static constexpr bool exists = true;
  static constexpr std::size_t largest = sizeof(Number);
  static constexpr field_description description{.kind = field_kind::floating_point,
                                                 .size = sizeof(Number)};
  static constexpr void write(field_writer& out, Number value) noexcept {
    out.number(std::bit_cast<bits>(value), sizeof(Number));
  }
  static constexpr result<Number> read(field_reader& in) noexcept {
    VERBSPP_TRY(value, in.number(sizeof(Number)));
    return std::bit_cast<Number>(static_cast<bits>(value));
  }
};

/// Encodes a structure as its bytes. The kind of the field includes the byte order, which has to be
/// the same at both ends.
template <class Structure>
  requires(std::is_class_v<Structure> && !exchanged_name<Structure>.empty())
struct exchanged_field<Structure> {
  static_assert(
      is_field_name(exchanged_name<Structure>),
      "the name in verbspp::exchanged_name must consist of 1 to 31 printable ASCII characters");
  static_assert(std::is_trivially_copyable_v<Structure>,
                "a structure is sent as its bytes: it has to be trivially copyable, so it can't "
                "define its own copy or move operations or destructor; replace strings and "
                "containers with arrays, and leave out pointers");
  static_assert(
      std::has_unique_object_representations_v<Structure>,
      "a structure is sent as its bytes: padding would reveal previous contents of memory "
      "to the peer, so replace it with members; send floating-point numbers as separate "
      "values");

  static constexpr bool exists = true;
  static constexpr std::size_t largest = sizeof(Structure);
  static constexpr field_description description{.kind = std::endian::native == std::endian::little
                                                             ? field_kind::structure_little_endian
                                                             : field_kind::structure_big_endian,
                                                 .size = sizeof(Structure),
                                                 .name = exchanged_name<Structure>};
  static void write(field_writer& out, const Structure& value) noexcept {
    out.bytes(std::as_bytes(std::span(&value, 1)));
  }
  static result<Structure> read(field_reader& in) noexcept {
    VERBSPP_TRY(from, in.bytes(sizeof(Structure)));
    std::array<std::byte, sizeof(Structure)> bytes{};
    std::copy(from.begin(), from.end(), bytes.begin());
    return std::bit_cast<Structure>(bytes);
  }
};

template <std::size_t Maximum>
struct exchanged_field<bounded_text<Maximum>> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = 2 + Maximum;
  static constexpr field_description description{.kind = field_kind::text, .size = Maximum};
  static void write(field_writer& out, const bounded_text<Maximum>& value) noexcept {
    out.number(value.size(), 2);
    out.bytes(std::as_bytes(std::span(value.view())));
  }
  static result<bounded_text<Maximum>> read(field_reader& in) noexcept {
    VERBSPP_TRY(size, in.number(2));
    VERBSPP_TRY(from, in.bytes(size));
    return bounded_text<Maximum>::from(
        std::string_view(reinterpret_cast<const char*>(from.data()), from.size()));
  }
};

template <std::size_t Maximum>
struct exchanged_field<bounded_bytes<Maximum>> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = 2 + Maximum;
  static constexpr field_description description{.kind = field_kind::bytes, .size = Maximum};
  static void write(field_writer& out, const bounded_bytes<Maximum>& value) noexcept {
    out.number(value.size(), 2);
    out.bytes(value.view());
  }
  static result<bounded_bytes<Maximum>> read(field_reader& in) noexcept {
    VERBSPP_TRY(size, in.number(2));
    VERBSPP_TRY(from, in.bytes(size));
    return bounded_bytes<Maximum>::from(from);
  }
};

template <access_flags Rights>
struct exchanged_field<remote_memory<Rights>> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = remote_memory<Rights>::encoded_size;
  static constexpr field_description description{.kind = field_kind::remote_memory,
                                                 .rights = Rights};
  static void write(field_writer& out, const remote_memory<Rights>& memory) noexcept {
    out.bytes(memory.encode());
  }
  static result<remote_memory<Rights>> read(field_reader& in) noexcept {
    VERBSPP_TRY(from, in.bytes(largest));
    return remote_memory<Rights>::decode(from);
  }
};

template <class Object, access_flags Rights>
struct exchanged_field<remote_object<Object, Rights>> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = remote_memory<Rights>::encoded_size;
  static constexpr field_description description{.kind = field_kind::remote_object,
                                                 .rights = Rights,
                                                 .size = sizeof(Object),
                                                 .name = exchanged_name<Object>};
  static void write(field_writer& out, const remote_object<Object, Rights>& object) noexcept {
    out.bytes(object.encode());
  }
  static result<remote_object<Object, Rights>> read(field_reader& in) noexcept {
    VERBSPP_TRY(memory, exchanged_field<remote_memory<Rights>>::read(in));
    return remote_object<Object, Rights>::at(memory);
  }
};

template <class Element, access_flags Rights>
struct exchanged_field<remote_array<Element, Rights>> {
  static constexpr bool exists = true;
  static constexpr std::size_t largest = remote_memory<Rights>::encoded_size;
  static constexpr field_description description{.kind = field_kind::remote_array,
                                                 .rights = Rights,
                                                 .size = sizeof(Element),
                                                 .name = exchanged_name<Element>};
  static void write(field_writer& out, const remote_array<Element, Rights>& array) noexcept {
    out.bytes(array.encode());
  }
  static result<remote_array<Element, Rights>> read(field_reader& in) noexcept {
    VERBSPP_TRY(memory, exchanged_field<remote_memory<Rights>>::read(in));
    return remote_array<Element, Rights>::of(memory);
  }
};

template <>
struct exchanged_field<remote_word> {
  using memory = remote_memory<access::remote_atomic>;
  static constexpr bool exists = true;
  static constexpr std::size_t largest = memory::encoded_size;
  static constexpr field_description description{
      .kind = field_kind::remote_word, .rights = access::remote_atomic, .size = 8};
  static void write(field_writer& out, const remote_word& word) noexcept {
    out.bytes(memory(word.address(), 8, word.rkey()).encode());
  }
  static result<remote_word> read(field_reader& in) noexcept {
    VERBSPP_TRY(from, exchanged_field<memory>::read(in));
    return remote_word::at(from);
  }
};

}  // namespace detail

template <class Value>
concept ExchangedValue =
    detail::because(!detail::MayLackValue<Value>,
                    "this is a result or an optional, which may hold no value: get the value with "
                    ".value() or, from a result, with VERBSPP_TRY") &&
    detail::because(
        detail::exchanged_field<Value>::exists,
        "an exchange can't send this type: it can send integers, enumerations, bool, float, "
        "double, bounded_text, bounded_bytes, handles to remote memory, structures for which "
        "verbspp::exchanged_name is specialized, and a std::tuple of these");

namespace detail {

/// The values that one side sends: a single value, or the values in a tuple.
template <class Values>
struct exchanged_values {
  static_assert(ExchangedValue<Values>);
  static constexpr std::array<field_description, 1> description{
      exchanged_field<Values>::description};
  static constexpr std::size_t largest = exchanged_field<Values>::largest;

  static void write(field_writer& out, const Values& value) noexcept {
    exchanged_field<Values>::write(out, value);
  }
  [[nodiscard]] static result<Values> read(field_reader& in) noexcept {
    VERBSPP_TRY(value, exchanged_field<Values>::read(in));
    VERBSPP_TRYV(in.end());
    return value;
  }
};

template <class... Each>
struct exchanged_values<std::tuple<Each...>> {
  static_assert((ExchangedValue<Each> && ...));
  static_assert(sizeof...(Each) <= most_fields,
                "one side can send at most 16 values: combine several of them in a structure");
  static constexpr std::array<field_description, sizeof...(Each)> description{
      exchanged_field<Each>::description...};
  static constexpr std::size_t largest = (std::size_t{0} + ... + exchanged_field<Each>::largest);

  static void write(field_writer& out, const std::tuple<Each...>& values) noexcept {
    std::apply([&](const Each&... each) { (exchanged_field<Each>::write(out, each), ...); },
               values);
  }
  [[nodiscard]] static result<std::tuple<Each...>> read(field_reader& in) noexcept {
    return read_each(in, std::index_sequence_for<Each...>());
  }

 private:
  /// Reads one value. On failure, stores the error in `failure` and returns false.
  template <class Value>
  static bool read_one(field_reader& in, std::optional<Value>& into,
                       std::optional<error>& failure) noexcept {
    auto value = exchanged_field<Value>::read(in);
    if (value.has_value())
      into.emplace(std::move(value).assume_value());
    else
      failure = value.assume_error();
    return value.has_value();
  }
  template <std::size_t... Index>
  static result<std::tuple<Each...>> read_each([[maybe_unused]] field_reader& in,
                                               std::index_sequence<Index...> /*all*/) noexcept {
    std::tuple<std::optional<Each>...> values;
    std::optional<error> failure;
    const bool are_read = (read_one(in, std::get<Index>(values), failure) && ...);
    if (!are_read) return *failure;
    VERBSPP_TRYV(in.end());
    return std::tuple<Each...>(*std::move(std::get<Index>(values))...);
  }
};

}  // namespace detail

}  // namespace verbspp
