// SPDX-License-Identifier: Apache-2.0

// Shared handles can be copied, but owners can only be moved. Neither operation throws.

#include <verbspp/channel.hpp>

#include <type_traits>

namespace {

using namespace verbspp;

/// A handle that can be copied. All copies refer to the same object.
template <class Handle>
concept SharedHandle =
    std::is_nothrow_copy_constructible_v<Handle> && std::is_nothrow_copy_assignable_v<Handle> &&
    std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle> &&
    std::is_nothrow_destructible_v<Handle> && !std::is_default_constructible_v<Handle>;

/// The only owner of an object. It may be empty.
template <class Owner>
concept MoveOnly =
    !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
    std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner> &&
    std::is_nothrow_destructible_v<Owner>;

/// The only owner of an object. It cannot be created empty.
template <class Owner>
concept SoleOwner = MoveOnly<Owner> && !std::is_default_constructible_v<Owner>;

/// An owner that can be stored before its object exists.
template <class Owner>
concept StorableOwner = MoveOnly<Owner> && std::is_nothrow_default_constructible_v<Owner>;

static_assert(SharedHandle<device_list>);
static_assert(SharedHandle<device>);
static_assert(SharedHandle<context>);
static_assert(SharedHandle<protection_domain>);
static_assert(SharedHandle<completion_queue>);
static_assert(SharedHandle<completion_channel>);
static_assert(SharedHandle<waitable_completion_queue>);
static_assert(sizeof(context) == sizeof(void*));
static_assert(sizeof(protection_domain) == sizeof(void*));
static_assert(sizeof(completion_channel) == sizeof(void*));

// A waitable completion queue converts to a plain one, but not the other way round.
static_assert(std::is_convertible_v<const waitable_completion_queue&, const completion_queue&>);
static_assert(sizeof(waitable_completion_queue) == sizeof(completion_queue));
static_assert(!std::is_constructible_v<waitable_completion_queue, completion_queue>);
// A waitable queue also converts to a queue with fewer features.
using timed_queue = extended_completion_queue<completion_feature::timestamp>;
using waitable_timed_queue =
    completion_queue_with<completion_feature::waitable | completion_feature::timestamp>;
static_assert(SharedHandle<waitable_timed_queue>);
static_assert(sizeof(waitable_timed_queue) == sizeof(completion_queue));
static_assert(std::is_convertible_v<const waitable_timed_queue&, const completion_queue&>);
static_assert(std::is_convertible_v<waitable_timed_queue, waitable_completion_queue>);
static_assert(std::is_convertible_v<waitable_timed_queue, timed_queue>);
static_assert(!std::is_constructible_v<waitable_timed_queue, waitable_completion_queue>);
static_assert(!std::is_constructible_v<waitable_timed_queue, timed_queue>);
static_assert(!std::is_constructible_v<waitable_completion_queue, timed_queue>);
// A completion cannot be copied out of its polling session, but the values that were read from it
// can.
static_assert(!std::is_copy_constructible_v<extended_completion<completion_feature::timestamp>>);
static_assert(std::is_trivially_copyable_v<extended_completed_work<completion_feature::timestamp>>);

static_assert(SoleOwner<memory_region<>>);
static_assert(SoleOwner<memory_region<access::local_write | access::all_remote>>);
static_assert(SoleOwner<dmabuf_region<access::local_write>>);
static_assert(SoleOwner<registered_buffer<>>);
static_assert(SoleOwner<registered_buffer<access::local_write | access::all_remote, double>>);
static_assert(SoleOwner<memory_window<memory_window_type::type_1>>);
static_assert(SoleOwner<memory_window<memory_window_type::type_2>>);
static_assert(StorableOwner<lease<access::remote_read>>);
static_assert(SoleOwner<lease<access::remote_read, registered_buffer<>>>);
static_assert(sizeof(lease<access::remote_read>) == sizeof(void*));
static_assert(SoleOwner<prepared_queue_pair<transport::rc>>);
static_assert(SoleOwner<connected_queue_pair<transport::rc>>);
static_assert(SoleOwner<gid_table>);

// A memory region does not convert to one with other rights.
static_assert(!std::is_constructible_v<memory_region<access::local_write>, memory_region<>>);
static_assert(!std::is_constructible_v<memory_region<>, memory_region<access::local_write>>);
static_assert(!std::is_constructible_v<memory_region<>, dmabuf_region<>>, "no bytes to look at");
// The common base class of memory regions cannot be constructed from one, so a region cannot be
// sliced.
static_assert(!std::is_constructible_v<registered_region<access::local_read>, memory_region<>>);

// A memory window does not convert to one of another type.
static_assert(!std::is_constructible_v<memory_window<memory_window_type::type_1>,
                                       memory_window<memory_window_type::type_2>>);

// A queue pair does not convert to one in another state.
static_assert(!std::is_constructible_v<connected_queue_pair<transport::rc>,
                                       prepared_queue_pair<transport::rc>>);
static_assert(!std::is_constructible_v<prepared_queue_pair<transport::rc>,
                                       connected_queue_pair<transport::rc>>);

// A builder can be copied, and so used for several queue pairs.
static_assert(std::is_copy_constructible_v<queue_pair_builder<transport::rc>>);

// A C handle does not convert implicitly to an object of the library, and such an object converts
// neither to a C handle nor to a number.
static_assert(!std::is_convertible_v<ibv_context*, context>);
static_assert(!std::is_convertible_v<ibv_pd*, protection_domain>);
static_assert(!std::is_convertible_v<ibv_cq*, completion_queue>);
static_assert(!std::is_convertible_v<ibv_cq*, waitable_completion_queue>);
static_assert(!std::is_convertible_v<ibv_comp_channel*, completion_channel>);
static_assert(!std::is_constructible_v<memory_window<memory_window_type::type_2>, ibv_mw*>);
static_assert(!std::is_convertible_v<context, ibv_context*>);
static_assert(!std::is_convertible_v<protection_domain, ibv_pd*>);
static_assert(!std::is_convertible_v<completion_queue, ibv_cq*>);
static_assert(!std::is_convertible_v<completion_queue, bool>);
static_assert(!std::is_convertible_v<prepared_queue_pair<transport::rc>, bool>);

}  // namespace
