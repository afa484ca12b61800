// SPDX-License-Identifier: Apache-2.0

// A literal that is out of a parameter's range does not compile. A parameter cannot be confused
// with a different parameter.

#include <verbspp/device/port.hpp>
#include <verbspp/qp/parameters.hpp>

#include <chrono>
#include <type_traits>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

/// True if the parameter accepts the literal.
template <class Parameter, auto Literal>
concept Takes = requires { typename std::bool_constant<(Parameter(Literal), true)>; };
template <class Parameter, auto Minimum, auto Maximum>
concept TakesExactly =
    Takes<Parameter, Minimum> && Takes<Parameter, Maximum> && !Takes<Parameter, Minimum - 1> &&
    !Takes<Parameter, Maximum + 1> && !Takes<Parameter, Maximum + (1LL << 32)>;

static_assert(TakesExactly<queue_pair_number, 0, 0xffffff>);
static_assert(TakesExactly<packet_sequence_number, 0, 0xffffff>);
static_assert(TakesExactly<retry_count, 0, 7>);
static_assert(TakesExactly<rnr_retry_count, 0, 6>, "7 would mean unlimited");
static_assert(TakesExactly<read_depth, 0, 255>);
static_assert(TakesExactly<service_level, 0, 15>);
static_assert(TakesExactly<hop_limit, 0, 255>);
static_assert(TakesExactly<traffic_class, 0, 255>);
static_assert(TakesExactly<work_request_count, 0, 0x7fffffffLL>);
static_assert(TakesExactly<element_count, 0, 0x7fffffffLL>);
static_assert(TakesExactly<inline_size, 0, 0x7fffffffLL>);
static_assert(TakesExactly<port_number, 1, 255>);
static_assert(TakesExactly<gid_index, 0, 255>);
static_assert(TakesExactly<pkey_index, 0, 65535>);
static_assert(TakesExactly<lid, 0, 65535>);
static_assert(TakesExactly<min_rnr_timer, 0, 31>);
static_assert(TakesExactly<ack_timeout, 1, 31>, "0 would mean infinite");
static_assert(TakesExactly<path_mtu, 256, 256>);
static_assert(TakesExactly<path_mtu, 512, 512>);
static_assert(TakesExactly<path_mtu, 1024, 1024>);
static_assert(TakesExactly<path_mtu, 2048, 2048>);
static_assert(TakesExactly<path_mtu, 4096, 4096>);
static_assert(!Takes<path_mtu, 0>);
static_assert(!Takes<path_mtu, -256>);
static_assert(!Takes<path_mtu, 3>, "a code is not a size");
static_assert(!Takes<path_mtu, 1500>);
static_assert(!Takes<path_mtu, 8192>);

// Durations are rounded up, never down.
static_assert(min_rnr_timer(1ms).code() == 14);
static_assert(min_rnr_timer(655360us).code() == 0);
static_assert(min_rnr_timer(0ms).code() == 1);
static_assert(ack_timeout(67108864ns).code() == 14);
static_assert(ack_timeout(67108865ns).code() == 15);
static_assert(ack_timeout(1h).code() == 30);
static_assert(min_rnr_timer().duration() == 640us);
static_assert(ack_timeout().duration() == 67108864ns);

// Values that are known only at run time are checked. The check also works at compile time.
static_assert(retry_count::from(7).has_value());
static_assert(retry_count::from(8).has_error());
static_assert(path_mtu::from(1024).has_value());
static_assert(path_mtu::from(1000).has_error());
static_assert(min_rnr_timer::at_least(1s).has_error());
static_assert(ack_timeout::at_least(3h).has_error());

// A literal converts implicitly to a parameter. A parameter converts neither to a different
// parameter nor to a number.
static_assert(std::is_convertible_v<int, retry_count>);
static_assert(!std::is_convertible_v<double, retry_count>);
static_assert(!std::is_convertible_v<retry_count, int>);
static_assert(!std::is_convertible_v<hop_limit, traffic_class>);
static_assert(!std::is_convertible_v<queue_pair_number, packet_sequence_number>);
static_assert(!std::is_convertible_v<retry_count, rnr_retry_count>);
static_assert(!std::is_convertible_v<min_rnr_timer, ack_timeout>);
static_assert(!std::is_convertible_v<gid_index, pkey_index>);
static_assert(!std::is_convertible_v<std::chrono::duration<double>, ack_timeout>);
static_assert(!std::is_convertible_v<std::chrono::duration<double>, min_rnr_timer>);

template <class Left, class Right>
concept Comparable = requires(Left left, Right right) { left == right; };
static_assert(Comparable<retry_count, retry_count>);
static_assert(!Comparable<hop_limit, traffic_class>);
static_assert(!Comparable<queue_pair_number, packet_sequence_number>);

}  // namespace
