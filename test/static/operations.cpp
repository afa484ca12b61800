// SPDX-License-Identifier: Apache-2.0

// Concepts and traits can test whether a call compiles. Such a test must also work for a call that
// the library would refuse with a message of its own.

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace verbspp;

using region = memory_region<access::local_write>;
using remote = remote_memory<access::all_remote>;

// Elements
static_assert(std::is_convertible_v<gather_element, gather_list>);
static_assert(std::is_convertible_v<scatter_element, gather_list>);
static_assert(std::is_convertible_v<scatter_element, scatter_list>);
static_assert(std::is_convertible_v<inline_payload, gather_list>);
static_assert(std::is_convertible_v<std::vector<gather_element>&, gather_list>);
static_assert(std::is_convertible_v<std::span<const gather_element>, gather_list>);
static_assert(!std::is_convertible_v<gather_element, scatter_list>);
static_assert(!std::is_convertible_v<gather_element, scatter_element>);
static_assert(!std::is_convertible_v<gather_list, scatter_list>);
static_assert(!std::is_convertible_v<scatter_list, gather_list>);
static_assert(!std::is_convertible_v<result<gather_element>, gather_list>);
static_assert(!std::is_convertible_v<result<scatter_element>, scatter_element>);
static_assert(!std::is_convertible_v<const region&, gather_list>);
static_assert(!std::is_convertible_v<std::string, gather_list>);
static_assert(!std::is_convertible_v<std::span<std::byte>, scatter_list>);
static_assert(!std::is_default_constructible_v<gather_element>);
static_assert(!std::is_default_constructible_v<scatter_element>);

// Remote memory
static_assert(std::is_convertible_v<remote, remote_destination>);
static_assert(!std::is_convertible_v<result<remote>, remote_destination>);
static_assert(!std::is_convertible_v<result<remote>, remote_source>);
static_assert(!std::is_convertible_v<result<remote_word>, remote_word>);
static_assert(!std::is_convertible_v<remote, remote_word>);
static_assert(!std::is_default_constructible_v<remote_destination>);
static_assert(!std::is_default_constructible_v<remote_source>);
static_assert(!std::is_default_constructible_v<remote_word>);
static_assert(!std::is_default_constructible_v<remote_key>);
static_assert(!std::is_default_constructible_v<datagram_destination>);
static_assert(!std::is_default_constructible_v<write_operation>);
static_assert(!std::is_default_constructible_v<fetch_and_add_operation>);

// Immediate data
static_assert(std::is_convertible_v<immediate_data, optional_immediate_data>);
static_assert(std::is_convertible_v<std::optional<immediate_data>, optional_immediate_data>);
static_assert(!std::is_convertible_v<int, optional_immediate_data>);
static_assert(std::is_constructible_v<immediate_data, int>);
static_assert(!std::is_constructible_v<immediate_data, std::uint64_t>);
static_assert(!std::is_constructible_v<immediate_data, double>);
static_assert(sizeof(optional_immediate_data) == sizeof(std::optional<immediate_data>));
static_assert(std::is_trivially_copyable_v<send_operation>);

// Numbers
static_assert(!std::is_constructible_v<retry_count, bool>);
static_assert(!std::is_constructible_v<path_mtu, char>);

// Calls
using connected = connected_queue_pair<transport::rc>;

template <class QueuePair, class Elements>
concept SendsThose = requires(QueuePair& queue_pair, const Elements& elements) {
  queue_pair.post_send({.elements = elements});
};
static_assert(SendsThose<connected, gather_element>);
static_assert(!SendsThose<connected, result<gather_element>>);
static_assert(!SendsThose<connected, region>);
static_assert(!SendsThose<connected_queue_pair<transport::ud>, gather_element>);

template <class QueuePair>
concept SendsNumbers = requires(QueuePair& queue_pair) { queue_pair.post_send(7); };
static_assert(!SendsNumbers<connected>);

template <class QueuePair, class Remote>
concept AddsAt = requires(QueuePair& queue_pair, const scatter_element& part, const Remote& there) {
  queue_pair.post_fetch_and_add({.result = part, .remote = there});
};
static_assert(AddsAt<connected, remote_word>);
static_assert(!AddsAt<connected, remote>);
static_assert(!AddsAt<connected, result<remote_word>>);
static_assert(!AddsAt<connected_queue_pair<transport::uc>, remote_word>);

static_assert(!std::ranges::range<result<std::span<int>>>);

}  // namespace
