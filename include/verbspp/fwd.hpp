// SPDX-License-Identifier: Apache-2.0
/// \file
/// Forward declarations of verbspp's types, for headers that need only their names, in pointers,
/// references, and the parameters and return types of declarations.
///
/// Templates have no default arguments here, because the definitions have them: write
/// `queue_pair<transport::rc, queue_pair_state::ready_to_send, receive_queue_kind::own,
/// posting_interface::standard>`. Some types are not declared here, because their declarations
/// would need other definitions. Among these types are `cm_session`, `exchange_session`,
/// `meeting_session`, `registered_buffer`, `revoked`, `shared_buffer`, `shared_part`,
/// `remote_object`, `remote_array`, `pending_call`, `received_call`, results
/// (`<verbspp/base/result.hpp>` is cheap to include), and the names of bounded integers, such as
/// `port_number`. `asio_channel` and `asio_source` are not declared either, because their namespace
/// depends on the Asio that the program uses.
#pragma once

#include <verbspp/base/flags.hpp>

#include <cstddef>
#include <cstdint>

namespace verbspp {

// base
class error;
enum class error_kind : std::uint8_t;
class exception;
enum class ownership : std::uint8_t;
class event_loop;
class wait_limit;
template <class Traits>
class bounded;

// device
class async_event;
enum class async_event_element : std::uint8_t;
enum class async_event_severity : std::uint8_t;
enum class async_event_type : std::uint32_t;
class context;
class device;
class device_list;
enum class fork_safety : std::uint8_t;
struct gid;
struct gid_entry;
class gid_table;
enum class gid_type : std::uint8_t;
struct global_route;
class guid;
struct infiniband_path;
struct interface_address;
class interface_table;
struct ip_route;
enum class link_layer : std::uint8_t;
enum class numa_binding : std::uint8_t;
class path;
class path_mtu;
class port_attributes;
enum class port_state : std::uint8_t;
struct port_towards;
struct roce_path;

// memory
enum class access_flag : unsigned;
using access_flags = flags<access_flag>;
struct buffer_options;
template <class Buffer>
class buffer_part;
template <access_flags Rights>
class dmabuf_region;
struct dmabuf_range;
template <class Element>
class element_list;
class gather_element;
class inline_payload;
class local_key;
template <access_flags Rights>
class memory_region;
enum class memory_window_type : std::uint8_t;
template <memory_window_type Type>
class memory_window;
struct on_demand_paging;
enum class on_demand_use : std::uint32_t;
enum class page_kind : std::uint8_t;
class protection_domain;
template <access_flags Rights>
class registered_region;
class remote_destination;
class remote_flushable;
class remote_key;
template <access_flags Rights>
class remote_memory;
class remote_source;
class remote_word;
class scatter_element;
class thread_domain;
template <access_flags Rights>
class window_part;

// work
class address_handle;
struct atomic_write_operation;
class batch_error;
struct bind_options;
template <class Element>
struct basic_compare_and_swap_operation;
using compare_and_swap_operation = basic_compare_and_swap_operation<scatter_element>;
class completed_work;
class datagram_destination;
struct datagram_operation;
template <class Element>
struct basic_fetch_and_add_operation;
using fetch_and_add_operation = basic_fetch_and_add_operation<scatter_element>;
struct flush_operation;
enum class flush_placement : std::uint8_t;
enum class flush_scope : std::uint8_t;
class immediate_data;
struct local_invalidate_operation;
enum class posting_interface : std::uint8_t;
struct queue_pair_capacities;
enum class queue_pair_state : std::uint8_t;
template <class Elements>
struct basic_read_operation;
using read_operation = basic_read_operation<element_list<scatter_element>>;
enum class receive_queue_kind : std::uint8_t;
template <class Elements>
struct basic_receive_operation;
using receive_operation = basic_receive_operation<element_list<scatter_element>>;
struct receive_tag;
class received_datagram;
template <class Elements>
struct basic_send_operation;
using send_operation = basic_send_operation<element_list<gather_element>>;
struct send_with_invalidate_operation;
enum class transport : std::uint8_t;
class transport_error;
class work_completion;
class work_error;
enum class work_error_class : std::uint8_t;
class work_exception;
enum class work_operation : std::uint32_t;
enum class work_status : std::uint32_t;
struct work_tag;
template <class Elements>
struct basic_write_operation;
using write_operation = basic_write_operation<element_list<gather_element>>;
template <class List, std::size_t Shortest>
class receive_batch;
template <transport Transport, posting_interface Posting, class List, std::size_t Requests>
class send_batch;

// queue
class completion_channel;
enum class completion_feature : std::uint64_t;
using completion_features = flags<completion_feature>;
class completion_queue;
class completion_queue_accounting;
template <completion_features Features>
class completion_queue_with;
template <completion_features Fields>
class extended_completed_work;
template <completion_features Features>
class extended_completion;
enum class notify_for : int;
class send_queue_accounting;
class shared_receive_queue;
struct shared_receive_queue_capacities;
struct shared_receive_queue_status;
enum class wait_end : std::uint8_t;
enum class watch_for : std::uint8_t;
struct watched_completions;

// qp
class ack_timeout;
class address_offer;
struct address_pair;
enum class address_reach : std::uint8_t;
struct alternate_path;
struct endpoint;
struct managed_attributes;
class min_rnr_timer;
struct offered_address;
enum class path_migration_state : std::uint8_t;
enum class queue_pair_attribute : int;
using queue_pair_attribute_set = flags<queue_pair_attribute>;
enum class queue_pair_parameter : std::uint32_t;
using queue_pair_parameter_set = flags<queue_pair_parameter>;
class queue_pair_status;
class rnr_retry_count;
struct transition_attributes;
struct transition_row;
template <transport Transport, queue_pair_state State, receive_queue_kind Receives,
          posting_interface Posting>
class queue_pair;
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given>
class queue_pair_attributes;
template <transport Transport, queue_pair_parameter_set Given>
class queue_pair_builder;
struct unusable_addresses;

// wait, pool, hub, core, channel and async
struct arrival;
class call_limit;
template <class Work, class Function>
class callback;
class channel;
class channel_failure;
class channel_hub;
struct channel_id;
class async_scope;
class async_stream;
class channel_scope;
enum class channel_state : std::uint8_t;
template <bool Waits>
class basic_stream;
using channel_stream = basic_stream<true>;
struct channel_tag;
class continuation;
template <class>
class hub_clients;
struct hub_options;
class hub_scheduler;
class inbox;
struct inbox_options;
class kept_pending;
enum class lease_by : std::uint8_t;
class message;
class message_pool;
class prepared_channel;
class scope_error;
using scoped_pending = kept_pending;
struct stream_options;
class wait_mode;
template <std::size_t Requests, class List>
class channel_batch;
template <transport Transport, queue_pair_parameter_set Given>
class channel_builder;
template <class Memory, class Result>
struct finished;
template <class Element>
class kept_elements;
template <access_flags Rights, class Memory>
class lease;
template <class Memory>
class pending;

// cm
struct cm_accept_options;
class cm_address;
struct cm_connect_options;
class cm_connection;
class cm_datagram_listener;
struct cm_datagram_peer;
class cm_datagram_request;
class cm_datagram_route;
enum class cm_event : std::uint32_t;
class cm_listener;
struct cm_listener_options;
class cm_multicast;
struct cm_rejection;
enum class cm_rejection_reason : std::uint16_t;
class cm_request;
class cm_resolver;
class cm_route;
struct cm_route_options;
enum class cm_state : std::uint8_t;
struct managed_channel;
template <class Connected>
struct managed_queue_pair;
template <std::size_t Most>
class private_data;

// exchange
template <class Outcome, class Kept>
struct accepted_exchange;
struct acceptor_options;
template <std::size_t Maximum>
class bounded_bytes;
template <std::size_t Maximum>
class bounded_text;
template <class Theirs, class Prepare>
class exchange_acceptor;
template <class End, class Mine, class Kept>
struct exchange_offer;
struct exchange_options;
enum class exchange_role : std::uint8_t;
template <class Theirs>
struct exchanged_channel;
template <class Connected, class Theirs>
struct exchanged_queue_pair;
class tcp_listener;
class tcp_socket;

// group
class group;
class group_error;
struct group_options;
class group_pending;
class group_results;
class group_scope;
class manual_group_scope;
class peer_list;
struct peer_result;
class prepared_group;

// ranks
class any_bootstrap;
enum class barrier_kind : std::uint8_t;
class barrier_session;
struct host_entry;
class host_list;
class hosts_bootstrap;
class local_bootstrap;
class pmix_bootstrap;
class tcp_bootstrap;
struct tcp_launch;
class world;

// calls
struct bytes;
class caller;
class duration_histogram;
struct caller_options;
struct caller_statistics;
class received_bytes;
class service;
struct service_options;
struct service_statistics;
template <class Value>
struct codec;

}  // namespace verbspp
