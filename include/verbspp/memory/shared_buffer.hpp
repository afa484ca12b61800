// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/share_count.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/work_memory.hpp>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// A buffer, and the number of handles and requests that share it. The last of them to release the
/// buffer destroys it.
template <access_flags Rights, class Element>
class shared_pages : public counted_keeper {
 public:
  explicit shared_pages(registered_buffer<Rights, Element>&& whole) noexcept
      : counted_keeper(
            [](memory_keeper& self) noexcept { static_cast<shared_pages&>(self).drop(); },
            whole.is_one_element() ? whole.template all<scatter_element>()
                                   : scatter_element::from_native({})),
        size(whole.size()),
        buffer(std::move(whole)) {}

  void drop() noexcept {
    if (count.drop()) destroy();
  }

  const std::size_t size;  ///< the number of elements
  registered_buffer<Rights, Element> buffer;

 private:
  // Not inlined, so that `drop` does not have to save registers when other users remain.
  [[gnu::noinline]] void destroy() noexcept { delete this; }
};

}  // namespace detail

template <access_flags Rights, class Element>
  requires BufferElement<Element>
class shared_part;

/// A handle to a registered buffer. The buffer is shared by all copies of the handle, and by the
/// requests that use it.
///
/// Created by `std::move(buffer).share()`. Copying a handle increments a count. All copies refer to
/// the same elements, and even a const handle permits changes to them.
///
/// When the last handle has been destroyed and the last request has finished, the thread that was
/// the last to release the buffer deregisters and frees the memory. So a handle or part that has
/// been passed to a request may be destroyed or moved. But a request that gets elements from
/// `gather()` or `scatter()` only *borrows* the memory: some handle must outlive this request. If
/// deregistering fails, the failure is reported (`set_destroy_failure_handler`), and the memory is
/// never freed.
///
/// The buffer keeps its protection domain alive. A handle that was moved from has no elements, and
/// making scatter-gather elements, parts or handles for peers from it returns an error.
///
/// Thread rule: as for `std::shared_ptr`, different threads may use different handles to the same
/// buffer.
template <access_flags Rights = access::local_write, class Element = std::byte>
  requires BufferElement<Element>
class VERBSPP_CONSUMABLE shared_buffer {
  // The same type as `verbspp::result<Value>`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;
  using pages_type = detail::shared_pages<Rights, Element>;

 public:
  static constexpr access_flags rights = Rights;
  using value_type = Element;
  /// A handle that grants peers the buffer's remote rights.
  using handle_for_peers = typename memory_region<Rights>::handle_for_peers;
  using part_type = shared_part<Rights, Element>;

  /// Used by the library only: implements `registered_buffer::share`.
  [[nodiscard]] static result<shared_buffer> of(
      registered_buffer<Rights, Element>&& buffer) noexcept {
    auto* const pages = new (std::nothrow) pages_type(std::move(buffer));
    if (pages == nullptr)
      return error(error_kind::resource_exhausted, "registered_buffer::share",
                   "there is not enough memory for the reference count; the buffer is unchanged");
    return shared_buffer(pages);
  }

  shared_buffer(const shared_buffer& other) noexcept : pages_(other.pages_) {
    if (pages_ != nullptr) pages_->count.add();
  }
  shared_buffer(shared_buffer&& other) noexcept : pages_(std::exchange(other.pages_, nullptr)) {}
  /// Releases the previous buffer.
  shared_buffer& operator=(const shared_buffer& other) noexcept {
    shared_buffer copy(other);
    std::swap(pages_, copy.pages_);
    return *this;
  }
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    shared_buffer taken(std::move(other));
    std::swap(pages_, taken.pages_);
    return *this;
  }
  ~shared_buffer() {
    if (pages_ != nullptr) pages_->drop();
  }

  // Access to the elements. The functions that return pointers or references are deleted for a
  // temporary handle. It may be the last handle, whose memory is freed at the end of the
  // expression, so a stored result would dangle.

  /// Null if the handle was moved from.
  [[nodiscard]] Element* data() const& noexcept VERBSPP_LIFETIMEBOUND {
    return pages_ == nullptr ? nullptr : pages_->buffer.data();
  }
  void data() const&& = delete;  // a temporary may be the last handle: use a variable
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return pages_ == nullptr ? 0 : pages_->size; }
  [[nodiscard]] Element* begin() const& noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  void begin() const&& = delete;  // a temporary may be the last handle: use a variable
  [[nodiscard]] Element* end() const& noexcept VERBSPP_LIFETIMEBOUND { return data() + size(); }
  void end() const&& = delete;  // a temporary may be the last handle: use a variable
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED Element& operator[](std::size_t index) const& noexcept
      VERBSPP_LIFETIMEBOUND {
    assert(index < size());
    return pages_->buffer[index];
  }
  void operator[](std::size_t) const&& = delete;  // a temporary may be the last handle
  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED page_kind pages() const noexcept {
    return pages_->buffer.pages();
  }
  /// True if neither another handle nor a request shares the buffer. The buffer then remains
  /// unshared until this handle is copied, passed to a request, or used to create a part.
  [[nodiscard]] bool is_only() const noexcept {
    return pages_ != nullptr && pages_->count.is_one();
  }

  /// The buffer's registration, whose offsets and lengths are in bytes.
  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const memory_region<Rights>& region() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return pages_->buffer.region();
  }
  void region() const&& = delete;  // a temporary may be the last handle: use a variable
  /// Returns the whole buffer as a gather element, for the device to read.
  /// \errors `invalid_input` if the buffer has more than 2^32 - 1 bytes, or the handle was moved
  /// from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather() const noexcept {
    return describe<gather_element>(pages_);
  }
  /// Returns `count` array elements, starting at index `first`, as a gather element, for the device
  /// to read.
  /// \errors `invalid_input` if they are not within the buffer, or more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather(
      std::size_t first, std::size_t count) const noexcept {
    if (pages_ == nullptr) return gone("shared_buffer::gather");
    return pages_->buffer.gather(first, count);
  }
  /// Returns the whole buffer as a scatter element, for the device to write.
  /// \errors `invalid_input` if the buffer has more than 2^32 - 1 bytes, or the handle was moved
  /// from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter() const noexcept
    requires LocallyWritable<Rights>
  {
    return describe<scatter_element>(pages_);
  }
  /// Returns `count` array elements, starting at index `first`, as a scatter element, for the
  /// device to write.
  /// \errors `invalid_input` if they are not within the buffer, or more than 2^32 - 1 bytes
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter(
      std::size_t first, std::size_t count) const noexcept
    requires LocallyWritable<Rights>
  {
    if (pages_ == nullptr) return gone("shared_buffer::scatter");
    return pages_->buffer.scatter(first, count);
  }
  /// Like `gather`, but returns the element itself instead of a `result`, for hot paths. The bounds
  /// are checked only by an assertion in debug builds.
  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED gather_element
  gather_unchecked(std::size_t first, std::size_t count) const noexcept {
    return pages_->buffer.gather_unchecked(first, count);
  }
  /// Like `scatter`, but returns the element itself instead of a `result`, for hot paths. The
  /// bounds are checked only by an assertion in debug builds.
  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED scatter_element
  scatter_unchecked(std::size_t first, std::size_t count) const noexcept
    requires LocallyWritable<Rights>
  {
    return pages_->buffer.scatter_unchecked(first, count);
  }
  /// Returns one field of the object at `index` as a gather element, for the device to read:
  /// `shared.gather_field(3, &slot::count)`.
  /// \errors `invalid_input` if the index is out of range
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> && (!std::is_function_v<Member>)
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather_field(
      std::size_t index, Member Owner::* member) const noexcept {
    if (pages_ == nullptr) return gone("shared_buffer::gather_field");
    return pages_->buffer.gather_field(index, member);
  }
  /// Returns one field of the object at `index` as a scatter element, for the device to write.
  /// \errors `invalid_input` if the index is out of range
  template <class Owner, class Member>
    requires std::is_base_of_v<Owner, Element> &&
             (!std::is_function_v<Member>) && LocallyWritable<Rights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter_field(
      std::size_t index, Member Owner::* member) const noexcept {
    if (pages_ == nullptr) return gone("shared_buffer::scatter_field");
    return pages_->buffer.scatter_field(index, member);
  }

  /// Returns a handle to `count` array elements, starting at index `first`. The handle shares the
  /// whole buffer.
  /// \errors `invalid_input` if they are not within the buffer, or the handle was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<shared_part<Rights, Element>> part(
      std::size_t first, std::size_t count) const noexcept {
    if (pages_ == nullptr) return gone("shared_buffer::part");
    if (first > size())
      return error::above_limit("shared_buffer::part", "index of the first element", first, size());
    if (count > size() - first)
      return error::above_limit("shared_buffer::part", "number of elements from the given index",
                                count, size() - first);
    return shared_part<Rights, Element>(*this, first, count);
  }

  /// The handle that a peer needs to access the buffer. The peer's handle does not keep the memory
  /// alive: the peer may use it only as long as a shared handle or a request on this side keeps the
  /// memory alive.
  /// \errors `invalid_input` if the handle was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    if (pages_ == nullptr) return gone("shared_buffer::remote");
    return pages_->buffer.remote();
  }

  /// Used by the library only: like `is_one_element` and `all` of `registered_buffer`, but the list
  /// refers to an element beside the count.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH bool is_one_element() const noexcept {
    return pages_ != nullptr && pages_->element.length() != 0;
  }
  template <class Part>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH element_list<Part> all()
      const noexcept {
    return pages_->template all<Part>();
  }
  /// Used by the library only: the result of `gather` or `scatter` of a handle with this keeper.
  template <class Part>
  [[nodiscard]] static result<Part> describe(detail::counted_keeper* keeper) noexcept {
    auto* const pages = static_cast<pages_type*>(keeper);
    if constexpr (std::is_same_v<Part, scatter_element>) {
      if (pages == nullptr) return gone("shared_buffer::scatter");
      return pages->buffer.scatter();
    } else {
      if (pages == nullptr) return gone("shared_buffer::gather");
      return pages->buffer.gather();
    }
  }
  /// Used by the library only: null if the handle was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH detail::counted_keeper* keeper()
      const noexcept {
    return pages_;
  }
  /// Used by the library only: keeps the buffer alive until `let_go` is called on the result. If
  /// the handle was moved from, the result has no keeper.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED detail::kept_memory keep() const noexcept {
    if (pages_ == nullptr) return {};
    pages_->count.add();
    return {.keeper = pages_};
  }
  /// Used by the library only: like `keep`, but passes on the use that this handle has counted,
  /// instead of counting another one, and leaves the handle empty.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES VERBSPP_DATA_PATH detail::kept_memory
  give() && noexcept {
    return {.keeper = std::exchange(pages_, nullptr)};
  }

  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED const class protection_domain& protection_domain()
      const& noexcept VERBSPP_LIFETIMEBOUND {
    return pages_->buffer.protection_domain();
  }
  /// \pre the handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED class protection_domain
  protection_domain() && noexcept {
    return pages_->buffer.protection_domain();
  }
  /// Null if the handle was moved from.
  [[nodiscard]] ibv_mr* native_handle() const noexcept {
    return pages_ == nullptr ? nullptr : pages_->buffer.native_handle();
  }

  /// True if both refer to the same buffer, or both were moved from.
  friend bool operator==(const shared_buffer& one, const shared_buffer& other) noexcept {
    return one.pages_ == other.pages_;
  }

 private:
  explicit shared_buffer(pages_type* pages) noexcept : pages_(pages) {}

  [[nodiscard]] static error gone(const char* operation) noexcept {
    return detail::region_is_gone(operation);
  }

  pages_type* pages_;
};

/// A handle to some elements of a shared buffer, which shares the whole buffer. Pass it to a
/// request that should keep the buffer alive but use only a part of it. Any number of parts may be
/// in flight at the same time.
///
/// Created by `shared.part(first, count)`, even from a temporary handle. The rules for
/// `shared_buffer` apply to parts as well.
template <access_flags Rights = access::local_write, class Element = std::byte>
  requires BufferElement<Element>
class VERBSPP_CONSUMABLE shared_part {
  // The same type as `verbspp::result<Value>`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;

 public:
  static constexpr access_flags rights = Rights;
  using value_type = Element;
  using handle_for_peers = typename memory_region<Rights>::handle_for_peers;

  // Access to the elements of the part. The functions that return pointers or references are
  // deleted for a temporary part, because it may be the last handle.

  /// Null if the part was moved from.
  [[nodiscard]] Element* data() const& noexcept VERBSPP_LIFETIMEBOUND {
    return buffer_.size() == 0 ? nullptr : buffer_.data() + first_;
  }
  void data() const&& = delete;  // a temporary may be the last handle: use a variable
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return buffer_.size() == 0 ? 0 : count_; }
  [[nodiscard]] Element* begin() const& noexcept VERBSPP_LIFETIMEBOUND { return data(); }
  void begin() const&& = delete;  // a temporary may be the last handle: use a variable
  [[nodiscard]] Element* end() const& noexcept VERBSPP_LIFETIMEBOUND { return data() + size(); }
  void end() const&& = delete;  // a temporary may be the last handle: use a variable
  /// \pre index < size()
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED Element& operator[](std::size_t index) const& noexcept
      VERBSPP_LIFETIMEBOUND {
    assert(index < size());
    return data()[index];
  }
  void operator[](std::size_t) const&& = delete;  // a temporary may be the last handle
  /// The index of the part's first element in the buffer.
  [[nodiscard]] std::size_t first() const noexcept { return first_; }
  /// The buffer to which this part belongs.
  [[nodiscard]] const shared_buffer<Rights, Element>& buffer() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return buffer_;
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES shared_buffer<Rights, Element>
  buffer() && noexcept {
    return std::move(buffer_);
  }

  /// Returns the part as a gather element, for the device to read.
  /// \errors `invalid_input` if the part has more than 2^32 - 1 bytes, or was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather() const noexcept {
    return buffer_.gather(first_, count_);
  }
  /// Returns the part as a scatter element, for the device to write.
  /// \errors those of `gather`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter() const noexcept
    requires LocallyWritable<Rights>
  {
    return buffer_.scatter(first_, count_);
  }
  /// The handle that a peer needs to access the part. Its key grants access to the whole buffer.
  /// \errors `invalid_input` if the part was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    VERBSPP_TRY(whole, buffer_.remote());
    return whole.slice(first_ * sizeof(Element), count_ * sizeof(Element));
  }
  /// The `ibv_mr` of the whole buffer; null if the part was moved from.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return buffer_.native_handle(); }
  /// Used by the library only: like `is_one_element` and `all` of `registered_buffer`, but for this
  /// part.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH bool is_one_element() const noexcept {
    return buffer_.size() != 0 && count_ <= UINT32_MAX / sizeof(Element);
  }
  template <class Part>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH Part all() const noexcept {
    if constexpr (std::is_same_v<Part, scatter_element>)
      return buffer_.scatter_unchecked(first_, count_);
    else
      return buffer_.gather_unchecked(first_, count_);
  }
  /// Used by the library only: like `keeper` and `keep` of `shared_buffer`.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH detail::counted_keeper* keeper()
      const noexcept {
    return buffer_.keeper();
  }
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED detail::kept_memory keep() const noexcept {
    return buffer_.keep();
  }
  /// Used by the library only: like `shared_buffer::give`.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES VERBSPP_DATA_PATH detail::kept_memory
  give() && noexcept {
    return std::move(buffer_).give();
  }

 private:
  friend shared_buffer<Rights, Element>;
  shared_part(const shared_buffer<Rights, Element>& buffer, std::size_t first,
              std::size_t count) noexcept
      : buffer_(buffer), first_(first), count_(count) {}

  shared_buffer<Rights, Element> buffer_;
  std::size_t first_;
  std::size_t count_;
};

}  // namespace verbspp
