// SPDX-License-Identifier: Apache-2.0

// Numbers that are out of range or known only at run time, and values of other types in place of
// numbers. For some types, the message of the oldest supported clang does not contain the name of
// the type.

#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/work/immediate_data.hpp>

using namespace verbspp;

// case: NUMBER_out_of_range
// columns: NUMBER | BEYOND | LAST | SHOWN
// row: ack_timeout | 32 | 31 | ack_timeout
// row: flow_label | 0x100000 | 0xfffff | /flow_label_traits|in call to 'bounded\(/
// row: min_rnr_timer | 32 | 31 | min_rnr_timer
// row: packet_sequence_number | 1 << 24 | (1 << 24) - 1 | /packet_sequence_number_traits|in call to 'bounded\(/
// row: path_mtu | 1000 | 1024 | path_mtu
// row: port_number | 0 | 1 | /port_number_traits|in call to 'bounded\(/
// row: retry_count | 8 | 7 | /retry_count_traits|in call to 'bounded\(/
// row: rnr_retry_count | 7 | 6 | rnr_retry_count
// expect: value_is_out_of_range
// expect: SHOWN
inline constexpr NUMBER value = BAD(BEYOND) GOOD(LAST);

// case: ack_timeout_too_long
// expect: value_is_out_of_range
// expect: ack_timeout
inline constexpr ack_timeout timeout = std::chrono::hours(BAD(3) GOOD(2));

// case: no_number
// expect: a bool or a character is not a number: write the number
// within: 15
auto setting() {
#if MUST_FAIL == 1
  return retry_count{true};
#elif MUST_FAIL == 2
  return retry_count{'a'};
#elif MUST_FAIL == 3
  return rnr_retry_count{true};
#elif MUST_FAIL == 4
  return min_rnr_timer{true};
#elif MUST_FAIL == 5
  return ack_timeout{true};
#elif MUST_FAIL == 6
  return path_mtu{true};
#else
  return retry_count{1};
#endif
}

// case: number_known_at_run_time
// expect: a value that is known only at run time must be checked: use from(), as in
// within: 15
auto setting(unsigned number) {
#if MUST_FAIL == 1
  return build_queue_pair<transport::rc>().max_send_work_requests(number);
#elif MUST_FAIL == 2
  return build_queue_pair<transport::rc>().ack_timeout(number);
#elif MUST_FAIL == 3
  return retry_count(number);
#elif MUST_FAIL == 4
  return rnr_retry_count(number);
#elif MUST_FAIL == 5
  return min_rnr_timer(number);
#elif MUST_FAIL == 6
  return path_mtu(number);
#else
  return build_queue_pair<transport::rc>().max_send_work_requests(
      work_request_count::from(number).value());
#endif
}

// case: run_time_value_for_a_literal
// expect: /constant expression/
// expect: retry_count
result<retry_count> retries(int count) { return retry_count GOOD(::from)(count); }

// case: immediate_data_cut_off
// expect: immediate data is a 32-bit integer: to convert another number, write
// expect: immediate_data(static_cast<std::uint32_t>(value))
// within: 15
using number = BAD(std::uint64_t) GOOD(std::uint16_t);
auto data(number value) { return immediate_data(value); }

// case: one_parameter_for_another
// expect-gcc: /cannot convert .*traffic_class.* to .*hop_limit/
// expect-clang: /no viable conversion from .*traffic_class.* to .*hop_limit/
auto set(traffic_class traffic, hop_limit hops) {
#ifdef MUST_FAIL
  static_cast<void>(hops);
  return build_queue_pair<transport::rc>().hop_limit(traffic);
#else
  return build_queue_pair<transport::rc>().hop_limit(hops).traffic_class(traffic);
#endif
}
