// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/base/bounded.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/parameters.hpp>

#include <cstdint>
#include <limits>
#include <string>

using verbspp::error_kind;
using verbspp::test::contains;

namespace {

/// A parameter type with the range that it should accept.
template <class Parameter, std::int64_t Minimum, std::int64_t Maximum>
struct range_of {
  using type = Parameter;
  static constexpr std::int64_t minimum = Minimum;
  static constexpr std::int64_t maximum = Maximum;
};

}  // namespace

TEMPLATE_TEST_CASE("a parameter accepts exactly its range", "",
                   (range_of<verbspp::queue_pair_number, 0, 16777215>),
                   (range_of<verbspp::packet_sequence_number, 0, 16777215>),
                   (range_of<verbspp::retry_count, 0, 7>), (range_of<verbspp::read_depth, 0, 255>),
                   (range_of<verbspp::service_level, 0, 15>),
                   (range_of<verbspp::hop_limit, 0, 255>),
                   (range_of<verbspp::traffic_class, 0, 255>),
                   (range_of<verbspp::work_request_count, 0, 2147483647>),
                   (range_of<verbspp::element_count, 0, 2147483647>),
                   (range_of<verbspp::inline_size, 0, 2147483647>),
                   (range_of<verbspp::port_number, 1, 255>), (range_of<verbspp::gid_index, 0, 255>),
                   (range_of<verbspp::pkey_index, 0, 65535>), (range_of<verbspp::lid, 0, 65535>)) {
  using parameter = typename TestType::type;
  constexpr std::int64_t minimum = TestType::minimum;
  constexpr std::int64_t maximum = TestType::maximum;

  for (const std::int64_t value : {minimum, minimum + 1, maximum / 2 + 1, maximum - 1, maximum}) {
    CAPTURE(value);
    const auto made = parameter::from(value);
    REQUIRE(made.has_value());
    CHECK(made.value().value() == value);
  }
  for (const std::int64_t value :
       {minimum - 1, maximum + 1, maximum * 2 + 2, std::int64_t{-1}, std::int64_t{1} << 32,
        (std::int64_t{1} << 32) + minimum, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()}) {
    CAPTURE(value);
    const auto made = parameter::from(value);
    REQUIRE(made.has_error());
    CHECK(made.error() == error_kind::invalid_input);
    CHECK(contains(made.error().message(), std::to_string(value) + " is out of range"));
  }
  CHECK(parameter::from(std::numeric_limits<std::uint64_t>::max()).has_error());
  CHECK(parameter{}.value() == minimum);
  CHECK(parameter::minimum == minimum);
  CHECK(parameter::maximum == maximum);
}

TEST_CASE("the error for a parameter that is out of range contains its name, range and value") {
  CHECK(verbspp::retry_count::from(8).error().message() ==
        "parameter: ACK retry count (0..7): 8 is out of range");
  CHECK(verbspp::port_number::from(0U).error().message() ==
        "parameter: port number (1..255): 0 is out of range");
  CHECK(verbspp::packet_sequence_number::from(std::int8_t{-5}).error().message() ==
        "parameter: packet sequence number (24 bits): -5 is out of range");
  CHECK(verbspp::lid::from(std::numeric_limits<std::uint64_t>::max()).error().message() ==
        "parameter: LID (0..65535): 18446744073709551615 is out of range");
}

TEST_CASE("parameters compare by value") {
  CHECK(verbspp::retry_count(3) == verbspp::retry_count(3));
  CHECK(verbspp::retry_count(3) < verbspp::retry_count(4));
  CHECK(verbspp::read_depth(255) > verbspp::read_depth(16));
}

TEST_CASE("a literal in range converts to a parameter") {
  constexpr verbspp::packet_sequence_number psn = 0xffffff;
  constexpr verbspp::port_number port = 1;
  CHECK(psn.value() == 0xffffff);
  CHECK(port.value() == 1);
}
