// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/refers_elsewhere.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>

namespace verbspp {

/// The type of a request or answer that consists of any number of bytes. A program passes a
/// `std::span<const std::byte>`.
struct bytes {};

/// The number that stands for "any number of bytes" where both ends compare the sizes of a method's
/// requests and answers.
inline constexpr std::uint32_t any_size = UINT32_MAX;

/// Converts the values of a type to the bytes of a request or answer, and back.
///
/// A trivially copyable type needs no specialization, unless it refers to other memory. Its bytes
/// are copied, with the byte order and the padding of the sender's machine, and the receiver checks
/// only their number. So `decode` may return any value, for example an enumerator that does not
/// exist.
///
/// For other types, the program specializes the template:
///
///     template <>
///     struct verbspp::codec<order> {
///       static constexpr std::uint32_t size = verbspp::any_size;
///       static result<std::size_t> encode(const order& value, std::span<std::byte> into) noexcept;
///       static result<order> decode(std::span<const std::byte> from) noexcept;
///     };
///
/// `encode` returns the number of bytes that it has written. It must not use the caller, or poll a
/// channel whose coroutines use the caller. `decode` gets bytes that come from the other end, and
/// must not trust them. The value that `decode` returns may refer to these bytes only if it is a
/// request, whose bytes remain valid in the handler until the call is answered.
template <class Value>
struct codec {
  static_assert(std::is_trivially_copyable_v<Value>,
                "this type is not trivially copyable, so its bytes cannot be sent: specialize "
                "verbspp::codec for it, or use verbspp::bytes");
  static_assert(!detail::RefersElsewhere<Value>,
                "this type refers to memory of this process, or is dereferenced like a pointer, "
                "so its bytes may mean nothing at the other end: use verbspp::bytes for data of "
                "any length, or specialize verbspp::codec for it");
  static constexpr std::uint32_t size = sizeof(Value);

  [[nodiscard]] static result<std::size_t> encode(const Value& value,
                                                  std::span<std::byte> into) noexcept {
    if (into.size() < sizeof(Value)) [[unlikely]]
      return error::above_limit("encode a value", "size in bytes", sizeof(Value), into.size());
    std::memcpy(into.data(), &value, sizeof(Value));
    return sizeof(Value);
  }
  /// \pre `from` has `size` bytes
  [[nodiscard]] static result<Value> decode(std::span<const std::byte> from) noexcept {
    // Value may have no default constructor, so its bytes become an object here.
    struct copy {
      alignas(Value) std::byte of[sizeof(Value)];
    } made;
    std::memcpy(made.of, from.data(), sizeof(Value));
    return *std::launder(reinterpret_cast<const Value*>(made.of));
  }
};

template <>
struct codec<bytes> {
  static constexpr std::uint32_t size = any_size;

  /// `value` and `into` may overlap, since a handler may answer with bytes of the request.
  [[nodiscard]] static result<std::size_t> encode(std::span<const std::byte> value,
                                                  std::span<std::byte> into) noexcept {
    if (into.size() < value.size()) [[unlikely]]
      return error::above_limit("encode bytes", "size in bytes", value.size(), into.size());
    if (!value.empty()) std::memmove(into.data(), value.data(), value.size());
    return value.size();
  }
  [[nodiscard]] static result<std::span<const std::byte>> decode(
      std::span<const std::byte> from) noexcept {
    return from;
  }
};

namespace detail {

template <class Value>
concept HasCodec = requires(std::span<const std::byte> from) {
  { codec<Value>::size } -> std::convertible_to<std::uint32_t>;
  codec<Value>::decode(from).has_value();
};

/// The parameter type for a value that is sent.
template <class Value>
struct value_to_send {
  using type = const Value&;
};
template <>
struct value_to_send<bytes> {
  using type = std::span<const std::byte>;
};

template <class Type>
concept HasMethodNumber = requires {
  requires std::is_same_v<decltype(Type::number), const std::uint16_t>;
  requires Type::number != 0;
};
template <class Type>
concept HasMethodName = requires {
  { Type::name } -> std::convertible_to<const char*>;
};

template <class Type>
concept NamesLentRights = requires { Type::lends; };
template <class Type>
concept LendsToReadOrWrite = !NamesLentRights<Type> || requires {
  requires !Type::lends.empty();
  requires(access::remote_read | access::remote_write).contains(Type::lends);
};

/// The description of a method, which both ends compare when a connection starts.
struct method_description {
  /// The maximum length of a name. Longer names are truncated for the comparison.
  static constexpr std::size_t longest_name = 64;

  std::uint16_t number = 0;
  std::uint16_t version = 0;
  std::uint32_t request_size = 0;
  std::uint32_t answer_size = 0;
  const char* name = "";
  access_flags lends{};  ///< the rights to the memory that each call lends; empty if it lends none
};

}  // namespace detail

/// A type that describes a method of a service:
///
///     struct lookup {
///       static constexpr std::uint16_t number = 1;    // at least 1, unique in the service
///       static constexpr const char* name = "lookup";
///       using request = key;
///       using answer = account;                       // or void
///       static constexpr std::uint16_t version = 2;   // optional, by default 0
///       static constexpr access_flags lends = access::remote_write;  // optional
///     };
///
/// Requests and answers are trivially copyable values, `bytes`, or values with a `codec`. The name
/// is a string literal, and appears in error messages.
///
/// If the method has `lends`, each call lends the service some of the caller's memory until the
/// call ends. With `access::remote_read`, the handler may read that memory; with
/// `access::remote_write`, the handler may write to it. This is the way to pass large data.
template <class Type>
concept Method =
    detail::because(detail::HasMethodNumber<Type>,
                    "a method needs a number: static constexpr std::uint16_t number = 1; (0 is "
                    "reserved)") &&
    detail::because(detail::HasMethodName<Type>,
                    "a method needs a name: static constexpr const char* name = \"lookup\";") &&
    detail::because(detail::LendsToReadOrWrite<Type>,
                    "a call lends memory with access::remote_read, access::remote_write or both: "
                    "static constexpr access_flags lends = access::remote_write;") &&
    requires {
      typename Type::request;
      typename Type::answer;
    };

namespace detail {

template <class Value>
inline constexpr std::uint32_t size_of_value = codec<Value>::size;
template <>
inline constexpr std::uint32_t size_of_value<void> = 0;

template <Method Described>
[[nodiscard]] constexpr method_description describe() noexcept {
  method_description made{.number = Described::number,
                          .version = 0,
                          .request_size = size_of_value<typename Described::request>,
                          .answer_size = size_of_value<typename Described::answer>,
                          .name = Described::name,
                          .lends = {}};
  if constexpr (requires { Described::version; }) made.version = Described::version;
  if constexpr (NamesLentRights<Described>) made.lends = Described::lends;
  return made;
}
template <Method Described>
inline constexpr method_description description_of = describe<Described>();

/// True if no two of the methods have the same number.
template <Method... Called>
[[nodiscard]] consteval bool have_different_numbers() noexcept {
  std::size_t pairs = 0;
  for (const std::uint16_t number : {std::uint16_t{0}, Called::number...})
    pairs += (std::size_t{0} + ... + std::size_t{Called::number == number});
  return pairs == sizeof...(Called);
}

}  // namespace detail

/// A method whose calls lend memory.
template <class Called>
concept LendsMemory =
    Method<Called> &&
    detail::because(!detail::description_of<Called>.lends.empty(),
                    "the calls of this method lend no memory: pass only the request; or let the "
                    "method have static constexpr access_flags lends = access::remote_write;");

namespace detail {

/// A method whose calls lend no memory.
template <class Called>
concept LendsNothing =
    because(!LendsMemory<Called>,
            "the calls of this method lend memory, because the method has `lends`: pass the memory "
            "after the request, as in calls.call<load>(request, buffer)");

}  // namespace detail

}  // namespace verbspp
