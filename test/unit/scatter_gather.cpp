// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/scatter_gather.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using verbspp::error_kind;
using verbspp::gather_element;
using verbspp::gather_list;
using verbspp::scatter_element;
using verbspp::scatter_list;
using verbspp::detail::element_of;

namespace {

gather_element gathered(std::uint64_t address, std::uint32_t length, std::uint32_t lkey = 7) {
  return gather_element::from_native({address, length, lkey});
}

/// Returns true if the list contains exactly these elements, whether it is read as a C++ range or
/// as an array by libibverbs.
template <class Element>
bool shows(const verbspp::element_list<Element>& list, std::span<const Element> elements) {
  return list.begin() == elements.data() && list.end() == elements.data() + elements.size() &&
         list.size() == elements.size() && list.empty() == elements.empty() &&
         static_cast<const void*>(list.native()) == elements.data();
}

}  // namespace

TEST_CASE("an element can check whether a range lies within it") {
  const auto element = gathered(0x1000, 0x100);
  CHECK(element.encloses(0x1000, 0x100));
  CHECK(element.encloses(0x10ff, 1));
  CHECK(element.encloses(0x1100, 0));
  CHECK_FALSE(element.encloses(0x1101, 0));
  CHECK_FALSE(element.encloses(0xfff, 1));
  CHECK_FALSE(element.encloses(0xfff, 0x102));
  CHECK_FALSE(element.encloses(0x1000, 0x101));
  CHECK_FALSE(element.encloses(0x1001, UINT64_MAX));
  CHECK_FALSE(element.encloses(UINT64_MAX, 2));
  const auto last = gathered(UINT64_MAX - 7, 8);
  CHECK(last.encloses(UINT64_MAX, 1));
  CHECK_FALSE(last.encloses(UINT64_MAX, 2));
}

TEST_CASE("an element contains only elements of the same region") {
  const auto element = gathered(0x1000, 0x100, 7);
  CHECK(element.encloses(element));
  CHECK(element.encloses(gathered(0x1080, 0x80, 7)));
  CHECK_FALSE(element.encloses(gathered(0x1080, 0x81, 7)));
  CHECK_FALSE(element.encloses(gathered(0x1080, 0x80, 8)));
}

TEST_CASE("an element has an address, a length and an lkey") {
  const auto element = gathered(0x1000, 64, 0xabc);
  CHECK(element.address() == 0x1000);
  CHECK(element.length() == 64);
  CHECK(element.lkey() == verbspp::local_key(0xabcU));
  CHECK(element.native().addr == 0x1000);
  CHECK(element.native().length == 64);
  CHECK(element.native().lkey == 0xabc);
}

TEST_CASE("a scatter element can be used as a gather element") {
  const auto written = scatter_element::from_native({0x2000, 8, 5});
  const gather_element read = written;
  CHECK(read.address() == written.address());
  CHECK(read.length() == written.length());
  CHECK(read.lkey() == written.lkey());
}

TEST_CASE("a list of elements can be empty or created from one element or a range") {
  const std::array<gather_element, 3> three{gathered(1, 10), gathered(2, 20), gathered(3, 30)};
  const std::vector<gather_element> some(three.begin(), three.end());
  const std::vector<gather_element> none;

  CHECK(gather_list().empty());
  CHECK(gather_list().native() == nullptr);
  CHECK(shows<gather_element>(three, three));
  CHECK(shows<gather_element>(some, some));
  CHECK(shows<gather_element>(std::span(three).subspan(1), std::span(three).subspan(1)));
  CHECK(shows<gather_element>(std::span(some), some));
  CHECK(gather_list(none).empty());
  CHECK(gather_list(std::span<const gather_element>()).empty());
}

TEST_CASE("a list of one element contains a copy of the element") {
  auto element = gathered(1, 10, 4);
  gather_list list = element;
  element = gathered(2, 20, 5);
  const gather_list copy = list;
  list = gather_list();
  REQUIRE(copy.size() == 1);
  CHECK_FALSE(copy.empty());
  CHECK(copy.begin()->address() == 1);
  CHECK(copy.begin() + 1 == copy.end());
  CHECK(copy.native()->length == 10);
  CHECK(copy.native()->lkey == 4);
  CHECK(copy.total_length() == 10);
  CHECK(static_cast<const void*>(copy.native()) == &*copy.begin());
  CHECK(static_cast<const void*>(copy.native()) != &element);
}

TEST_CASE("bytes, text and objects can be sent inline") {
  struct header {
    std::uint32_t length;
    std::uint32_t kind;
  };
  const header object{1, 2};
  const std::string text = "hello";
  const std::array<std::byte, 3> bytes{};
  const auto shows_bytes = [](const verbspp::inline_payload& payload, const void* first,
                              std::size_t length) {
    const gather_list list = payload;
    return list.is_inline() && list.size() == 1 &&
           list.native()->addr == reinterpret_cast<std::uintptr_t>(first) &&
           list.native()->length == length;
  };
  CHECK(shows_bytes(verbspp::inline_payload(object), &object, sizeof object));
  CHECK(shows_bytes(verbspp::inline_payload(text), text.data(), 5));
  CHECK(shows_bytes(verbspp::inline_payload(std::string_view(text).substr(1)), text.data() + 1, 4));
  CHECK(shows_bytes(verbspp::inline_payload("hello"), "hello", 5));
  CHECK(shows_bytes(verbspp::inline_payload(bytes), bytes.data(), 3));
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, const header*>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::span<const int>>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::wstring_view>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::initializer_list<int>>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::reference_wrapper<int>>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::nullptr_t>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, verbspp::result<int>>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, gather_element>);
  CHECK(std::is_constructible_v<verbspp::inline_payload, std::array<int, 2>>);
  CHECK_FALSE(std::is_constructible_v<verbspp::inline_payload, std::vector<int>>);
}

TEST_CASE("a list of elements is passed to libibverbs unchanged") {
  const std::array<gather_element, 2> two{gathered(0x1000, 10, 1), gathered(0x2000, 20, 2)};
  const gather_list list = two;
  const ibv_sge* const native = list.native();
  CHECK(native[0].addr == 0x1000);
  CHECK(native[1].addr == 0x2000);
  CHECK(native[1].length == 20);
  CHECK(native[1].lkey == 2);
}

TEST_CASE("the length of a list is the sum of its elements even above 32 bits") {
  const std::vector<gather_element> large(3, gathered(0, 0xffffffff));
  CHECK(gather_list().total_length() == 0);
  CHECK(gather_list(large[0]).total_length() == 0xffffffff);
  CHECK(gather_list(large).total_length() == 3 * std::uint64_t{0xffffffff});
  const std::array elements{scatter_element::from_native({0, 5, 1}),
                            scatter_element::from_native({0, 0, 1}),
                            scatter_element::from_native({0, 6, 1})};
  CHECK(scatter_list(elements).total_length() == 11);
}

TEST_CASE("an element must lie within its region whatever its offset and length") {
  constexpr verbspp::detail::registered_range region{
      .start = 0x10000, .length = 0x1000, .lkey = 0x77};
  struct request {
    std::size_t offset;
    std::size_t length;
    bool inside;
  };
  for (const auto& [offset, length, inside] : std::initializer_list<request>{
           {0, 0x1000, true},
           {0, 0, true},
           {0x1000, 0, true},
           {0xfff, 1, true},
           {0x100, 0x200, true},
           {0, 0x1001, false},
           {0x1000, 1, false},
           {0x1001, 0, false},
           {SIZE_MAX, 0, false},
           {SIZE_MAX, 1, false},
           {SIZE_MAX, SIZE_MAX, false},
           {1, SIZE_MAX, false},
           {0x800, SIZE_MAX - 0x7ff, false},
       }) {
    CAPTURE(offset, length);
    const auto element = element_of<gather_element>(region, "gather", offset, length);
    REQUIRE(element.has_value() == inside);
    if (inside) {
      CHECK(element.value().native().addr == 0x10000 + offset);
      CHECK(element.value().length() == length);
      CHECK(element.value().native().lkey == 0x77);
    } else {
      CHECK(element.error() == error_kind::invalid_input);
      CHECK(element.error().operation() == std::string("gather"));
    }
  }
  CHECK(element_of<gather_element>(region, "gather", 1, SIZE_MAX).error().subject() ==
        std::string("number of bytes from the given offset"));
  CHECK(element_of<gather_element>(region, "gather", 4000, 100).error().message() ==
        "gather: number of bytes from the given offset: 100 is above the limit of 96");
}

TEST_CASE("an element has at most 2^32 - 1 bytes however large its region is") {
  constexpr verbspp::detail::registered_range region{
      .start = 0x10000, .length = std::uint64_t{1} << 40, .lkey = 0x77};
  CHECK(element_of<gather_element>(region, "gather", 5, 0xffffffff).value().length() == 0xffffffff);
  for (const std::size_t length : {std::size_t{1} << 32, std::size_t{1} << 33}) {
    const auto element = element_of<gather_element>(region, "gather", 0, length);
    REQUIRE(element.has_error());
    CHECK(element.error().message() ==
          "gather: length of one scatter-gather element in bytes: " + std::to_string(length) +
              " is above the limit of 4294967295; split it into several elements or requests");
  }
}
