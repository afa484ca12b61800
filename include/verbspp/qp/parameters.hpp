// SPDX-License-Identifier: Apache-2.0
/// \file
/// The parameters of a queue pair, each with a type that checks the range of its values.
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/work/capacities.hpp>

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <utility>

namespace verbspp {

namespace detail {
struct packet_sequence_number_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0xffffff;
  static constexpr const char* name = "packet sequence number (24 bits)";
};
struct retry_count_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 7;
  static constexpr const char* name = "ACK retry count (0..7)";
};
struct read_depth_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 255;
  static constexpr const char* name = "outstanding RDMA reads and atomics (0..255)";
};
/// Converts a duration to nanoseconds, rounded up. A duration out of range becomes the largest or
/// the most negative value.
template <std::integral Rep, class Period>
[[nodiscard]] constexpr std::int64_t in_nanoseconds(
    std::chrono::duration<Rep, Period> duration) noexcept {
  using std::chrono::nanoseconds;
  constexpr std::int64_t limit =
      (nanoseconds::max)().count() / std::ratio_divide<Period, std::nano>::num;
  if (std::cmp_greater(duration.count(), limit)) return (nanoseconds::max)().count();
  if (std::cmp_less(duration.count(), -limit)) return (nanoseconds::min)().count();
  return std::chrono::ceil<nanoseconds>(std::chrono::duration<std::int64_t, Period>(
                                            static_cast<std::int64_t>(duration.count())))
      .count();
}

/// The duration for a min RNR NAK timer code; see the InfiniBand Architecture Specification, table
/// 45.
[[nodiscard]] constexpr std::int64_t rnr_timer_microseconds(std::uint8_t code) noexcept {
  constexpr std::array<std::uint32_t, 32> tens_of_microseconds{
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::int64_t{10} * tens_of_microseconds[code];
}
}  // namespace detail

/// The sequence number (PSN) of a packet, such as the first packet in a direction.
using packet_sequence_number = bounded<detail::packet_sequence_number_traits>;
/// The number of times a request is retransmitted after an ACK timeout.
using retry_count = bounded<detail::retry_count_traits>;
/// The number of RDMA reads and atomics that may be outstanding at the same time.
using read_depth = bounded<detail::read_depth_traits>;
/// The number of times a request is retransmitted if the receiver is not ready: 0 to 6, or
/// unlimited.
class rnr_retry_count {
  // The same as result<rnr_retry_count>, but instantiated only where it is used.
  template <class Argument>
  using result_for = result<detail::dependent_on<rnr_retry_count, Argument>>;

 public:
  constexpr rnr_retry_count() noexcept = default;
  template <detail::Number Integer>
  consteval rnr_retry_count(const Integer& retries) noexcept
      : code_(static_cast<std::uint8_t>(VERBSPP_DETAIL_LITERAL(retries))) {
    if (std::cmp_less(retries, 0) || std::cmp_greater(retries, maximum))
      detail::value_is_out_of_range();
  }
  VERBSPP_DETAIL_NUMBERS_ONLY(rnr_retry_count);
  [[nodiscard]] static constexpr rnr_retry_count unlimited() noexcept {
    rnr_retry_count result;
    result.code_ = unlimited_code;
    return result;
  }
  /// Converts a number of retries.
  /// \errors `invalid_input` outside 0..6
  template <detail::Number Integer>
  [[nodiscard]] static constexpr result_for<Integer> from(Integer retries) noexcept {
    if (std::cmp_less(retries, 0) || std::cmp_greater(retries, maximum))
      return error::out_of_range("parameter", "RNR retry count (0..6, or unlimited())", retries);
    rnr_retry_count result;
    result.code_ = static_cast<std::uint8_t>(retries);
    return result;
  }

  [[nodiscard]] constexpr bool is_unlimited() const noexcept { return code_ == unlimited_code; }
  /// The code that verbs use for this number of retries; 7 stands for unlimited.
  [[nodiscard]] constexpr std::uint8_t code() const noexcept { return code_; }
  friend constexpr bool operator==(rnr_retry_count, rnr_retry_count) noexcept = default;

 private:
  static constexpr std::uint8_t maximum = 6;
  static constexpr std::uint8_t unlimited_code = 7;
  std::uint8_t code_ = 0;
};

/// The time that a receiver without a posted receive asks the sender to wait before it retransmits:
/// 32 codes, 0.01 ms to 655.36 ms.
class min_rnr_timer {
  // The same as result<min_rnr_timer>, but instantiated only where it is used.
  template <class Argument>
  using result_for = result<detail::dependent_on<min_rnr_timer, Argument>>;

 public:
  /// Code 12, which is 0.64 ms.
  constexpr min_rnr_timer() noexcept = default;
  template <detail::Number Integer>
  consteval min_rnr_timer(const Integer& code) noexcept
      : code_(static_cast<std::uint8_t>(VERBSPP_DETAIL_LITERAL(code))) {
    if (std::cmp_less(code, 0) || std::cmp_greater(code, maximum)) detail::value_is_out_of_range();
  }
  VERBSPP_DETAIL_NUMBERS_ONLY(min_rnr_timer);
  /// Converts a constant duration, rounded up to the next code.
  template <std::integral Rep, class Period>
  consteval min_rnr_timer(std::chrono::duration<Rep, Period> duration) noexcept
      : code_(code_for(detail::in_nanoseconds(duration))) {
    if (code_ == none) detail::value_is_out_of_range();
  }
  /// Converts a code.
  /// \errors `invalid_input` outside 0..31
  template <detail::Number Integer>
  [[nodiscard]] static constexpr result_for<Integer> from(Integer code) noexcept {
    if (std::cmp_less(code, 0) || std::cmp_greater(code, maximum))
      return error::out_of_range("parameter", "min RNR NAK timer code (0..31)", code);
    return with_code(static_cast<std::uint8_t>(code));
  }
  /// Returns the shortest timer that is not shorter than `duration`.
  /// \errors `invalid_input` if it is negative or longer than 655.36 ms
  template <std::integral Rep, class Period>
  [[nodiscard]] static constexpr result_for<Rep> at_least(
      std::chrono::duration<Rep, Period> duration) noexcept {
    const std::int64_t asked = detail::in_nanoseconds(duration);
    const std::uint8_t code = code_for(asked);
    if (code == none)
      return error::out_of_range("parameter", "min RNR NAK timer in ns (0..655360000)", asked);
    return with_code(code);
  }

  /// The exact duration.
  [[nodiscard]] constexpr std::chrono::microseconds duration() const noexcept {
    return std::chrono::microseconds(detail::rnr_timer_microseconds(code_));
  }
  [[nodiscard]] constexpr std::uint8_t code() const noexcept { return code_; }
  friend constexpr bool operator==(min_rnr_timer, min_rnr_timer) noexcept = default;

 private:
  static constexpr std::uint8_t maximum = 31;
  static constexpr std::uint8_t none = 0xff;

  static constexpr min_rnr_timer with_code(std::uint8_t code) noexcept {
    min_rnr_timer result;
    result.code_ = code;
    return result;
  }
  static constexpr std::uint8_t code_for(std::int64_t nanoseconds) noexcept {
    if (nanoseconds < 0) return none;
    // Code 0 stands for the longest duration; the other durations increase with the code.
    for (std::uint8_t code = 1; code <= maximum; ++code)
      if (1000 * detail::rnr_timer_microseconds(code) >= nanoseconds) return code;
    return 1000 * detail::rnr_timer_microseconds(0) >= nanoseconds ? std::uint8_t{0} : none;
  }

  std::uint8_t code_ = 12;
};

/// The time to wait for an acknowledgement before retransmitting: 4.096 us x 2^code, or forever.
///
/// The device may wait up to four times as long.
class ack_timeout {
  // The same as result<ack_timeout>, but instantiated only where it is used.
  template <class Argument>
  using result_for = result<detail::dependent_on<ack_timeout, Argument>>;

 public:
  /// Code 14, which is 67.1 ms.
  constexpr ack_timeout() noexcept = default;
  template <detail::Number Integer>
  consteval ack_timeout(const Integer& code) noexcept
      : code_(static_cast<std::uint8_t>(VERBSPP_DETAIL_LITERAL(code))) {
    if (std::cmp_less(code, minimum) || std::cmp_greater(code, maximum))
      detail::value_is_out_of_range();
  }
  VERBSPP_DETAIL_NUMBERS_ONLY(ack_timeout);
  /// Converts a constant duration, rounded up to the next code.
  template <std::integral Rep, class Period>
  consteval ack_timeout(std::chrono::duration<Rep, Period> duration) noexcept
      : code_(code_for(detail::in_nanoseconds(duration))) {
    if (code_ == none) detail::value_is_out_of_range();
  }
  /// No timeout: the device waits for an acknowledgement forever, and does not notice a dead peer.
  [[nodiscard]] static constexpr ack_timeout infinite() noexcept { return with_code(0); }
  /// Converts a code.
  /// \errors `invalid_input` outside 1..31
  template <detail::Number Integer>
  [[nodiscard]] static constexpr result_for<Integer> from(Integer code) noexcept {
    if (std::cmp_less(code, minimum) || std::cmp_greater(code, maximum))
      return error::out_of_range("parameter", "ACK timeout code (1..31, or infinite())", code);
    return with_code(static_cast<std::uint8_t>(code));
  }
  /// Returns the shortest timeout that is not shorter than `duration`.
  /// \errors `invalid_input` if it is negative or longer than 4.096 us x 2^31 (2.44 hours)
  template <std::integral Rep, class Period>
  [[nodiscard]] static constexpr result_for<Rep> at_least(
      std::chrono::duration<Rep, Period> duration) noexcept {
    const std::int64_t asked = detail::in_nanoseconds(duration);
    const std::uint8_t code = code_for(asked);
    if (code == none)
      return error::out_of_range("parameter", "ACK timeout in ns (0..8796093022208)", asked);
    return with_code(code);
  }

  [[nodiscard]] constexpr bool is_infinite() const noexcept { return code_ == 0; }
  /// The exact duration; `nanoseconds::max()` if infinite.
  [[nodiscard]] constexpr std::chrono::nanoseconds duration() const noexcept {
    return is_infinite() ? (std::chrono::nanoseconds::max)()
                         : std::chrono::nanoseconds(nanoseconds_of(code_));
  }
  [[nodiscard]] constexpr std::uint8_t code() const noexcept { return code_; }
  friend constexpr bool operator==(ack_timeout, ack_timeout) noexcept = default;

 private:
  static constexpr std::uint8_t minimum = 1;
  static constexpr std::uint8_t maximum = 31;
  static constexpr std::uint8_t none = 0xff;

  static constexpr ack_timeout with_code(std::uint8_t code) noexcept {
    ack_timeout result;
    result.code_ = code;
    return result;
  }
  static constexpr std::int64_t nanoseconds_of(std::uint8_t code) noexcept {
    return std::int64_t{4096} << code;
  }
  static constexpr std::uint8_t code_for(std::int64_t nanoseconds) noexcept {
    if (nanoseconds < 0) return none;
    for (std::uint8_t code = minimum; code <= maximum; ++code)
      if (nanoseconds_of(code) >= nanoseconds) return code;
    return none;
  }

  std::uint8_t code_ = 14;
};

}  // namespace verbspp
