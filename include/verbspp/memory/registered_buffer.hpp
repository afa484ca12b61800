// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/offset_of.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/scatter_gather.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The options for allocating a registered buffer.
struct buffer_options {
  /// The alignment of the first byte, which must be a power of two. The actual alignment is at
  /// least the size of a page.
  std::size_t alignment = 1;
  /// Requests huge pages of 2 MiB, which need fewer entries in the device's translation tables. If
  /// none are available, or `alignment` is above 2 MiB, normal pages are used.
  /// `registered_buffer::pages` returns the kind of pages that the buffer has.
  bool huge_pages = false;
};

/// The kinds of pages of a registered buffer.
enum class page_kind : std::uint8_t {
  normal,
  /// Normal pages that the kernel was asked to replace by huge pages (transparent huge pages). It
  /// is not known whether the kernel does so.
  transparent_huge,
  /// Huge pages, from the pool that the administrator reserved (`vm.nr_hugepages`).
  huge,
};

[[nodiscard]] const char* to_string(page_kind kind) noexcept;

namespace detail {

/// Owns pages of memory, which are initially zero.
class page_range {
 public:
  [[nodiscard]] static result<page_range> allocate(std::size_t count, std::size_t size,
                                                   const buffer_options& options) noexcept;
  page_range(const page_range&) = delete;
  page_range(page_range&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        kind_(std::exchange(other.kind_, page_kind::normal)) {}
  page_range& operator=(const page_range&) = delete;
  page_range& operator=(page_range&&) = delete;  // the previous pages may still be registered
  ~page_range();

  [[nodiscard]] void* data() const noexcept { return first_; }
  [[nodiscard]] page_kind kind() const noexcept { return kind_; }
  /// Leaks the memory, which the device may still use.
  void abandon() noexcept { first_ = nullptr; }

 private:
  page_range(void* first, std::size_t size, page_kind kind) noexcept
      : first_(first), size_(size), kind_(kind) {}

  void* first_;
  std::size_t size_;
  page_kind kind_;
};

/// Destructors call this after they have tried to deregister the memory. If that failed, this
/// function reports the failure, and leaks the memory; otherwise, the destructor of `pages` frees
/// it.
void free_pages(page_range& pages, const result<void>& deregistered) noexcept;

/// The objects that a registered buffer owns. They are allocated separately, so that moving the
/// buffer does not move them.
template <access_flags Rights>
struct registered_pages {
  std::size_t size;             ///< the number of elements
  std::uint32_t length_of_all;  ///< bytes of the buffer; 0 if too long for one element of a request
  std::uint32_t lkey;           ///< equal to `region.lkey()`
  dependent<page_range, Rights> memory;
  memory_region<Rights> region;
};

/// Deregisters and frees the memory of a buffer, and reports any failure. This is not inlined,
/// because many functions destroy a buffer, and their code should stay short.
template <access_flags Rights>
[[gnu::noinline]] void destroy(registered_pages<Rights>* pages) noexcept {
  free_pages(pages->memory, std::move(pages->region).deregister());
  delete pages;
}

/// Returns an empty region, which represents the region of a moved-from buffer.
template <access_flags Rights>
[[nodiscard, gnu::noinline]] const memory_region<Rights>& no_region() noexcept {
  static const memory_region<Rights> none(memory_registration::none());
  return none;
}

}  // namespace detail

/// A type whose objects can be elements of a buffer. Bytes that are all zero must represent a valid
/// object, and copying an object's bytes must copy the object.
template <class Element>
concept BufferElement = detail::because(
    std::is_trivially_copyable_v<Element> && std::is_trivially_default_constructible_v<Element>,
    "the device copies bytes, and all bytes of a new buffer are zero: its elements must be "
    "trivially copyable and trivially default constructible");

template <class Buffer>
class buffer_part;
template <access_flags Rights, class Element>
  requires BufferElement<Element>
class shared_buffer;

#define VERBSPP_DETAIL_CONSTANT_BUFFER                                                          \
  VERBSPP_DETAIL_REFUSED(std::is_void_v<Nothing>&& LocallyWritable<Rights>,                     \
                         "the device would write to a const buffer: declare it without const, " \
                         "or use gather() to send from it")

/// Memory that the library allocates and registers, as an array of elements that are initially
/// zero.
///
/// A buffer is a move-only owner that has the size of two words. The memory stays in place when the
/// buffer is moved, and no other data shares its pages. The destructor deregisters the memory and
/// then frees it. If deregistering fails, the failure is reported (`set_destroy_failure_handler`),
/// and the memory is never freed, since the device may still use it. The buffer keeps its
/// protection domain alive. A moved-from buffer has no elements, and making scatter-gather
/// elements, parts or handles from it returns an error.
///
/// A request uses a buffer in one of three ways. *Borrowed*: the request gets scatter-gather
/// elements, and the caller must ensure that the buffer outlives the request. *Owned*: the buffer,
/// or a `part` of it, is moved into the request, and returned with the result. *Shared*: `share`
/// converts the buffer to a handle that can be copied, and the request keeps the memory alive.
template <access_flags Rights = access::local_write, class Element = std::byte>
  requires BufferElement<Element>
class VERBSPP_CONSUMABLE registered_buffer {
  // The same types as `verbspp::result<Value>` and `detail::page_range`, but instantiated only
  // where they are used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;
  using page_range = detail::dependent<detail::page_range, Rights>;
  using pages_type = detail::registered_pages<Rights>;

 public:
  static constexpr access_flags rights = Rights;
  using value_type = Element;
  /// A handle that grants peers the buffer's remote rights.
  using handle_for_peers = typename memory_region<Rights>::handle_for_peers;

  /// Allocates (`mmap`) and registers (`ibv_reg_mr`) `count` elements.
  /// \errors `invalid_input` if `count` is 0, the alignment is not a power of two, or the elements
  /// or the alignment would take 2^61 bytes or more; `resource_exhausted` if there is not enough
  /// memory, or the process is not allowed to lock that much; those of `register_memory`
  [[nodiscard]] static result<registered_buffer> allocate(
      const class protection_domain& domain, std::size_t count,
      const buffer_options& options = {}) noexcept
    requires RegistrableRights<Rights>
  {
    static_assert(alignof(Element) <= 4096,
                  "the alignment of an element can be at most 4096 bytes");
    VERBSPP_TRY(pages, page_range::allocate(count, sizeof(Element), options));
    const std::span<Element> elements(static_cast<Element*>(pages.data()), count);
    VERBSPP_TRY(region, register_memory<Rights>(domain, elements));
    const std::size_t length = elements.size_bytes();
    auto* const owned = new (std::nothrow)
        pages_type{count, length <= UINT32_MAX ? static_cast<std::uint32_t>(length) : 0,
                   region.lkey().value(), std::move(pages), std::move(region)};
    if (owned == nullptr)
      return error(error_kind::resource_exhausted, "allocate registered buffer",
                   "there is not enough memory for the buffer's internal record");
    return registered_buffer(elements.data(), owned);
  }

  registered_buffer(const registered_buffer&) = delete;
  registered_buffer& operator=(const registered_buffer&) = delete;
  VERBSPP_DATA_PATH registered_buffer(registered_buffer&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        pages_(std::exchange(other.pages_, nullptr)) {}
  /// Deregisters and frees the previous buffer.
  VERBSPP_DATA_PATH registered_buffer& operator=(registered_buffer&& other) noexcept {
    registered_buffer taken(std::move(other));
    std::swap(first_, taken.first_);
    std::swap(pages_, taken.pages_);
    return *this;
  }
  VERBSPP_DATA_PATH ~registered_buffer() {
    if (pages_ != nullptr) detail::destroy(pages_);
  }

  // Access to the elements. The functions that return pointers or references are deleted for a
  // temporary buffer, because its memory is freed at the end of the expression, and a stored result
  // would dangle.

  /// Null if the buffer was moved from.
  [[nodiscard]] Element* data() & noexcept VERBSPP_LIFETIMEBOUND { return first_; }
  [[nodiscard]] const Element* data() const& noexcept VERBSPP_LIFETIMEBOUND { return first_; }
  void data() const&& = delete;  // a temporary frees its memory: store the buffer in a variable
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return pages_ != nullptr ? pages_->size : 0; }
  [[nodiscard]] Element* begin() & noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  [[nodiscard]] const Element* begin() const& noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  void begin() const&& = delete;  // a temporary frees its memory: store the buffer in a variable
  [[nodiscard]] Element* end() & noexcept VERBSPP_LIFETIMEBOUND { return data() + size(); }
  [[nodiscard]] const Element* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return data() + size();
  }
  void end() const&& = delete;  // a temporary frees its memory: store the buffer in a variable
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED Element& operator[](std::size_t index) & noexcept
      VERBSPP_LIFETIMEBOUND {
    assert(index < size());
    return data()[index];
  }
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const Element& operator[](
      std::size_t index) const& noexcept VERBSPP_LIFETIMEBOUND {
    assert(index < size());
    return data()[index];
  }
  void operator[](std::size_t) const&& = delete;  // a temporary frees its memory: use a variable
  [[nodiscard]] page_kind pages() const noexcept {
    return pages_ != nullptr ? pages_->memory.kind() : page_kind::normal;
  }

  /// The buffer's registration, whose offsets and lengths are in bytes. It stays in place when the
  /// buffer is moved, and lives as long as the memory. A moved-from buffer returns an empty
  /// registration.
  [[nodiscard]] const memory_region<Rights>& region() const& noexcept VERBSPP_LIFETIMEBOUND {
    return pages_ != nullptr ? pages_->region : detail::no_region<Rights>();
  }
  void region() const&& = delete;  // a temporary deregisters it: store the buffer in a variable
  /// Returns the whole buffer as a gather element, for the device to read.
  /// \errors `invalid_input` if the buffer has more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather()
      const noexcept {
    if (!is_one_element()) [[unlikely]]
      return no_element("registered_buffer::gather", 0, size());
    return all<gather_element>();
  }
  /// Returns `count` array elements, starting at index `first`, as a gather element, for the device
  /// to read.
  /// \errors `invalid_input` if they are not within the buffer, or more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather(
      std::size_t first, std::size_t count) const noexcept {
    if (!has_element(first, count)) [[unlikely]]
      return no_element("registered_buffer::gather", first, count);
    return element<gather_element>(first, count);
  }
  /// Returns the whole buffer as a scatter element, for the device to write.
  /// \errors `invalid_input` if the buffer has more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element>
  scatter() noexcept
    requires LocallyWritable<Rights>
  {
    if (!is_one_element()) [[unlikely]]
      return no_element("registered_buffer::scatter", 0, size());
    return all<scatter_element>();
  }
  /// Returns `count` array elements, starting at index `first`, as a scatter element, for the
  /// device to write.
  /// \errors `invalid_input` if they are not within the buffer, or more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element> scatter(
      std::size_t first, std::size_t count) noexcept
    requires LocallyWritable<Rights>
  {
    if (!has_element(first, count)) [[unlikely]]
      return no_element("registered_buffer::scatter", first, count);
    return element<scatter_element>(first, count);
  }
  template <class Nothing = void>
  [[nodiscard]] result<scatter_element> scatter() const VERBSPP_DETAIL_CONSTANT_BUFFER;
  template <class Nothing = void>
  [[nodiscard]] result<scatter_element> scatter(std::size_t,
                                                std::size_t) const VERBSPP_DETAIL_CONSTANT_BUFFER;
  /// Like `gather`, but returns the element itself instead of a `result`, for hot paths. The bounds
  /// are checked only by an assertion in debug builds.
  /// \pre the buffer was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH gather_element
  gather_unchecked(std::size_t first, std::size_t count) const noexcept {
    assert(gather(first, count).has_value());
    return element<gather_element>(first, count);
  }
  /// Like `scatter`, but returns the element itself instead of a `result`, for hot paths. The
  /// bounds are checked only by an assertion in debug builds.
  /// \pre the buffer was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH scatter_element
  scatter_unchecked(std::size_t first, std::size_t count) noexcept
    requires LocallyWritable<Rights>
  {
    assert(scatter(first, count).has_value());
    return element<scatter_element>(first, count);
  }

  /// Used by the library only: true if one element of a request can cover the whole buffer. If it
  /// can't, `gather` and `scatter` return the reason.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH bool is_one_element() const noexcept {
    return pages_ != nullptr && pages_->length_of_all != 0;
  }
  /// Used by the library only: returns the element for the whole buffer. Unlike the `result` that
  /// `gather` and `scatter` return, this is returned in registers.
  /// \pre `is_one_element()`
  template <class Part>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH Part all() const noexcept {
    return Part::from_native(
        {reinterpret_cast<std::uintptr_t>(first_), pages_->length_of_all, pages_->lkey});
  }

  /// Returns one field of the object at `index` as a gather element, for the device to read:
  /// `buffer.gather_field(3, &slot::count)`. For a field in a peer's memory, use
  /// `remote_object::field`.
  /// \errors `invalid_input` if the index is out of range
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> && (!std::is_function_v<Member>)
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather_field(
      std::size_t index, Member Owner::* member) const noexcept {
    VERBSPP_TRYV(check_index("registered_buffer::gather_field", index));
    return pages_->region.gather(index * sizeof(Element) + detail::offset_of<Element>(member),
                                 sizeof(Member));
  }
  /// Returns one field of the object at `index` as a scatter element, for the device to write.
  /// \errors `invalid_input` if the index is out of range
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> &&
             (!std::is_function_v<Member>) && LocallyWritable<Rights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter_field(
      std::size_t index, Member Owner::* member) noexcept {
    VERBSPP_TRYV(check_index("registered_buffer::scatter_field", index));
    return pages_->region.scatter(index * sizeof(Element) + detail::offset_of<Element>(member),
                                  sizeof(Member));
  }

  /// The handle that a peer needs to access the buffer.
  /// \errors `invalid_input` if the buffer was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    return region().remote();
  }

  /// Returns `count` array elements, starting at index `first`, as a part that owns the whole
  /// buffer. Pass the part to a request that should own the buffer. Requires
  /// <verbspp/memory/buffer_part.hpp>.
  /// \errors `invalid_input` if they are not within the buffer, which then remains unchanged
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<buffer_part<registered_buffer>>
  part(std::size_t first, std::size_t count) && noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::part", first, count));
    return buffer_part<registered_buffer>(std::move(*this), first, count);
  }
  void part(std::size_t, std::size_t) const& = delete;  // the part owns it: std::move(buffer).part
  /// Converts this to a shared buffer, whose handles can be copied, so that requests can keep the
  /// memory alive. Requires <verbspp/memory/shared_buffer.hpp>.
  /// \errors `invalid_input` if the buffer was moved from; `resource_exhausted`, in which case the
  /// buffer remains unchanged
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<shared_buffer<Rights, Element>>
  share() && noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::share", 0, 0));
    return shared_buffer<Rights, Element>::of(std::move(*this));
  }
  void share() const& = delete;  // the handles own the buffer: std::move(buffer).share()

  /// Deregisters and frees the memory as the destructor does, but returns a failure to deregister
  /// it. After such a failure, the memory is never freed.
  /// \errors those of `memory_region::deregister`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<void> release() && noexcept {
    if (pages_ == nullptr) return detail::region_is_gone("registered_buffer::release");
    const auto deregistered = std::move(pages_->region).deregister();
    if (!deregistered.has_value()) pages_->memory.abandon();
    delete std::exchange(pages_, nullptr);
    first_ = nullptr;
    return deregistered;
  }

  [[nodiscard]] const class protection_domain& protection_domain() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return region().protection_domain();
  }
  [[nodiscard]] class protection_domain protection_domain() && noexcept {
    return std::as_const(*this).protection_domain();
  }
  /// Null if the buffer was moved from.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return region().native_handle(); }

  friend std::ostream& operator<<(std::ostream& out, const registered_buffer& buffer) {
    if (buffer.pages_ == nullptr) return out << buffer.region();
    return out << buffer.region() << ", allocated by the library, " << to_string(buffer.pages())
               << " pages";
  }

 private:
  registered_buffer(Element* first, pages_type* pages) noexcept : first_(first), pages_(pages) {}

  [[nodiscard]] result<void> check_index(const char* operation, std::size_t index) const noexcept {
    const std::size_t size = this->size();
    if (index < size) return success();
    if (size == 0) return detail::region_is_gone(operation);
    return error::above_limit(operation, "index", index, size - 1);
  }
  [[nodiscard]] result<void> check_part(const char* operation, std::size_t first,
                                        std::size_t count) const noexcept {
    const std::size_t size = this->size();
    if (size == 0) return detail::region_is_gone(operation);
    if (first > size)
      return error::above_limit(operation, "index of the first element", first, size);
    if (count > size - first)
      return error::above_limit(operation, "number of elements from the given index", count,
                                size - first);
    return success();
  }

  /// True if `count` array elements, starting at index `first`, lie within the buffer, and one
  /// element of a request can cover them.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_element(std::size_t first,
                                                   std::size_t count) const noexcept {
    const std::size_t size = this->size();
    return size != 0 && first <= size && count <= size - first &&
           count <= UINT32_MAX / sizeof(Element);
  }
  /// Returns the error for array elements that one element of a request can't cover.
  [[nodiscard, gnu::noinline]] error no_element(const char* operation, std::size_t first,
                                                std::size_t count) const noexcept {
    const result<void> checked = check_part(operation, first, count);
    if (!checked.has_value()) return checked.assume_error();
    return detail::no_such_part({.length = size() * sizeof(Element)}, operation,
                                first * sizeof(Element), count * sizeof(Element));
  }
  /// \pre `has_element(first, count)`
  template <class Part>
  [[nodiscard]] VERBSPP_DATA_PATH Part element(std::size_t first,
                                               std::size_t count) const noexcept {
    return Part::from_native({reinterpret_cast<std::uintptr_t>(first_ + first),
                              static_cast<std::uint32_t>(count * sizeof(Element)),
                              pages_->region.lkey().value()});
  }

  // A buffer consists of only two words, because it is moved into each request that owns it. Both
  // words are null if the buffer was moved from.
  Element* first_;
  pages_type* pages_;
};

#undef VERBSPP_DETAIL_CONSTANT_BUFFER

}  // namespace verbspp
