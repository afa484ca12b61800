// SPDX-License-Identifier: Apache-2.0
/// \file
/// Thread domains, which promise the driver that only one thread at a time uses their
/// objects, and the parent domains in which these objects are created.

#include "device.hpp"
#include "failing_verb.hpp"

#include <array>
#include <optional>
#include <thread>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Creates a thread domain. Skips the test with a message if the device has none.
std::optional<thread_domain> threads_of(const context& opened) {
  auto created = thread_domain::create(opened);
  if (created.has_value()) return std::move(created).assume_value();
  INFO(created.error());
  REQUIRE(created.error() == error_kind::not_supported);
  CHECK_THAT(created.error().message(), Catch::EndsWith("itself, where they use locks"));
  SKIP("the device has no thread domains");
}

}  // namespace

TEST_CASE("regions of a domain work with queue pairs of its parent domain") {
  const testbed bed;
  const auto threads = threads_of(bed.context);
  const auto parent = must(protection_domain::create_parent(bed.domain, *threads));
  CHECK(parent != bed.domain);
  CHECK(parent.below() == bed.domain);
  CHECK(bed.domain.below() == bed.domain);
  CHECK(parent.context() == bed.context);

  const auto ours = [&](const completion_queue& queue) {
    return must(build_queue_pair<transport::rc>()
                    .protection_domain(parent)
                    .completion_queue(queue)
                    .access(all_rights)
                    .build());
  };
  auto [left, right] = connect(ours(bed.left_queue), ours(bed.right_queue));
  const buffer<> source(bed.domain, pattern(64, 1));
  buffer<all_rights | access::window_bind> target(parent, 64);
  CHECK(target.region().protection_domain() == bed.domain);
  must(left.post_write({.elements = source.gather(), .remote = target.remote()}, {.id = 1}));
  take_success(bed.left_queue, 1);
  CHECK(target.bytes() == source.bytes());

  auto window = memory_window<memory_window_type::type_2>::create(parent);
  if (window.has_error()) return;
  const auto part = must(target.region().window_part<access::remote_write>(0, 16));
  static_cast<void>(must(right.post_bind(window.assume_value(), part, {.id = 2})));
  take_success(bed.right_queue, 2);
}

TEST_CASE("a memory window that C code has allocated in a parent domain is adopted") {
  const testbed bed;
  const auto threads = threads_of(bed.context);
  auto parent = std::optional(must(protection_domain::create_parent(bed.domain, *threads)));
  ibv_mw* const made = ibv_alloc_mw(parent->native_handle(), IBV_MW_TYPE_2);
  if (made == nullptr) SKIP("the device has no memory windows of type 2");
  using window_type = memory_window<memory_window_type::type_2>;
  CHECK(failure_of(window_type::from_native(bed.domain, made, ownership::taken)) ==
        error_kind::invalid_input);
  const release_watch watch;
  std::optional window = must(window_type::from_native(*parent, made, ownership::taken));
  CHECK(window->protection_domain() == *parent);
  // The parent domain exists as long as its window.
  parent.reset();
  window.reset();
  CHECK(watch.failures() == 0);
}

TEST_CASE("queue pairs of a parent domain can be built with a shared queue of the domain below") {
  const testbed bed;
  const auto threads = threads_of(bed.context);
  if (bed.limits.max_srq <= 0) SKIP("the device has no shared receive queues");
  const auto parent = must(protection_domain::create_parent(bed.domain, *threads));
  const auto shared = must(shared_receive_queue::create(bed.domain, 4));
  CHECK_NOTHROW(must(build_queue_pair<transport::rc>()
                         .protection_domain(parent)
                         .completion_queue(bed.left_queue)
                         .shared_receive_queue(shared)
                         .access(all_rights)
                         .build()));
}

TEST_CASE("a parent domain keeps its domains alive and is released before them") {
  const release_watch watch;
  std::optional<context> opened = must(open_device(device_name()));
  std::optional<thread_domain> threads = threads_of(*opened);
  std::optional<protection_domain> domain = must(protection_domain::allocate(*opened));
  auto parent = must(protection_domain::create_parent(*domain, *threads));
  // If its argument is itself a parent domain, `create_parent` uses the protection domain on which
  // that parent is based.
  auto second = must(protection_domain::create_parent(parent, *threads));
  CHECK(second.below() == *domain);
  opened.reset();
  threads.reset();
  domain.reset();
  std::array<std::byte, 64> memory{};
  CHECK_NOTHROW(must(register_memory<all_rights>(parent, memory)));
  CHECK(failure_of(std::move(parent).release()) == error_kind::invalid_input);
  parent = std::move(second);
  CHECK_NOTHROW(must(register_memory<all_rights>(parent, memory)));
}

TEST_CASE("parent domains of other contexts or of moved-from objects are refused") {
  const testbed bed;
  auto threads = threads_of(bed.context);
  const context other = must(open_device(device_name()));
  const auto foreign = must(protection_domain::allocate(other));
  const error e = failure_of(protection_domain::create_parent(foreign, *threads));
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::EndsWith("must be created from the same context"));
  const auto taken = std::move(threads);
  CHECK(threads->native_handle() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK_THAT(failure_of(protection_domain::create_parent(bed.domain, *threads)).message(),
             Catch::EndsWith("this thread domain was moved from"));
}

TEST_CASE("each thread can use queue pairs of its own thread domain with shared regions") {
  const testbed bed;
  static_cast<void>(threads_of(bed.context));
  const buffer<> source(bed.domain, pattern(64, 1));
  std::array<std::vector<std::byte>, 2> results;
  std::array<std::thread, 2> threads;
  for (std::size_t i = 0; i < threads.size(); ++i)
    threads[i] = std::thread([&, i] {
      const auto own = must(
          protection_domain::create_parent(bed.domain, must(thread_domain::create(bed.context))));
      const completion_queue queue = must(completion_queue::create(bed.context, 64));
      connected pair = connect_to_itself(must(build_queue_pair<transport::rc>()
                                                  .protection_domain(own)
                                                  .completion_queue(queue)
                                                  .access(all_rights)
                                                  .build()));
      buffer<> target(own, 64);
      for (std::uint64_t id = 0; id < 32; ++id) {
        must(pair.post_write({.elements = source.gather(), .remote = target.remote()}, {.id = id}));
        take_success(queue, id);
      }
      results[i] = target.bytes();
    });
  for (std::thread& each : threads) each.join();
  for (const auto& each : results) CHECK(each == source.bytes());
}
