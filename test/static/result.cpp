// SPDX-License-Identifier: Apache-2.0
// How results are created, copied and read, and how large they are.
#include <verbspp/base/result.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_error.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

using namespace verbspp;

namespace {

struct number {
  int value;
};
struct pinned {
  pinned() noexcept = default;
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
};
using owner = std::unique_ptr<int>;

// A result is trivially copyable if its value is. Otherwise, it can be copied and moved if its
// value can.
static_assert(std::is_trivially_copyable_v<result<int>>);
static_assert(std::is_trivially_copyable_v<result<void>>);
static_assert(std::is_trivially_copyable_v<work_result<number>>);
static_assert(std::is_trivially_copyable_v<transport_result<void>>);
static_assert(std::is_trivially_copyable_v<batch_result>);
static_assert(std::is_copy_constructible_v<result<std::string>>);
static_assert(std::is_nothrow_move_constructible_v<result<owner>>);
static_assert(std::is_nothrow_move_assignable_v<result<owner>>);
static_assert(!std::is_copy_constructible_v<result<owner>>);
static_assert(!std::is_copy_assignable_v<result<owner>>);
static_assert(!std::is_move_constructible_v<result<pinned>>);
static_assert(!std::is_default_constructible_v<result<int>>);

// The accessors of a temporary return values, whereas those of an lvalue return references.
template <class Result>
using value_of = decltype(std::declval<Result>().value());
template <class Result>
using assumed_of = decltype(std::declval<Result>().assume_value());
template <class Result>
using error_of = decltype(std::declval<Result>().error());
static_assert(std::is_same_v<value_of<result<owner>>, owner>);
static_assert(std::is_same_v<value_of<result<owner>&&>, owner>);
static_assert(std::is_same_v<value_of<result<owner>&>, owner&>);
static_assert(std::is_same_v<value_of<const result<owner>&>, const owner&>);
static_assert(std::is_same_v<value_of<const result<number>>, number>);
static_assert(std::is_same_v<value_of<result<const number>>, number>);
static_assert(std::is_same_v<assumed_of<result<owner>>, owner>);
static_assert(std::is_same_v<assumed_of<const result<owner>&>, const owner&>);
static_assert(std::is_same_v<error_of<result<owner>>, error>);
static_assert(std::is_same_v<error_of<result<owner>&>, const error&>);
static_assert(std::is_void_v<value_of<result<void>>>);

// A result is as large as the larger of its value and its error, plus a discriminator.
static_assert(sizeof(result<void>) == sizeof(error) + sizeof(void*));
static_assert(sizeof(result<owner>) == sizeof(result<void>));

// A result can be created implicitly from its value, from its error, and from a type that converts
// to only one of the two.
static_assert(std::is_convertible_v<int, result<int>>);
static_assert(std::is_convertible_v<error, result<int>>);
static_assert(std::is_convertible_v<error, transport_result<int>>);
static_assert(std::is_convertible_v<work_error, transport_result<int>>);
static_assert(std::is_convertible_v<work_result<int>, result<int>>);
static_assert(std::is_convertible_v<batch_result, result<void>>);
static_assert(std::is_convertible_v<batch_result, transport_result<void>>);
static_assert(std::is_convertible_v<transport_result<int>, result<int>>);
static_assert(!std::is_convertible_v<error, batch_result>);
static_assert(!std::is_convertible_v<work_error, batch_result>);
static_assert(std::is_trivially_copyable_v<error> && sizeof(error) <= 9 * sizeof(void*));
static_assert(std::is_convertible_v<const char*, result<std::string>>);
static_assert(!std::is_convertible_v<result<int>, result<std::string>>);
static_assert(!std::is_convertible_v<result<void>, result<int>>);
static_assert(std::is_convertible_v<result<int>, transport_result<int>>);
static_assert(!std::is_convertible_v<result<int>, bool>);
static_assert(!std::is_convertible_v<result<owner>, result<bool>>);

// Results can be created and read in constant expressions.
constexpr result<int> three = 3;
static_assert(three.has_value() && !three.has_error() && three.value() == 3);
constexpr result<int> refused = error(error_kind::busy, "operation", nullptr);
static_assert(!refused && refused.error() == error_kind::busy);
static_assert(result<void>(success()).has_value());
static_assert(result<long>(three).value() == 3);

}  // namespace
