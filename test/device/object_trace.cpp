// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"
#include "transports.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

struct traced {
  std::string call;
  const void* object;
  std::uint32_t number;
};
std::vector<traced> all_traced;

/// Records the calls of the object trace handler while this object exists.
class trace_recorder {
 public:
  trace_recorder() {
    all_traced.clear();
    before_ = set_object_trace_handler(
        [](const char* call, const void* object, std::uint32_t number) noexcept {
          all_traced.push_back({call, object, number});
        });
  }
  trace_recorder(const trace_recorder&) = delete;
  trace_recorder& operator=(const trace_recorder&) = delete;
  ~trace_recorder() { set_object_trace_handler(before_); }

 private:
  object_trace_handler before_;
};

/// Returns the call that destroys the objects that `call` creates, or an empty string if `call`
/// creates nothing.
[[nodiscard]] std::string opposite_of(std::string_view call) {
  static const std::map<std::string_view, std::string_view> opposites{
      {"ibv_open_device", "ibv_close_device"},
      {"ibv_alloc_pd", "ibv_dealloc_pd"},
      {"ibv_alloc_parent_domain", "ibv_dealloc_pd"},
      {"ibv_alloc_td", "ibv_dealloc_td"},
      {"ibv_alloc_mw", "ibv_dealloc_mw"},
      {"ibv_reg_mr", "ibv_dereg_mr"},
      {"ibv_reg_mr_iova", "ibv_dereg_mr"},
      {"ibv_create_comp_channel", "ibv_destroy_comp_channel"},
      {"ibv_create_cq", "ibv_destroy_cq"},
      {"ibv_create_cq_ex", "ibv_destroy_cq"},
      {"ibv_create_srq", "ibv_destroy_srq"},
      {"ibv_create_qp", "ibv_destroy_qp"},
      {"ibv_create_qp_ex", "ibv_destroy_qp"},
      {"ibv_create_ah", "ibv_destroy_ah"},
  };
  const auto found = opposites.find(call);
  return found == opposites.end() ? std::string() : std::string(found->second);
}

[[nodiscard]] std::size_t count_of(std::string_view call) {
  return static_cast<std::size_t>(std::ranges::count(all_traced, call, &traced::call));
}

/// Checks that each object was traced when it was created, and then once when it was destroyed.
void check_all_were_destroyed() {
  std::map<const void*, std::string> existing;
  for (const traced& each : all_traced) {
    INFO(each.call);
    if (const std::string opposite = opposite_of(each.call); !opposite.empty()) {
      CHECK(existing.emplace(each.object, opposite).second);
      continue;
    }
    const auto created = existing.find(each.object);
    REQUIRE(created != existing.end());
    CHECK(created->second == each.call);
    existing.erase(created);
  }
  CHECK(existing.empty());
}

}  // namespace

TEST_CASE("a handler traces the creation and destruction of verbs objects") {
  const trace_recorder recorder;
  {
    const auto opened = must(open_device(device_name()));
    const auto domain = must(protection_domain::allocate(opened));
    const auto queue = must(waitable_completion_queue::create(opened, 16));
    const auto receives = must(shared_receive_queue::create(domain, 4, 1));
    const auto extended =
        extended_completion_queue<completion_feature::byte_count>::create(opened, 16);
    CHECK(count_of("ibv_create_cq_ex") == (extended.has_value() ? 1 : 0));
    const auto pair = must(build_queue_pair<transport::rc>()
                               .protection_domain(domain)
                               .completion_queue(queue)
                               .access(all_rights)
                               .build());
    CHECK(all_traced.back().number == pair.endpoint().number.value());
    std::array<std::byte, 64> memory{};
    const auto region = must(register_memory<all_rights>(domain, memory));
    CHECK(all_traced.back().number == must(region.gather(0, 8)).native().lkey);
    const auto threads = thread_domain::create(opened);
    if (threads.has_value()) {
      const auto parent = must(protection_domain::create_parent(domain, threads.value()));
      CHECK(count_of("ibv_alloc_parent_domain") == 1);
    }
    const auto window = memory_window<memory_window_type::type_2>::create(domain);
    CHECK(count_of("ibv_alloc_mw") == (window.has_value() ? 1 : 0));
    const auto datagrams = must(must(build_queue_pair<transport::ud>()
                                         .protection_domain(domain)
                                         .completion_queue(queue)
                                         .qkey(test_key)
                                         .build())
                                    .activate());
    const auto address = must(datagrams.address_of(datagrams.endpoint()));
    CHECK(count_of("ibv_create_ah") == 1);
  }
  CHECK(count_of("ibv_open_device") == 1);
  CHECK(count_of("ibv_create_comp_channel") == 1);
  CHECK(count_of("ibv_create_srq") == 1);
  check_all_were_destroyed();
}

TEST_CASE("a handler traces the objects of channels, and without a handler nothing is traced") {
  {
    const trace_recorder recorder;
    {
      const testbed bed;
      channel_pair ends = test::connect_channels(bed.domain.build_channel());
      must(ends.left.close());
      CHECK(count_of("ibv_destroy_qp") == 1);
      must(ends.left.renew());
      buffer<> memory(bed.domain, 64);
    }
    check_all_were_destroyed();
    all_traced.clear();
  }
  const auto opened = must(open_device(device_name()));
  CHECK(all_traced.empty());
}

TEST_CASE("a context and a protection domain print themselves") {
  auto opened = must(open_device(device_name()));
  auto domain = must(protection_domain::allocate(opened));
  std::ostringstream text;
  text << opened << '\n' << domain;
  CHECK_THAT(text.str(),
             Catch::StartsWith("context fd ") && Catch::Contains("\nprotection domain "));
  CHECK_THAT(text.str(), Catch::EndsWith(", device " + device_name()));
  const auto taken = std::move(domain);
  const auto kept = std::move(opened);
  text.str("");
  text << opened << ", " << domain;
  CHECK(text.str() == "context that was moved from, protection domain that was moved from");
}
