// SPDX-License-Identifier: Apache-2.0

// The type of a queue pair builder records which parameters have been set.

#include <verbspp/qp/builder.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace {

using namespace verbspp;

constexpr queue_pair_parameter_set pd = queue_pair_parameter::protection_domain;
constexpr queue_pair_parameter_set send_cq = queue_pair_parameter::send_completion_queue;
constexpr queue_pair_parameter_set receive_cq = queue_pair_parameter::receive_completion_queue;
constexpr queue_pair_parameter_set rights = queue_pair_parameter::access;
constexpr queue_pair_parameter_set nothing{};
constexpr auto all_given = queue_pair_parameter_set::from_bits((1U << 26) - 1);

template <queue_pair_parameter_set Given>
using builder = queue_pair_builder<transport::rc, Given>;

// build() requires exactly the four required parameters.

template <queue_pair_parameter_set Given>
concept CanBuild = requires(const builder<Given>& given) { given.build(); };

static_assert(!CanBuild<nothing>);
static_assert(!CanBuild<pd>);
static_assert(!CanBuild<send_cq>);
static_assert(!CanBuild < pd | send_cq >);
static_assert(!CanBuild<receive_cq>);
static_assert(!CanBuild < pd | receive_cq >);
static_assert(!CanBuild < send_cq | receive_cq >);
static_assert(!CanBuild < pd | send_cq | receive_cq >);
static_assert(!CanBuild<rights>);
static_assert(!CanBuild < pd | rights >);
static_assert(!CanBuild < send_cq | rights >);
static_assert(!CanBuild < pd | send_cq | rights >);
static_assert(!CanBuild < receive_cq | rights >);
static_assert(!CanBuild < pd | receive_cq | rights >);
static_assert(!CanBuild < send_cq | receive_cq | rights >);
static_assert(CanBuild < pd | send_cq | receive_cq | rights >);

static_assert(CanBuild<all_given>);
static_assert(!CanBuild<all_given - pd>);
static_assert(!CanBuild<all_given - send_cq>);
static_assert(!CanBuild<all_given - receive_cq>);
static_assert(!CanBuild<all_given - rights>);

static_assert(std::is_same_v<decltype(std::declval<builder<all_given>>().build()),
                             result<prepared_queue_pair<transport::rc>>>);

// Each of these setters adds only the parameter after which it is named, except that
// `completion_queue` adds both queues. This holds no matter which other parameters are set. Each
// setter can be called only once.

template <class Setter, class First, class Again, class Others, class All>
concept Gives =
    std::is_same_v<std::invoke_result_t<Setter, const First&>, Again> &&
    std::is_same_v<std::invoke_result_t<Setter, const Others&>, All> &&
    !std::is_invocable_v<Setter, const Again&> && !std::is_invocable_v<Setter, const All&>;

#define GIVES(added, setter, ...)                                                       \
  struct call_##setter {                                                                \
    template <class Builder>                                                            \
    auto operator()(const Builder& given) const -> decltype(given.setter(__VA_ARGS__)); \
  };                                                                                    \
  static_assert(Gives<call_##setter, builder<nothing>, builder<added>,                  \
                      builder<all_given - (added)>, builder<all_given>>)

using queue = completion_queue;
using domain = protection_domain;

GIVES(pd, protection_domain, std::declval<const domain&>());
GIVES(send_cq, send_completion_queue, std::declval<const queue&>());
GIVES(receive_cq, receive_completion_queue, std::declval<const queue&>());
GIVES(send_cq | receive_cq, completion_queue, std::declval<const queue&>());
GIVES(rights, access, access::local_write);
GIVES(queue_pair_parameter::max_send_work_requests, max_send_work_requests, 1);
GIVES(queue_pair_parameter::max_receive_work_requests, max_receive_work_requests, 1);
GIVES(queue_pair_parameter::max_send_elements, max_send_elements, 1);
GIVES(queue_pair_parameter::max_receive_elements, max_receive_elements, 1);
GIVES(queue_pair_parameter::max_inline_data, max_inline_data, 1);
GIVES(queue_pair_parameter::signal_all_sends, signal_all_sends);
GIVES(queue_pair_parameter::port, port, 1);
GIVES(queue_pair_parameter::pkey_index, pkey_index, 1);
GIVES(queue_pair_parameter::gid_index, gid_index, 1);
GIVES(queue_pair_parameter::rnr_retry_count, rnr_retry_count, 1);
GIVES(queue_pair_parameter::ack_retry_count, ack_retry_count, 1);
GIVES(queue_pair_parameter::min_rnr_timer, min_rnr_timer, 1);
GIVES(queue_pair_parameter::ack_timeout, ack_timeout, 1);
GIVES(queue_pair_parameter::path_mtu, path_mtu, 1024);
GIVES(queue_pair_parameter::send_psn, send_psn, 1);
GIVES(queue_pair_parameter::receive_psn, receive_psn, 1);
GIVES(queue_pair_parameter::max_reads_as_initiator, max_reads_as_initiator, 1);
GIVES(queue_pair_parameter::max_reads_as_target, max_reads_as_target, 1);
GIVES(queue_pair_parameter::service_level, service_level, 1);
GIVES(queue_pair_parameter::hop_limit, hop_limit, 1);
GIVES(queue_pair_parameter::traffic_class, traffic_class, 1);
GIVES(queue_pair_parameter::flow_label, flow_label, 1);

#undef GIVES

// Parameters that have a default accept an optional, and count as set even if it is empty. Required
// parameters don't, and neither do those that determine the queue pair's type.

#define GIVES_OPTIONAL(setter, Value)                                                        \
  static_assert(std::is_same_v<decltype(std::declval<const builder<nothing>&>().setter(      \
                                   std::declval<const std::optional<Value>&>())),            \
                               builder<queue_pair_parameter::setter>>);                      \
  static_assert(                                                                             \
      std::is_same_v<decltype(std::declval<const builder<nothing>&>().setter(std::nullopt)), \
                     builder<queue_pair_parameter::setter>>)

GIVES_OPTIONAL(max_send_work_requests, work_request_count);
GIVES_OPTIONAL(max_receive_work_requests, work_request_count);
GIVES_OPTIONAL(max_send_elements, element_count);
GIVES_OPTIONAL(max_receive_elements, element_count);
GIVES_OPTIONAL(max_inline_data, inline_size);
GIVES_OPTIONAL(signal_all_sends, bool);
GIVES_OPTIONAL(port, port_number);
GIVES_OPTIONAL(pkey_index, pkey_index);
GIVES_OPTIONAL(gid_index, gid_index);
GIVES_OPTIONAL(rnr_retry_count, rnr_retry_count);
GIVES_OPTIONAL(ack_retry_count, retry_count);
GIVES_OPTIONAL(min_rnr_timer, min_rnr_timer);
GIVES_OPTIONAL(ack_timeout, ack_timeout);
GIVES_OPTIONAL(path_mtu, path_mtu);
GIVES_OPTIONAL(send_psn, packet_sequence_number);
GIVES_OPTIONAL(receive_psn, packet_sequence_number);
GIVES_OPTIONAL(max_reads_as_initiator, read_depth);
GIVES_OPTIONAL(max_reads_as_target, read_depth);
GIVES_OPTIONAL(service_level, service_level);
GIVES_OPTIONAL(hop_limit, hop_limit);
GIVES_OPTIONAL(traffic_class, traffic_class);
GIVES_OPTIONAL(flow_label, flow_label);

template <class Builder>
concept BuildsWithOptionalAccess = requires(
    const Builder& given, const std::optional<access_flags>& value) { given.access(value); };
template <class Builder>
concept BuildsWithOptionalQueue = requires(
    const Builder& given, const std::optional<queue>& value) { given.completion_queue(value); };
static_assert(!BuildsWithOptionalAccess<builder<nothing>>);
static_assert(!BuildsWithOptionalQueue<builder<nothing>>);

#undef GIVES_OPTIONAL

// A completion queue for both directions counts as both parameters.
template <queue_pair_parameter_set Given>
concept TakesOneQueueForBoth =
    requires(const builder<Given>& given, const queue& both) { given.completion_queue(both); };
static_assert(TakesOneQueueForBoth<nothing>);
static_assert(!TakesOneQueueForBoth<send_cq>);
static_assert(!TakesOneQueueForBoth<receive_cq>);

// The parameters of `all_given` occupy bits 0 to 25.
static_assert(queue_pair_parameter_set(queue_pair_parameter::flow_label).bits == 1U << 25);

}  // namespace
