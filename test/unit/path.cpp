// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "text.hpp"
#include <verbspp/device/path.hpp>
#include <verbspp/qp/attributes.hpp>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr gid peer{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}};

std::string refusal(const path& way, link_layer port) {
  const auto checked = detail::check_path(way, port, "test");
  return checked.has_error() ? checked.error().message() : "";
}

}  // namespace

TEST_CASE("a path on InfiniBand uses a LID") {
  const path way = infiniband_path{.destination = 0x107,
                                   .service_level = 3,
                                   .source_path_bits = 5,
                                   .static_rate = IBV_RATE_10_GBPS};
  CHECK(way.link_layer() == link_layer::infiniband);
  CHECK_FALSE(way.is_global());
  const ibv_ah_attr native = way.native(2);
  CHECK(native.dlid == 0x107);
  CHECK(native.sl == 3);
  CHECK(native.src_path_bits == 5);
  CHECK(native.static_rate == IBV_RATE_10_GBPS);
  CHECK(native.is_global == 0);
  CHECK(native.port_num == 2);
}

TEST_CASE("a path to another InfiniBand subnet uses a LID and a GID") {
  const path way = infiniband_path{
      .destination = 1, .route = global_route{.destination = peer, .source = 4, .hop_limit = 9}};
  CHECK(way.is_global());
  const ibv_ah_attr native = way.native(1);
  CHECK(native.dlid == 1);
  CHECK(native.is_global == 1);
  CHECK(gid::from_native(native.grh.dgid) == peer);
  CHECK(native.grh.sgid_index == 4);
  CHECK(native.grh.hop_limit == 9);
}

TEST_CASE("a RoCE path always has a global route") {
  const path way = roce_path{
      .route = {.destination = peer, .source = 3, .traffic_class = 0x68, .flow_label = 0xabcde},
      .service_level = 7};
  CHECK(way.link_layer() == link_layer::ethernet);
  CHECK(way.is_global());
  const ibv_ah_attr native = way.native(1);
  CHECK(native.dlid == 0);
  CHECK(native.sl == 7);
  CHECK(native.is_global == 1);
  CHECK(gid::from_native(native.grh.dgid) == peer);
  CHECK(native.grh.sgid_index == 3);
  CHECK(native.grh.hop_limit == 64);
  CHECK(native.grh.traffic_class == 0x68);
  CHECK(native.grh.flow_label == 0xabcde);
}

TEST_CASE("a port accepts only paths of its own link layer that contain an address") {
  const path roce = roce_path{.route = {.destination = peer}};
  const path infiniband = infiniband_path{.destination = 1};
  CHECK(refusal(roce, link_layer::ethernet).empty());
  CHECK(refusal(infiniband, link_layer::infiniband).empty());
  CHECK(contains(refusal(roce, link_layer::infiniband),
                 "the path is a roce_path, but this port is InfiniBand"));
  CHECK(contains(refusal(infiniband, link_layer::ethernet), "use a roce_path"));
  CHECK(contains(refusal(roce_path{}, link_layer::ethernet), "destination GID is missing"));
  CHECK(contains(refusal(infiniband_path{}, link_layer::infiniband), "destination LID is missing"));
  CHECK(contains(
      refusal(infiniband_path{.destination = 1, .route = global_route{}}, link_layer::infiniband),
      "destination GID is missing"));
}

TEST_CASE("a path prints its destination") {
  CHECK(printed(path(infiniband_path{.destination = 7, .service_level = 1})) ==
        "InfiniBand, LID 7, service level 1");
  CHECK(printed(path(roce_path{.route = {.destination = peer, .source = 3}})) ==
        "Ethernet, GID ::ffff:192.0.2.1 from GID index 3, hop limit 64, traffic class 0, service "
        "level 0");
}

TEST_CASE("exactly the attributes that have a setter have a name") {
  for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
    const bool has_setter =
        bit != IBV_QP_CAP && (bit < IBV_QP_DEST_QPN << 1 || bit == IBV_QP_RATE_LIMIT);
    INFO("bit " << bit);
    CHECK((std::string(to_string(static_cast<queue_pair_attribute>(bit))) != "unknown attribute") ==
          has_setter);
  }
  CHECK(std::string(to_string(path_migration_state::armed)) == "armed");
}
