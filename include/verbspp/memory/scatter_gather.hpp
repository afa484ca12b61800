// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/refers_elsewhere.hpp>
#include <verbspp/memory/keys.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace verbspp {

class gather_element;

namespace detail {
template <class Type>
concept OnlyForReading = std::is_same_v<Type, gather_element>;
}  // namespace detail

/// A part of registered memory that the device reads. It is the source of a send or an RDMA write.
///
/// Created by `gather` of a region, a buffer or a message. A plain value with the layout of
/// `ibv_sge`. It owns nothing, so the registration and the memory must live until the requests that
/// use the element have completed.
class VERBSPP_VIEW gather_element {
 public:
  VERBSPP_DETAIL_NO_DEFAULT(
      gather_element, "an element is a part of registered memory: write region.gather().value()");
  [[nodiscard]] std::uint64_t address() const noexcept { return native_.addr; }
  [[nodiscard]] std::uint32_t length() const noexcept { return native_.length; }
  [[nodiscard]] local_key lkey() const noexcept { return local_key(native_.lkey); }
  [[nodiscard]] constexpr const ibv_sge& native() const& noexcept VERBSPP_LIFETIMEBOUND {
    return native_;
  }
  [[nodiscard]] constexpr ibv_sge native() && noexcept { return native_; }
  /// True if the `length` bytes at `address` lie within this element.
  [[nodiscard]] bool encloses(std::uint64_t address, std::uint64_t length) const noexcept {
    return address >= native_.addr && length <= native_.length &&
           address - native_.addr <= native_.length - length;
  }
  /// True if another element of the same region lies entirely within this one.
  [[nodiscard]] bool encloses(const gather_element& other) const noexcept {
    return lkey() == other.lkey() && encloses(other.address(), other.length());
  }
  /// Converts an element of memory that the library did not register. The caller vouches that the
  /// memory has the necessary rights.
  [[nodiscard]] static constexpr gather_element from_native(const ibv_sge& native) noexcept {
    return gather_element(native);
  }

 protected:
  // The structure is copied member by member, because compilers copy a whole structure through a
  // vector register, and loading that register has to wait for the preceding stores to the members.
  explicit constexpr gather_element(const ibv_sge& native) noexcept
      : native_{native.addr, native.length, native.lkey} {}

 private:
  ibv_sge native_;
};

/// A part of registered memory that the device writes. It is the destination of a receive or an
/// RDMA read, or of the result of an atomic operation.
///
/// Created by `scatter` of a region, a buffer or a message, which exists only for memory that is
/// registered with local write. A scatter element can also be used as a gather element, because the
/// device may read all registered memory; the reverse is not possible.
class VERBSPP_VIEW scatter_element : public gather_element {
 public:
  VERBSPP_DETAIL_NO_DEFAULT(scatter_element,
                            "an element is a part of registered memory: use the value of "
                            "region.scatter(), as in .result = region.scatter(0, 8).value()");
  template <class Other>
  scatter_element(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  template <class Other>
  scatter_element(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::OnlyForReading<Other>,
                             "gather elements and inline payloads are read-only: the device needs "
                             "an element that it may write, from scatter() of a region or buffer");
  template <class Other>
  scatter_element(const Other&) VERBSPP_DETAIL_REFUSED(
      (!std::is_base_of_v<gather_element, Other> && !detail::MayLackValue<Other> &&
       !detail::OnlyForReading<Other>),
      "this is not an element of registered memory: write region.scatter(offset, length).value() "
      "or buffer.scatter(first, count).value()");
  /// Converts an element of memory that the library did not register. The caller vouches that the
  /// memory has the necessary rights.
  [[nodiscard]] static constexpr scatter_element from_native(const ibv_sge& native) noexcept {
    return scatter_element(native);
  }

 private:
  explicit constexpr scatter_element(const ibv_sge& native) noexcept : gather_element(native) {}
};

static_assert(sizeof(gather_element) == sizeof(ibv_sge) &&
              std::is_standard_layout_v<gather_element> &&
              std::is_trivially_copyable_v<gather_element>);
static_assert(sizeof(scatter_element) == sizeof(ibv_sge) &&
              std::is_standard_layout_v<scatter_element> &&
              std::is_trivially_copyable_v<scatter_element>);

namespace detail {
/// Text or bytes that an inline payload can refer to.
template <class Object>
concept InlineBytes = !std::is_null_pointer_v<Object> &&
                      (std::is_convertible_v<const Object&, std::string_view> ||
                       std::is_convertible_v<const Object&, std::span<const std::byte>>);
}  // namespace detail

/// An object that can be sent inline as it is, because its bytes are its complete value.
template <class Object>
concept InlineObject = std::is_trivially_copyable_v<Object> && !std::is_array_v<Object> &&
                       !detail::InlineBytes<Object> && !detail::RefersElsewhere<Object> &&
                       !detail::MayLackValue<Object> && !std::is_base_of_v<gather_element, Object>;

/// Bytes that are sent within the request itself, so they need not be registered. There can be at
/// most `capacities().max_inline_data` bytes.
///
/// This is a view. The bytes must live until the request has been posted or added to a batch. After
/// that, they may change.
class VERBSPP_VIEW inline_payload {
 public:
  explicit inline_payload(std::span<const std::byte> bytes VERBSPP_LIFETIMEBOUND) noexcept
      : inline_payload(bytes.data(), bytes.size()) {}
  explicit inline_payload(std::string_view text VERBSPP_LIFETIMEBOUND) noexcept
      : inline_payload(text.data(), text.size()) {}
  /// The bytes of one object: `inline_payload(header)`.
  template <class Object>
    requires InlineObject<Object>
  explicit inline_payload(const Object& object VERBSPP_LIFETIMEBOUND) noexcept
      : inline_payload(static_cast<const void*>(&object), sizeof(Object)) {}
  template <class Object>
  explicit inline_payload(const Object&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Object>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  template <class Object>
  explicit inline_payload(const Object&) VERBSPP_DETAIL_REFUSED(
      (!InlineObject<Object> && !detail::InlineBytes<Object> && !detail::MayLackValue<Object>),
      "an inline payload consists of the bytes of one trivially copyable object, of text, or of a "
      "span of std::byte, but not of a pointer, a view or an array: for the elements of an array, "
      "a view or a container, write inline_payload(std::as_bytes(std::span(elements)))");

  [[nodiscard]] const gather_element& element() const& noexcept VERBSPP_LIFETIMEBOUND {
    return native_;
  }
  [[nodiscard]] gather_element element() && noexcept { return native_; }

 private:
  inline_payload(const void* first, std::size_t length) noexcept
      : native_(gather_element::from_native(
            {.addr = reinterpret_cast<std::uintptr_t>(first),
             .length = length < UINT32_MAX ? static_cast<std::uint32_t>(length) : UINT32_MAX,
             .lkey = 0})) {}

  gather_element native_;
};

template <class Element>
class element_list;

namespace detail {

/// The kinds of arguments that programs pass by mistake to a parameter that expects elements.
enum class mistake : std::uint8_t { none, result, for_reading, other_list, no_element };

template <class Element, class Other>
[[nodiscard]] consteval mistake mistake_of() noexcept {
  // NOLINTBEGIN(bugprone-branch-clone): the order of the tests matters
  if constexpr (std::is_base_of_v<Element, Other> || std::is_same_v<element_list<Element>, Other>)
    return mistake::none;
  else if constexpr (MayLackValue<Other>)
    return mistake::result;
  else if constexpr (std::is_same_v<Other, gather_element>)
    return mistake::for_reading;
  else if constexpr (std::is_same_v<Other, element_list<gather_element>> ||
                     std::is_same_v<Other, element_list<scatter_element>>)
    return mistake::other_list;
  else if constexpr (std::is_same_v<Other, inline_payload>)
    return std::is_same_v<Element, gather_element> ? mistake::none : mistake::for_reading;
  else if constexpr (std::is_convertible_v<const Other&, std::span<const Element>> ||
                     std::is_convertible_v<Other&, std::span<const Element>>)
    return mistake::none;
  else
    return mistake::no_element;
  // NOLINTEND(bugprone-branch-clone)
}

template <class Element, class Other>
inline constexpr mistake mistaken_for = mistake_of<Element, Other>();

}  // namespace detail

/// The elements of one work request: no element, a single element, a contiguous range of elements,
/// or inline bytes.
///
/// A single element, and the address and length of inline bytes, are stored by value, so a request
/// with these can be stored and returned. The inline bytes themselves, and the elements of a range,
/// are only referred to: they must live until the request has been posted or added to a batch, but
/// not until it completes, because they are copied.
template <class Element>
class element_list {
 public:
  constexpr element_list() noexcept = default;
  constexpr element_list(const Element& single) noexcept
      : single_(Element::from_native(single.native())), size_(1), kind_(kind::single) {}
  /// Constructs a list for bytes that are sent inline. Only lists of gather elements can be
  /// constructed in this way.
  element_list(inline_payload payload VERBSPP_LIFETIMEBOUND) noexcept
    requires std::is_same_v<Element, gather_element>
      : single_(Element::from_native(payload.element().native())), size_(1), kind_(kind::inlined) {}
  template <class Range>
    requires std::is_convertible_v<Range&&, std::span<const Element>> &&
             (!std::is_convertible_v<Range &&, const Element&>) &&
             (!std::is_same_v<std::remove_cvref_t<Range>, element_list>)
  constexpr element_list(Range&& range VERBSPP_LIFETIMEBOUND) noexcept
      : element_list(std::span<const Element>(range), 0) {}

  template <class Other>
  element_list(const Other&)
      VERBSPP_DETAIL_REFUSED((detail::mistaken_for<Element, Other> == detail::mistake::result),
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  template <class Other>
  element_list(const Other&)
      VERBSPP_DETAIL_REFUSED((detail::mistaken_for<Element, Other> == detail::mistake::for_reading),
                             "gather elements and inline payloads are read-only: the device needs "
                             "an element that it may write, from scatter() of a region or buffer");
  template <class Other>
  element_list(const Other&)
      VERBSPP_DETAIL_REFUSED((detail::mistaken_for<Element, Other> == detail::mistake::other_list),
                             "this is the wrong kind of list: sending from memory needs a "
                             "gather_list, and filling memory needs a scatter_list");
  template <class Other>
  element_list(const Other&) VERBSPP_DETAIL_REFUSED(
      (detail::mistaken_for<Element, Other> == detail::mistake::no_element),
      "this is not an element of registered memory: write region.gather().value() for memory that "
      "is sent, or region.scatter().value() for memory that is filled; a buffer has these "
      "functions, too");

  /// Used by the library only: a list of one element that refers to the element, instead of storing
  /// it.
  [[nodiscard]] static constexpr element_list referring_to(
      const Element& only VERBSPP_LIFETIMEBOUND) noexcept {
    return element_list(std::span<const Element>(&only, 1), 0);
  }

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr const Element* begin() const noexcept VERBSPP_LIFETIMEBOUND {
    return is_range() ? range_ : &single_;
  }
  [[nodiscard]] constexpr const Element* end() const noexcept VERBSPP_LIFETIMEBOUND {
    return begin() + size_;
  }

  [[nodiscard]] constexpr bool is_inline() const noexcept { return kind_ == kind::inlined; }
  /// The sum of the lengths, in bytes.
  [[nodiscard]] std::uint64_t total_length() const noexcept {
    if (!is_range()) return single_.length();
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < size_; ++i) total += range_[i].length();
    return total;
  }
  /// Returns the elements as an array for a libibverbs work request. libibverbs does not write to
  /// the array.
  [[nodiscard]] ibv_sge* native() const noexcept VERBSPP_LIFETIMEBOUND {
    return reinterpret_cast<ibv_sge*>(const_cast<Element*>(begin()));
  }
  /// Used by the library only: true if the list refers to its elements instead of storing them.
  [[nodiscard]] constexpr bool is_range() const noexcept { return kind_ == kind::range; }
  /// Used by the library only: returns the stored element. Unlike with `begin`, which selects one
  /// of two addresses, the compiler can keep the list in registers.
  [[nodiscard]] constexpr const Element& single() const noexcept VERBSPP_LIFETIMEBOUND {
    return single_;
  }

 private:
  enum class kind : std::uint8_t { range, single, inlined };

  constexpr element_list(std::span<const Element> range, int) noexcept
      : range_(range.data()), size_(static_cast<std::uint32_t>(range.size())) {}

  // These are separate members instead of a union, because compilers keep only separate members in
  // registers.
  Element single_ = Element::from_native({});
  const Element* range_ = nullptr;
  std::uint32_t size_ = 0;
  kind kind_ = kind::range;
};

using gather_list = element_list<gather_element>;
using scatter_list = element_list<scatter_element>;

}  // namespace verbspp
