// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/memory/remote_object.hpp>
#include <verbspp/memory/remote_word.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

using verbspp::error_kind;
using verbspp::remote_array;
using verbspp::remote_destination;
using verbspp::remote_key;
using verbspp::remote_memory;
using verbspp::remote_object;
using verbspp::remote_source;
using verbspp::remote_word;

namespace {

namespace access = verbspp::access;

struct inner {
  std::uint16_t first;
  std::uint32_t second;
};

struct header {
  std::uint32_t kind;
  std::uint64_t counter;
  std::array<std::uint16_t, 3> marks;
  inner nested;
  inner several[4];
  std::byte last;
};

struct derived : inner {};

/// An object that is so large that it must not be allocated just to find the offset of its last
/// byte.
struct enormous {
  std::byte first;
  std::byte bulk[std::size_t{1} << 30];
  std::byte last;
};

/// A layout that a peer might use, in which the members are not aligned.
struct [[gnu::packed]] packed {
  std::byte kind;
  std::uint64_t counter;
};

constexpr auto all = access::all_remote;
using accessible = remote_memory<all>;
constexpr accessible page(0x10000, 4096, remote_key(77U));

template <class Object>
auto object_at(std::uint64_t offset) {
  return remote_object<Object, all>::at(page, offset);
}

}  // namespace

TEST_CASE("a remote object covers exactly its bytes") {
  const auto object = object_at<header>(64).value();
  CHECK(object.address() == 0x10040);
  CHECK(object.length() == sizeof(header));
  CHECK(object.rkey() == remote_key(77U));
  CHECK(object == page.slice(64, sizeof(header)).value());
  static_assert(sizeof object == sizeof page);
  static_assert(std::is_trivially_copyable_v<remote_object<header, all>>);
}

TEST_CASE("a field of a remote object has the offset that the compiler chose") {
  const auto object = object_at<header>(64).value();
  const auto check = [&](const accessible& field, std::size_t offset, std::size_t size) {
    CHECK(field.address() == 0x10040 + offset);
    CHECK(field.length() == size);
    CHECK(field.rkey() == remote_key(77U));
  };
  check(object.field(&header::kind), 0, 4);
  check(object.field(&header::counter), offsetof(header, counter), 8);
  check(object.field(&header::marks), offsetof(header, marks), 6);
  check(object.field(&header::last), offsetof(header, last), 1);
  check(object.field(&header::nested).field(&inner::second),
        offsetof(header, nested) + offsetof(inner, second), 4);
  check(object_at<derived>(64).value().field(&inner::second), offsetof(inner, second), 4);
  check(object_at<packed>(64).value().field(&packed::counter), 1, 8);
}

TEST_CASE("fields of an object of 1 GiB take no memory in the program") {
  // The linker defines these symbols for the start and the end of the zero-initialized memory.
  extern char __bss_start;
  extern char _end;
  CHECK(&_end - &__bss_start < std::ptrdiff_t{1} << 26);
  const auto object =
      remote_object<enormous, all>::at(accessible(0, sizeof(enormous), remote_key(1U)));
  CHECK(object.value().field(&enormous::last).address() == offsetof(enormous, last));
}

TEST_CASE("a field that is an array is a remote array") {
  const auto several = object_at<header>(0).value().field(&header::several);
  static_assert(std::is_same_v<decltype(several), const remote_array<inner, all>>);
  CHECK(several.size() == 4);
  CHECK(several.element(3).value().field(&inner::second).address() ==
        0x10000 + offsetof(header, several) + 3 * sizeof(inner) + offsetof(inner, second));
  CHECK(several.element(4).error() == error_kind::invalid_input);
}

TEST_CASE("a remote object must lie within its memory") {
  CHECK(object_at<std::uint64_t>(4088).has_value());
  for (const std::uint64_t offset :
       {std::uint64_t{4096}, std::uint64_t{4089}, UINT64_MAX, UINT64_MAX - 7})
    CHECK(object_at<std::uint64_t>(offset).error() == error_kind::invalid_input);
  CHECK(remote_object<header, all>::at(accessible(0, 8, remote_key(1U))).error() ==
        error_kind::invalid_input);
}

TEST_CASE("a remote object must have the alignment of its type") {
  for (std::uint64_t offset = 0; offset < 16; ++offset) {
    CHECK(object_at<std::uint64_t>(offset).has_value() == (offset % alignof(std::uint64_t) == 0));
    CHECK(object_at<std::uint16_t>(offset).has_value() == (offset % 2 == 0));
    CHECK(object_at<std::byte>(offset).has_value());
  }
  CHECK(object_at<std::uint64_t>(4).error().message() ==
        "remote_object::at: address: 65540 is out of range; the type of the object or element "
        "requires a stricter alignment: check the offset, and that both ends use the same type");
}

TEST_CASE("an element of a remote array must lie within the array") {
  const auto array = remote_array<std::uint32_t, all>::of(page).value();
  CHECK(array.size() == 1024);
  CHECK(array.element(0).value().address() == 0x10000);
  CHECK(array.element(1023).value().address() == 0x10000 + 4092);
  CHECK(array.element(1023).value().length() == 4);
  for (const std::uint64_t index : {std::uint64_t{1024}, UINT64_MAX, UINT64_MAX / 4 + 1})
    CHECK(array.element(index).error() == error_kind::invalid_input);
  CHECK(array.element(1024).error().message() ==
        "remote_array::element: index: 1024 is above the limit of 1023");

  const auto part = array.elements(1000, 24).value();
  CHECK(part.size() == 24);
  CHECK(part.element(0).value() == array.element(1000).value());
  CHECK(array.elements(1024, 0).value().size() == 0);
  CHECK(array.elements(1024, 0).value().element(0).error().message() ==
        "remote_array::element: index: 0 is out of range; the array is empty");
  CHECK(array.elements(1000, 25).error() == error_kind::invalid_input);
  CHECK(array.elements(1025, 0).error() == error_kind::invalid_input);
  CHECK(array.elements(1, UINT64_MAX).error() == error_kind::invalid_input);
}

TEST_CASE("memory whose size does not match the elements of an array is refused") {
  CHECK(remote_array<std::uint64_t, all>::of(accessible(0x1000, 12, remote_key(1U))).error() ==
        error_kind::invalid_input);
  CHECK(remote_array<std::uint64_t, all>::of(accessible(0x1001, 16, remote_key(1U))).error() ==
        error_kind::invalid_input);
  CHECK(remote_array<std::byte, all>::of(accessible(0x1001, 12, remote_key(1U))).has_value());
}

TEST_CASE("a remote object permits the operations of its rights") {
  const auto object = object_at<header>(0).value();
  const remote_source source = object.field(&header::counter);
  CHECK(source.memory().length() == 8);
  const remote_destination destination = object;
  CHECK(destination.memory().address() == object.address());
  CHECK(remote_word::at(object.field(&header::counter)).value().address() ==
        0x10000 + offsetof(header, counter));
  CHECK(remote_word::at(object_at<packed>(0).value().field(&packed::counter)).error() ==
        error_kind::invalid_input);

  using readable = remote_object<header, access::remote_read>;
  static_assert(std::is_convertible_v<readable, remote_source>);
  static_assert(!std::is_convertible_v<readable, remote_destination>);
  CHECK(readable::at(page).value().length() == sizeof(header));
}
