// SPDX-License-Identifier: Apache-2.0

// Functions that can fail return a result, and do not throw.

#include <verbspp/verbspp.hpp>

#include <chrono>
#include <span>
#include <type_traits>
#include <utility>

namespace {

using namespace verbspp;

constexpr access_flags all = access::local_write | access::all_remote;
constexpr auto everything_given = queue_pair_parameter_set::from_bits((1U << 26) - 1);

// Stands for an object in unevaluated expressions. It is never called.
template <class Object>
Object& an() noexcept;
using bytes = std::span<const std::byte>;
using deadline = std::chrono::steady_clock::time_point;

static_assert(noexcept(device_list::query()));
static_assert(noexcept(an<device_list>().find("soft0")));
static_assert(noexcept(an<device_list>()[0].open()));
static_assert(noexcept(open_device("soft0")));
static_assert(noexcept(an<context>().query_device()));
static_assert(noexcept(an<context>().query_port(1)));
static_assert(noexcept(an<context>().first_active_port()));
static_assert(noexcept(an<context>().query_gid(1, 0)));
static_assert(noexcept(an<context>().query_gid_table(1)));
static_assert(noexcept(protection_domain::allocate(an<context>())));
static_assert(noexcept(completion_queue::create(an<context>(), 1)));
static_assert(noexcept(an<completion_queue>().poll(an<std::span<work_completion>>())));
static_assert(noexcept(completion_queue::from_native(an<context>(), nullptr, ownership::taken)));
static_assert(noexcept(an<completion_queue>().with<completion_feature::waitable>()));
static_assert(noexcept(std::move(an<completion_queue>()).release()));
static_assert(noexcept(completion_channel::create(an<context>())));
static_assert(noexcept(completion_channel::from_native(an<context>(), nullptr, ownership::taken)));
static_assert(noexcept(std::move(an<completion_channel>()).release()));
static_assert(noexcept(an<completion_channel>().poll()));
static_assert(noexcept(an<completion_channel>().wait(an<deadline>())));
static_assert(noexcept(waitable_completion_queue::create(an<completion_channel>(), 1)));
static_assert(noexcept(waitable_completion_queue::create(an<context>(), 1)));
static_assert(noexcept(an<waitable_completion_queue>().request_notification()));
static_assert(noexcept(an<waitable_completion_queue>().wait(an<std::span<work_completion>>(),
                                                            an<deadline>())));
// A duration can be passed in place of a deadline.
static_assert(noexcept(an<waitable_completion_queue>().wait(an<std::span<work_completion>>(),
                                                            an<std::chrono::milliseconds>())));
static_assert(noexcept(an<waitable_completion_queue>().completion_channel()));
static_assert(noexcept(shared_receive_queue::from_native(an<protection_domain>(), nullptr,
                                                         ownership::taken)));
static_assert(noexcept(std::move(an<shared_receive_queue>()).release()));
static_assert(noexcept(an<context>().poll_async_event()));
static_assert(noexcept(an<context>().wait_async_event(an<deadline>())));
static_assert(noexcept(an<work_completion>().get()));
static_assert(noexcept(register_memory<all>(an<protection_domain>(), an<int[4]>())));
static_assert(noexcept(an<memory_region<all>>().gather()));
static_assert(noexcept(an<memory_region<all>>().gather(0, 1)));
static_assert(noexcept(an<memory_region<all>>().gather_unchecked(0, 1)));
static_assert(noexcept(an<memory_region<all>>().scatter()));
static_assert(noexcept(an<memory_region<all>>().scatter(0, 1)));
static_assert(noexcept(an<memory_region<all>>().scatter_unchecked(0, 1)));
static_assert(noexcept(an<memory_region<all>>().remote()));
static_assert(noexcept(std::move(an<memory_region<all>>()).deregister()));
static_assert(noexcept(std::move(an<memory_region<all>>()).change_rights<all>()));
static_assert(noexcept(
    std::move(an<memory_region<all>>()).change_protection_domain(an<protection_domain>())));
static_assert(noexcept(std::move(an<memory_region<all>>()).change_memory(an<int[4]>())));
static_assert(noexcept(register_memory_at<all>(an<protection_domain>(), 0, an<int[4]>())));
static_assert(noexcept(register_dmabuf<all>(an<protection_domain>(), an<dmabuf_range>())));
static_assert(noexcept(on_demand_paging::query(an<context>())));
static_assert(noexcept(registered_buffer<all>::allocate(an<protection_domain>(), 1)));
static_assert(noexcept(an<registered_buffer<all>>().gather(0, 1)));
static_assert(noexcept(an<registered_buffer<all>>().scatter(0, 1)));
static_assert(noexcept(std::move(an<registered_buffer<all>>()).release()));
static_assert(noexcept(
    remote_object<int, access::remote_read>::at(an<remote_memory<access::remote_read>>())));
static_assert(
    noexcept(remote_array<int, access::remote_read>::of(an<remote_memory<access::remote_read>>())));
static_assert(noexcept(an<remote_array<int, access::remote_read>>().element(0)));
static_assert(noexcept(memory_window<memory_window_type::type_1>::create(an<protection_domain>())));
static_assert(noexcept(
    an<memory_region<all | access::window_bind>>().window_part<access::remote_read>(0, 1)));
static_assert(noexcept(fork_status()));
static_assert(noexcept(initialize_fork()));
static_assert(noexcept(an<remote_memory<access::remote_read>>().slice(0, 1)));
static_assert(noexcept(an<remote_memory<access::remote_read>>().encode()));
static_assert(noexcept(remote_memory<access::remote_read>::decode(an<bytes>())));
static_assert(noexcept(build_queue_pair<transport::rc>()));
static_assert(
    noexcept(build_queue_pair<transport::rc>().protection_domain(an<protection_domain>())));
static_assert(noexcept(build_queue_pair<transport::rc>().completion_queue(an<completion_queue>())));
static_assert(noexcept(an<queue_pair_builder<transport::rc, everything_given>>().build()));
static_assert(noexcept(an<endpoint>().encode()));
static_assert(noexcept(endpoint::decode(an<bytes>())));
static_assert(noexcept(check_compatible(an<endpoint>(), an<endpoint>())));

using prepared = prepared_queue_pair<transport::rc>;
using connected = connected_queue_pair<transport::rc>;

static_assert(noexcept(std::move(an<prepared>()).handshake(an<endpoint>())));
static_assert(noexcept(an<prepared>().post_receive(an<receive_operation>())));
static_assert(noexcept(an<connected>().post_receive(an<receive_operation>())));
static_assert(noexcept(an<connected>().post_send(an<send_operation>())));
static_assert(noexcept(an<connected>().post_write(an<write_operation>())));
static_assert(noexcept(an<connected>().post_read(an<read_operation>())));
using readable_part = window_part<access::remote_read>;
static_assert(noexcept(an<connected>().post_bind(an<memory_window<memory_window_type::type_1>>(),
                                                 an<readable_part>(), an<work_tag>())));
static_assert(noexcept(an<connected>().post_bind(an<memory_window<memory_window_type::type_2>>(),
                                                 an<readable_part>(), an<work_tag>())));
static_assert(noexcept(an<connected>().query_state()));

// Destroying and moving a queue pair, or a result that holds one, does not throw.
static_assert(std::is_nothrow_destructible_v<prepared>);
static_assert(std::is_nothrow_destructible_v<result<prepared>>);
static_assert(std::is_nothrow_move_constructible_v<result<prepared>>);

}  // namespace
