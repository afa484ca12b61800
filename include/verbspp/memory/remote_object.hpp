// SPDX-License-Identifier: Apache-2.0
/// \file
/// Views of a peer's memory as objects: a structure and its fields, or an array and its elements.
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/offset_of.hpp>
#include <verbspp/memory/remote_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace verbspp {

template <class Object>
concept RemoteObject = detail::because(
    std::is_trivially_copyable_v<Object> && std::is_standard_layout_v<Object> &&
        !std::is_array_v<Object>,
    "only types with the same layout on both ends can be addressed remotely: trivially copyable, "
    "with standard layout, and not an array (use remote_array)");

template <class Object, access_flags Rights>
  requires RemoteObject<Object>
class remote_object;
template <class Element, access_flags Rights>
  requires RemoteObject<Element>
class remote_array;

namespace detail {

template <class Member, access_flags Rights>
struct remote_field {
  using type = remote_object<Member, Rights>;
};
template <class Element, std::size_t Size, access_flags Rights>
struct remote_field<Element[Size], Rights> {
  using type = remote_array<Element, Rights>;
};

/// Creates views of memory whose bounds and alignment have already been checked.
struct remote_view {
  template <class View, access_flags Rights>
  [[nodiscard]] static constexpr View make(const remote_memory<Rights>& part) noexcept {
    return View(part);
  }
};

template <class Object>
[[nodiscard]] constexpr result<void> check_alignment(const char* operation,
                                                     std::uint64_t address) noexcept {
  if (address % alignof(Object) == 0) return success();
  return error::out_of_range(operation, "address", address,
                             "the type of the object or element requires a stricter alignment: "
                             "check the offset, and that both ends use the same type");
}

}  // namespace detail

/// One object in a peer's memory, created by `remote_object<header,
/// access::remote_read>::at(memory)`.
///
/// This is a plain value, and also a handle to exactly the remote memory that the object occupies.
/// The object, or one of its fields, such as `object.field(&header::length)`, can be the source or
/// destination of a request. The caller vouches that the peer has such an object at this address,
/// with the same layout and byte order.
template <class Object, access_flags Rights>
  requires RemoteObject<Object>
class remote_object : public remote_memory<Rights> {
 public:
  using value_type = Object;

  /// Returns the object at an offset in bytes.
  /// \errors `invalid_input` if it is not within the memory, or not aligned as its type requires
  [[nodiscard]] static constexpr result<remote_object> at(const remote_memory<Rights>& memory,
                                                          std::uint64_t offset = 0) noexcept {
    VERBSPP_TRY(part, memory.slice(offset, sizeof(Object)));
    VERBSPP_TRYV(detail::check_alignment<Object>("remote_object::at", part.address()));
    return remote_object(part);
  }

  /// Returns a field of the object: a `remote_array` if the field is an array, otherwise a
  /// `remote_object`.
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Object> && (!std::is_function_v<Member>)
  [[nodiscard]] typename detail::remote_field<Member, Rights>::type
      field(Member Owner::* member) const noexcept {
    using view = typename detail::remote_field<Member, Rights>::type;
    return detail::remote_view::make<view>(remote_memory<Rights>(
        this->address() + detail::offset_of<Object>(member), sizeof(Member), this->rkey()));
  }

 private:
  friend detail::remote_view;
  friend remote_array<Object, Rights>;
  explicit constexpr remote_object(const remote_memory<Rights>& part) noexcept
      : remote_memory<Rights>(part) {}
};

/// An array of objects in a peer's memory, created by `remote_array<slot,
/// access::remote_write>::of(memory)`.
template <class Element, access_flags Rights>
  requires RemoteObject<Element>
class remote_array : public remote_memory<Rights> {
 public:
  using value_type = Element;

  /// Returns the whole memory as an array.
  /// \errors `invalid_input` if the length is not a multiple of the element size, or the memory is
  /// not aligned as the element type requires
  [[nodiscard]] static constexpr result<remote_array> of(
      const remote_memory<Rights>& memory) noexcept {
    if (memory.length() % sizeof(Element) != 0)
      return error::out_of_range("remote_array::of", "length in bytes", memory.length(),
                                 "the length is not a multiple of the element size: check that "
                                 "both ends use the same type, or take a slice");
    VERBSPP_TRYV(detail::check_alignment<Element>("remote_array::of", memory.address()));
    return remote_array(memory);
  }

  /// The number of elements.
  [[nodiscard]] constexpr std::uint64_t size() const noexcept {
    return this->length() / sizeof(Element);
  }
  /// Returns the element at `index`.
  /// \errors `invalid_input` if the index is out of range
  [[nodiscard]] constexpr result<remote_object<Element, Rights>> element(
      std::uint64_t index) const noexcept {
    if (index >= size()) {
      constexpr const char* operation = "remote_array::element";
      if (size() == 0) return error::out_of_range(operation, "index", index, "the array is empty");
      return error::above_limit(operation, "index", index, size() - 1);
    }
    return remote_object<Element, Rights>(remote_memory<Rights>(
        this->address() + index * sizeof(Element), sizeof(Element), this->rkey()));
  }
  /// Returns `count` elements, starting at index `first`.
  /// \errors `invalid_input` if they are not within the array
  [[nodiscard]] constexpr result<remote_array> elements(std::uint64_t first,
                                                        std::uint64_t count) const noexcept {
    if (first > size())
      return error::above_limit("remote_array::elements", "index of the first element", first,
                                size());
    if (count > size() - first)
      return error::above_limit("remote_array::elements", "number of elements from the given index",
                                count, size() - first);
    return remote_array(remote_memory<Rights>(this->address() + first * sizeof(Element),
                                              count * sizeof(Element), this->rkey()));
  }

 private:
  friend detail::remote_view;
  explicit constexpr remote_array(const remote_memory<Rights>& part) noexcept
      : remote_memory<Rights>(part) {}
};

}  // namespace verbspp
