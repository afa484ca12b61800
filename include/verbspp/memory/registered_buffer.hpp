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

/// How to allocate the memory of a registered buffer.
struct buffer_options {
  /// Of the first byte, a power of two; a page's at least.
  std::size_t alignment = 1;
  /// Ask for huge pages, of 2 MiB: fewer of them fill the device's translation tables less. Where
  /// there are none, normal ones do; `registered_buffer::pages` tells.
  bool huge_pages = false;
};

/// What pages a registered buffer got.
enum class page_kind : std::uint8_t {
  normal,
  /// Normal ones that the kernel was asked to replace by huge ones; it may, or not (transparent
  /// huge pages).
  transparent_huge,
  /// Huge ones, from the pool that the administrator reserved (`vm.nr_hugepages`).
  huge,
};

[[nodiscard]] const char* to_string(page_kind kind) noexcept;

namespace detail {

/// Owns pages of memory, which are zero at first.
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
  page_range& operator=(page_range&&) = delete;  // frees before or after what? its owner knows
  ~page_range();

  [[nodiscard]] void* data() const noexcept { return first_; }
  [[nodiscard]] page_kind kind() const noexcept { return kind_; }
  /// Leaves the memory to the device, which did not give it back.
  void abandon() noexcept { first_ = nullptr; }

 private:
  page_range(void* first, std::size_t size, page_kind kind) noexcept
      : first_(first), size_(size), kind_(kind) {}

  void* first_;
  std::size_t size_;
  page_kind kind_;
};

/// For a destructor: frees the memory if it was deregistered, else reports that.
void free_pages(page_range& pages, const result<void>& deregistered) noexcept;

/// What a registered buffer owns, at a place of its own, so that moving the buffer moves a pointer.
template <access_flags Rights>
struct registered_pages {
  std::size_t size;             ///< elements
  std::uint32_t length_of_all;  ///< of one element of a request, bytes; 0: one can't have all
  dependent<page_range, Rights> memory;
  memory_region<Rights> region;
};

/// Deregisters and frees what a buffer owned, and reports it if that fails. A call, so that the
/// many places where a buffer may end are short.
template <access_flags Rights>
[[gnu::noinline]] void destroy(registered_pages<Rights>* pages) noexcept {
  free_pages(pages->memory, std::move(pages->region).deregister());
  delete pages;
}

/// The region of a buffer that has none any more.
template <access_flags Rights>
[[nodiscard, gnu::noinline]] const memory_region<Rights>& no_region() noexcept {
  static const memory_region<Rights> none(memory_registration::none());
  return none;
}

}  // namespace detail

/// What a registered buffer may hold: zero bytes are one, and copying it copies its bytes.
template <class Element>
concept BufferElement = detail::because(
    std::is_trivially_copyable_v<Element> && std::is_trivially_default_constructible_v<Element>,
    "the device copies bytes, and the buffer starts as zero bytes: only elements "
    "that are trivially copyable and trivially default constructible can be in it");

template <class Buffer>
class buffer_part;
template <access_flags Rights, class Element>
  requires BufferElement<Element>
class shared_buffer;

/// Memory that the library allocates and registers, as an array of elements that are zero at first.
///
/// A move-only owner of two words; the memory stays where it is when the buffer is moved. It is
/// freed when it is no longer registered; should deregistering fail, that is reported, and the
/// memory is never freed, since the device may still use it. Its pages hold nothing else. Keeps its
/// protection domain alive. A buffer that was moved from has no elements, and what is made of a
/// buffer is refused.
///
/// Work uses it in one of three ways. *Borrowed*: work takes elements, and the buffer has to
/// outlive it, which is the caller's duty. *Owned*: the buffer, or a `part` of it, moves into the
/// work, and comes back with the result. *Shared*: `share` makes it a handle that can be copied,
/// and work keeps the pages.
template <access_flags Rights = access::local_write, class Element = std::byte>
  requires BufferElement<Element>
class VERBSPP_CONSUMABLE registered_buffer {
  // The same, but instantiated only where they are used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;
  using page_range = detail::dependent<detail::page_range, Rights>;
  using pages_type = detail::registered_pages<Rights>;

 public:
  static constexpr access_flags rights = Rights;
  using value_type = Element;
  /// With the rights of this buffer that are for peers.
  using handle_for_peers = typename memory_region<Rights>::handle_for_peers;

  /// Allocates (`mmap`) and registers (`ibv_reg_mr`) `count` elements.
  /// \errors `invalid_input` if there are none, or the alignment is no power of two;
  /// `resource_exhausted` for want of memory, or of memory that may be locked: the message tells;
  /// as `register_memory`
  [[nodiscard]] static result<registered_buffer> allocate(
      const class protection_domain& domain, std::size_t count,
      const buffer_options& options = {}) noexcept
    requires RegistrableRights<Rights>
  {
    static_assert(alignof(Element) <= 4096, "an element aligned to more than a page");
    VERBSPP_TRY(pages, page_range::allocate(count, sizeof(Element), options));
    const std::span<Element> elements(static_cast<Element*>(pages.data()), count);
    VERBSPP_TRY(region, register_memory<Rights>(domain, elements));
    const std::size_t length = elements.size_bytes();
    auto* const owned = new (std::nothrow)
        pages_type{count, length <= UINT32_MAX ? static_cast<std::uint32_t>(length) : 0,
                   std::move(pages), std::move(region)};
    if (owned == nullptr)
      return error(error_kind::resource_exhausted, "allocate registered buffer",
                   "there is no memory for what the buffer owns");
    return registered_buffer(elements.data(), owned);
  }

  registered_buffer(const registered_buffer&) = delete;
  registered_buffer& operator=(const registered_buffer&) = delete;
  VERBSPP_DATA_PATH registered_buffer(registered_buffer&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        pages_(std::exchange(other.pages_, nullptr)) {}
  /// The buffer of before is deregistered and freed here.
  VERBSPP_DATA_PATH registered_buffer& operator=(registered_buffer&& other) noexcept {
    registered_buffer taken(std::move(other));
    std::swap(first_, taken.first_);
    std::swap(pages_, taken.pages_);
    return *this;
  }
  VERBSPP_DATA_PATH ~registered_buffer() {
    if (pages_ != nullptr) detail::destroy(pages_);
  }

  // None of these on a temporary buffer, whose memory is gone when they have returned.

  /// Null if the buffer was moved from.
  [[nodiscard]] Element* data() & noexcept VERBSPP_LIFETIMEBOUND { return first_; }
  [[nodiscard]] const Element* data() const& noexcept VERBSPP_LIFETIMEBOUND { return first_; }
  void data() const&& = delete;  // a temporary frees its memory: name the buffer first
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return pages_ != nullptr ? pages_->size : 0; }
  [[nodiscard]] Element* begin() & noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  [[nodiscard]] const Element* begin() const& noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  void begin() const&& = delete;  // a temporary frees its memory: name the buffer first
  [[nodiscard]] Element* end() & noexcept VERBSPP_LIFETIMEBOUND { return data() + size(); }
  [[nodiscard]] const Element* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return data() + size();
  }
  void end() const&& = delete;  // a temporary frees its memory: name the buffer first
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
  void operator[](std::size_t) const&& = delete;  // a temporary frees its memory: name it first
  [[nodiscard]] page_kind pages() const noexcept {
    return pages_ != nullptr ? pages_->memory.kind() : page_kind::normal;
  }

  /// The registration, which counts in bytes; an empty one if the buffer was moved from. It stays
  /// where it is when the buffer is moved, and is as long there as what the buffer owns.
  [[nodiscard]] const memory_region<Rights>& region() const& noexcept VERBSPP_LIFETIMEBOUND {
    return pages_ != nullptr ? pages_->region : detail::no_region<Rights>();
  }
  void region() const&& = delete;  // a temporary deregisters it: name the buffer first
  /// The whole buffer, for the device to read.
  /// \errors `invalid_input` above 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather()
      const noexcept {
    if (!is_one_element()) [[unlikely]]
      return no_element("registered_buffer::gather", 0, size());
    return all<gather_element>();
  }
  /// `count` elements from the one of index `first` on.
  /// \errors `invalid_input` if they are not within the buffer, or above 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather(
      std::size_t first, std::size_t count) const noexcept {
    if (!has_element(first, count)) [[unlikely]]
      return no_element("registered_buffer::gather", first, count);
    return element<gather_element>(first, count);
  }
  /// The whole buffer, for the device to write.
  /// \errors `invalid_input` above 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element> scatter()
      const noexcept
    requires LocallyWritable<Rights>
  {
    if (!is_one_element()) [[unlikely]]
      return no_element("registered_buffer::scatter", 0, size());
    return all<scatter_element>();
  }
  /// `count` elements from the one of index `first` on.
  /// \errors `invalid_input` if they are not within the buffer, or above 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element> scatter(
      std::size_t first, std::size_t count) const noexcept
    requires LocallyWritable<Rights>
  {
    if (!has_element(first, count)) [[unlikely]]
      return no_element("registered_buffer::scatter", first, count);
    return element<scatter_element>(first, count);
  }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  /// \pre the buffer was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH gather_element
  gather_unchecked(std::size_t first, std::size_t count) const noexcept {
    assert(gather(first, count).has_value());
    return element<gather_element>(first, count);
  }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  /// \pre the buffer was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH scatter_element
  scatter_unchecked(std::size_t first, std::size_t count) const noexcept
    requires LocallyWritable<Rights>
  {
    assert(scatter(first, count).has_value());
    return element<scatter_element>(first, count);
  }

  /// For the library: whether one element of a request can have all of the buffer; where it can't,
  /// `gather` and `scatter` say why.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH bool is_one_element() const noexcept {
    return pages_ != nullptr && pages_->length_of_all != 0;
  }
  /// For the library: that element, which `gather` and `scatter` give as a result, and so in
  /// memory.
  template <class Part>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH Part all() const noexcept {
    return Part::from_native({reinterpret_cast<std::uintptr_t>(first_), pages_->length_of_all,
                              pages_->region.lkey().value()});
  }

  /// One field of the element of that index, for the device to read:
  /// `buffer.gather_field(3, &slot::count)`. That of a peer's is `remote_object::field`.
  /// \errors `invalid_input` if there are not so many elements
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> && (!std::is_function_v<Member>)
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather_field(
      std::size_t index, Member Owner::* member) const noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::gather_field", index, 1));
    return pages_->region.gather(index * sizeof(Element) + detail::offset_of<Element>(member),
                                 sizeof(Member));
  }
  /// The same for the device to write.
  /// \errors `invalid_input` if there are not so many elements
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> &&
             (!std::is_function_v<Member>) && LocallyWritable<Rights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter_field(
      std::size_t index, Member Owner::* member) const noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::scatter_field", index, 1));
    return pages_->region.scatter(index * sizeof(Element) + detail::offset_of<Element>(member),
                                  sizeof(Member));
  }

  /// What to give a peer so that it can access the buffer.
  /// \errors `invalid_input` if the buffer was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    return region().remote();
  }

  /// A part of the buffer that owns the whole: `count` elements from the one of index `first` on,
  /// as the memory of work that is to own it. Needs <verbspp/memory/buffer_part.hpp>.
  /// \errors `invalid_input` if they are not within the buffer, which is as before then
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<buffer_part<registered_buffer>>
  part(std::size_t first, std::size_t count) && noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::part", first, count));
    return buffer_part<registered_buffer>(std::move(*this), first, count);
  }
  void part(std::size_t, std::size_t) const& = delete;  // owns the buffer: std::move(buffer).part
  /// Makes the buffer one that work keeps, by handles that can be copied. Needs
  /// <verbspp/memory/shared_buffer.hpp>.
  /// \errors `invalid_input` if the buffer was moved from; `resource_exhausted`: it is as before
  /// then
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<shared_buffer<Rights, Element>>
  share() && noexcept {
    VERBSPP_TRYV(check_part("registered_buffer::share", 0, 0));
    return shared_buffer<Rights, Element>::of(std::move(*this));
  }
  void share() const& = delete;  // the handles own the buffer: std::move(buffer).share()

  /// Deregisters and frees the memory, as the destructor does, but returns a failure; then the
  /// memory is never freed.
  /// \errors as `memory_region::deregister`
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
    return out << buffer.region() << ", of the library's memory, " << to_string(buffer.pages())
               << " pages";
  }

 private:
  registered_buffer(Element* first, pages_type* pages) noexcept : first_(first), pages_(pages) {}

  [[nodiscard]] result<void> check_part(const char* operation, std::size_t first,
                                        std::size_t count) const noexcept {
    const std::size_t size = this->size();
    if (size == 0) return detail::region_is_gone(operation);
    if (first > size) return error::above_limit(operation, "first element", first, size);
    if (count > size - first)
      return error::above_limit(operation, "elements from the first on", count, size - first);
    return success();
  }

  /// Whether one element of a request can have this part.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_element(std::size_t first,
                                                   std::size_t count) const noexcept {
    const std::size_t size = this->size();
    return size != 0 && first <= size && count <= size - first &&
           count <= UINT32_MAX / sizeof(Element);
  }
  /// The error for a part that one element can't have.
  [[nodiscard, gnu::noinline]] error no_element(const char* operation, std::size_t first,
                                                std::size_t count) const noexcept {
    const result<void> checked = check_part(operation, first, count);
    if (!checked.has_value()) return checked.assume_error();
    return detail::no_such_part({.length = size() * sizeof(Element)}, operation,
                                first * sizeof(Element), count * sizeof(Element));
  }
  /// \pre they are within the buffer
  template <class Part>
  [[nodiscard]] VERBSPP_DATA_PATH Part element(std::size_t first,
                                               std::size_t count) const noexcept {
    return Part::from_native({reinterpret_cast<std::uintptr_t>(first_ + first),
                              static_cast<std::uint32_t>(count * sizeof(Element)),
                              pages_->region.lkey().value()});
  }

  // Two words, since it is moved with each request that owns it. Null if it was moved from.
  Element* first_;
  pages_type* pages_;
};

}  // namespace verbspp
