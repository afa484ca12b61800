// SPDX-License-Identifier: Apache-2.0

// The library's value types are copied bytewise. A type that represents a C type or a number has
// the same size and alignment as that C type or number.

#include <verbspp/verbspp.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>

namespace {

using namespace verbspp;

template <class Value>
concept Plain = std::is_trivially_copyable_v<Value> && std::is_trivially_destructible_v<Value>;

static_assert(Plain<error>);
static_assert(Plain<access_flags>);
static_assert(Plain<queue_pair_parameter_set>);
static_assert(Plain<gid>);
static_assert(Plain<gid_entry>);
static_assert(Plain<port_attributes>);
static_assert(Plain<path_mtu>);
static_assert(Plain<port_number>);
static_assert(Plain<rnr_retry_count>);
static_assert(Plain<min_rnr_timer>);
static_assert(Plain<ack_timeout>);
static_assert(Plain<queue_pair_capacities>);
static_assert(Plain<transition_attributes>);
static_assert(Plain<endpoint>);
static_assert(Plain<gather_element>);
static_assert(Plain<scatter_element>);
static_assert(Plain<gather_list>);
static_assert(Plain<scatter_list>);
static_assert(Plain<remote_memory<access::all_remote>>);
static_assert(Plain<remote_object<std::uint64_t, access::all_remote>>);
static_assert(Plain<remote_array<std::uint64_t, access::all_remote>>);
static_assert(Plain<on_demand_paging>);
static_assert(Plain<remote_destination>);
static_assert(Plain<remote_source>);
static_assert(Plain<immediate_data>);
static_assert(Plain<send_operation>);
static_assert(Plain<receive_operation>);
static_assert(Plain<write_operation>);
static_assert(Plain<read_operation>);
static_assert(Plain<async_event>);
static_assert(Plain<work_error>);
static_assert(Plain<completed_work>);
static_assert(Plain<work_completion>);
static_assert(Plain<transport_error>);

/// True if both types have the same size and alignment, and `Value` has a standard layout and is
/// trivially copyable. Arrays of both types then have the same stride.
template <class Value, class Other>
concept LaidOutAs = sizeof(Value) == sizeof(Other) && alignof(Value) == alignof(Other) &&
                    std::is_standard_layout_v<Value> && std::is_trivially_copyable_v<Value>;

static_assert(LaidOutAs<gather_element, ibv_sge>);
static_assert(LaidOutAs<scatter_element, ibv_sge>);
static_assert(LaidOutAs<work_completion, ibv_wc>);
static_assert(LaidOutAs<access_flags, unsigned>);
static_assert(LaidOutAs<queue_pair_parameter_set, std::uint32_t>);
static_assert(LaidOutAs<immediate_data, std::uint32_t>);
static_assert(LaidOutAs<queue_pair_number, std::uint32_t>);
static_assert(LaidOutAs<packet_sequence_number, std::uint32_t>);
static_assert(LaidOutAs<work_request_count, std::uint32_t>);
static_assert(LaidOutAs<element_count, std::uint32_t>);
static_assert(LaidOutAs<inline_size, std::uint32_t>);
static_assert(LaidOutAs<lid, std::uint16_t>);
static_assert(LaidOutAs<pkey_index, std::uint16_t>);
static_assert(LaidOutAs<port_number, std::uint8_t>);
static_assert(LaidOutAs<gid_index, std::uint8_t>);
static_assert(LaidOutAs<retry_count, std::uint8_t>);
static_assert(LaidOutAs<read_depth, std::uint8_t>);
static_assert(LaidOutAs<service_level, std::uint8_t>);
static_assert(LaidOutAs<hop_limit, std::uint8_t>);
static_assert(LaidOutAs<traffic_class, std::uint8_t>);
static_assert(LaidOutAs<rnr_retry_count, std::uint8_t>);
static_assert(LaidOutAs<min_rnr_timer, std::uint8_t>);
static_assert(LaidOutAs<ack_timeout, std::uint8_t>);
static_assert(LaidOutAs<path_mtu, std::uint8_t>);

static_assert(sizeof(gid) == 16);
static_assert(sizeof(remote_memory<access::remote_read>) == 24, "address, length, rkey");
static_assert(sizeof(remote_object<int, access::remote_read>) == 24);
static_assert(sizeof(remote_destination) == 24);
static_assert(sizeof(remote_source) == 24);
static_assert(sizeof(gather_list) == 4 * sizeof(void*));

static_assert(endpoint::encoded_size == 368);
static_assert(remote_memory<access::remote_read>::encoded_size == 24);

// The rights are part of the type, so they use no memory.
static_assert(sizeof(memory_region < access::all_remote | access::local_write >) ==
              sizeof(memory_region<>));

// These types have no default value. An element, for instance, requires registered memory.
static_assert(!std::is_default_constructible_v<gather_element>);
static_assert(!std::is_default_constructible_v<scatter_element>);
static_assert(!std::is_default_constructible_v<remote_memory<access::remote_read>>);
static_assert(!std::is_default_constructible_v<remote_destination>);
static_assert(!std::is_default_constructible_v<immediate_data>);

}  // namespace
