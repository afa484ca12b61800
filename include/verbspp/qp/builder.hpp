// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/flags.hpp>
#include <verbspp/base/optional_setting.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <cstdint>
#include <optional>

namespace verbspp {

// g++ warns that an enumerator of a scoped enumeration shadows a declaration outside of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// The parameters that a queue pair builder accepts, with one bit for each.
enum class queue_pair_parameter : std::uint32_t {
  protection_domain = 1U << 0,
  send_completion_queue = 1U << 1,
  receive_completion_queue = 1U << 2,
  access = 1U << 3,
  max_send_work_requests = 1U << 4,
  max_receive_work_requests = 1U << 5,
  max_send_elements = 1U << 6,
  max_receive_elements = 1U << 7,
  max_inline_data = 1U << 8,
  signal_all_sends = 1U << 9,
  port = 1U << 10,
  pkey_index = 1U << 11,
  gid_index = 1U << 12,
  rnr_retry_count = 1U << 13,
  ack_retry_count = 1U << 14,
  min_rnr_timer = 1U << 15,
  ack_timeout = 1U << 16,
  path_mtu = 1U << 17,
  send_psn = 1U << 18,
  receive_psn = 1U << 19,
  max_reads_as_initiator = 1U << 20,
  max_reads_as_target = 1U << 21,
  service_level = 1U << 22,
  hop_limit = 1U << 23,
  traffic_class = 1U << 24,
  flow_label = 1U << 25,
  qkey = 1U << 26,
  shared_receive_queue = 1U << 27,
  extended_posting = 1U << 28,
};
#pragma GCC diagnostic pop

template <>
inline constexpr bool is_flag_bit<queue_pair_parameter> = true;

using queue_pair_parameter_set = flags<queue_pair_parameter>;

template <queue_pair_parameter_set Given>
concept ProtectionDomainGiven =
    detail::because(Given.contains(queue_pair_parameter::protection_domain),
                    "the protection domain is missing: call .protection_domain(pd) on "
                    "the builder first");

template <queue_pair_parameter_set Given>
concept SendCompletionQueueGiven =
    detail::because(Given.contains(queue_pair_parameter::send_completion_queue),
                    "the send completion queue is missing: call .send_completion_queue(cq) or "
                    ".completion_queue(cq) on the builder first");

template <queue_pair_parameter_set Given>
concept ReceiveCompletionQueueGiven =
    detail::because(Given.contains(queue_pair_parameter::receive_completion_queue),
                    "the receive completion queue is missing: call .receive_completion_queue(cq) "
                    "or .completion_queue(cq) on the builder first");

template <transport Transport, queue_pair_parameter_set Given>
concept AccessGiven =
    detail::because(!Connects<Transport> || Given.contains(queue_pair_parameter::access),
                    "the access flags are missing: call .access(access::...) on the builder first, "
                    "to specify what the peer may do");

template <transport Transport, queue_pair_parameter_set Given>
concept QueueKeyGiven = detail::because(
    !SendsDatagrams<Transport> || Given.contains(queue_pair_parameter::qkey),
    "the queue key is missing: call .qkey(...) on the builder first, to specify the key "
    "that datagrams must carry");

template <transport Transport, queue_pair_parameter_set Given>
concept NoParameterMissing = ProtectionDomainGiven<Given> && SendCompletionQueueGiven<Given> &&
                             ReceiveCompletionQueueGiven<Given> && AccessGiven<Transport, Given> &&
                             QueueKeyGiven<Transport, Given>;

/// True if the builder was given the objects from which an adopted queue pair was created.
template <queue_pair_parameter_set Given>
concept ParentsGiven = ProtectionDomainGiven<Given> && SendCompletionQueueGiven<Given> &&
                       ReceiveCompletionQueueGiven<Given>;

template <queue_pair_parameter_set Given>
concept NothingToCreate = detail::because(
    !Given.intersects(
        queue_pair_parameter::max_send_work_requests |
        queue_pair_parameter::max_receive_work_requests | queue_pair_parameter::max_send_elements |
        queue_pair_parameter::max_receive_elements | queue_pair_parameter::max_inline_data |
        queue_pair_parameter::signal_all_sends),
    "a queue pair that was created elsewhere has its sizes and its signaling already: leave out "
    "max_send_work_requests and the other maximum sizes, and signal_all_sends");

/// True if the required access flags or queue key are given. They are required in RESET, because
/// the queue pair has yet to be brought to INIT. In later states, the device reports their values.
template <transport Transport, queue_pair_state State, queue_pair_parameter_set Given>
concept PreparationGiven =
    detail::because(State != queue_pair_state::reset || !Connects<Transport> ||
                        Given.contains(queue_pair_parameter::access),
                    "the access flags are missing: a queue pair in RESET must still be prepared, "
                    "so call .access(access::...) before .from_native<...>(...)") &&
    detail::because(State != queue_pair_state::reset || !SendsDatagrams<Transport> ||
                        Given.contains(queue_pair_parameter::qkey),
                    "the queue key is missing: a queue pair in RESET must still be prepared, so "
                    "call .qkey(...) before .from_native<...>(...)");

template <queue_pair_parameter_set Given, queue_pair_parameter Parameter>
concept NotGivenYet = detail::because(
    !Given.contains(Parameter),
    "this parameter was already given: each parameter of the builder can be given only once");

template <queue_pair_parameter_set Given>
concept NoSharedReceives =
    detail::because(!Given.contains(queue_pair_parameter::shared_receive_queue),
                    "receives are taken from the shared receive queue: set the sizes when you "
                    "create that queue, not on this builder");

template <queue_pair_parameter_set Given>
concept NoOwnReceives =
    detail::because(!Given.intersects(queue_pair_parameter::max_receive_work_requests |
                                      queue_pair_parameter::max_receive_elements),
                    "with a shared receive queue, the queue pair has no receive queue of its own: "
                    "leave out max_receive_work_requests and max_receive_elements");

namespace detail {

/// All settings that the builder collects.
struct queue_pair_settings {
  std::optional<verbspp::protection_domain> domain{};
  std::optional<completion_queue> send_queue{};
  std::optional<completion_queue> receive_queue{};
  std::optional<shared_receive_queue> receives{};
  work_request_count max_send_work_requests = 16;
  work_request_count max_receive_work_requests = 16;
  std::optional<element_count> max_send_elements{};
  std::optional<element_count> max_receive_elements{};
  inline_size max_inline_data = 0;
  bool signal_all_sends = false;
  bool extended_posting = false;
  std::optional<port_number> port{};
  std::optional<verbspp::gid_index> gid_index{};
  std::optional<read_depth> max_reads_as_initiator{};
  std::optional<read_depth> max_reads_as_target{};
  connection_parameters connection{};
};

/// Creates the queue pair, in RESET.
[[nodiscard]] result<queue_pair_data> create(transport type,
                                             const queue_pair_settings& settings) noexcept;
/// Checks that a queue pair that was created elsewhere has the specified properties, and adopts it.
[[nodiscard]] result<queue_pair_data> adopt(transport type, queue_pair_state state, ibv_qp* native,
                                            ownership whose, const queue_pair_settings& settings,
                                            queue_pair_parameter_set given) noexcept;
/// Creates the queue pair and brings it to INIT.
[[nodiscard]] result<queue_pair_data> create_prepared(transport type,
                                                      const queue_pair_settings& settings) noexcept;

}  // namespace detail

template <transport Transport, queue_pair_parameter_set Given = queue_pair_parameter_set{}>
class queue_pair_builder;

/// The setters of all parameters of a queue pair except its protection domain and completion
/// queues. Each class that builds queue pairs (`Builder`) inherits them. The builder's type lists
/// the parameters that were given: each setter returns a new builder whose type also lists the
/// setter's parameter, and leaves the builder on which it was called unchanged.
///
/// Setters of parameters with a default also accept a `std::optional`. If that is empty, the
/// default is used, but the parameter counts as given. This does not apply to the access flags, nor
/// to a shared receive queue and extended posting, which determine the type of the queue pair.
template <template <transport, queue_pair_parameter_set> class Builder, transport Transport,
          queue_pair_parameter_set Given>
class queue_pair_parameters {
  // The same as optional_setting<Value>, but instantiated only where it is used.
  template <class Value>
  using setting = optional_setting<detail::dependent<Value, Transport>>;

 public:
  /// Required on RC and UC, except for a channel. The rights that the peer has through this queue
  /// pair: remote read, remote write, remote atomic, and the rights to RDMA flush. The memory must
  /// grant them as well. Local write is accepted, too, but receives need it only on their memory.
  [[nodiscard]] auto access(access_flags rights) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::access>
  {
    return with<queue_pair_parameter::access>([&](auto& s) { s.connection.access = rights; });
  }
  /// Required on UD. The key that a datagram must carry to be accepted. Peers learn it from the
  /// endpoint.
  [[nodiscard]] auto qkey(queue_key key) const noexcept
    requires SendsDatagrams<Transport> && NotGivenYet<Given, queue_pair_parameter::qkey>
  {
    return with<queue_pair_parameter::qkey>([&](auto& s) { s.connection.qkey = key; });
  }
  /// Takes receives from this shared queue. The queue pair itself then has no `post_receive`.
  [[nodiscard]] auto shared_receive_queue(const class shared_receive_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::shared_receive_queue> && NoOwnReceives<Given>
  {
    return with<queue_pair_parameter::shared_receive_queue>([&](auto& s) { s.receives = queue; });
  }

  /// The length of the send queue: at most the device's limit; 16 by default.
  [[nodiscard]] auto max_send_work_requests(
      optional_setting<work_request_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_send_work_requests>
  {
    return with<queue_pair_parameter::max_send_work_requests>(
        [&](auto& s) { count.replace(s.max_send_work_requests); });
  }
  /// The length of the receive queue: at most the device's limit; 16 by default.
  [[nodiscard]] auto max_receive_work_requests(
      optional_setting<work_request_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_receive_work_requests> &&
             NoSharedReceives<Given>
  {
    return with<queue_pair_parameter::max_receive_work_requests>(
        [&](auto& s) { count.replace(s.max_receive_work_requests); });
  }
  /// The number of scatter-gather elements per request in the send queue; by default, the smaller
  /// of 16 and the device's limit.
  [[nodiscard]] auto max_send_elements(setting<element_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_send_elements>
  {
    return with<queue_pair_parameter::max_send_elements>(
        [&](auto& s) { count.replace(s.max_send_elements); });
  }
  /// The number of scatter-gather elements per receive; by default, the smaller of 16 and the
  /// device's limit.
  [[nodiscard]] auto max_receive_elements(setting<element_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_receive_elements> &&
             NoSharedReceives<Given>
  {
    return with<queue_pair_parameter::max_receive_elements>(
        [&](auto& s) { count.replace(s.max_receive_elements); });
  }
  /// The maximum number of inline bytes in a request; 0 by default. Verbs offer no way to query the
  /// device's limit.
  [[nodiscard]] auto max_inline_data(setting<inline_size> size) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_inline_data>
  {
    return with<queue_pair_parameter::max_inline_data>(
        [&](auto& s) { size.replace(s.max_inline_data); });
  }
  /// Posts batches through the extended interface (`ibv_wr_start` to `ibv_wr_complete`), which
  /// writes directly into the device's queue, without an intermediate list. On a device without
  /// this interface, building fails (`not_supported`). `post_batch` accepts the same requests with
  /// either interface, except atomic writes and flushes, which need this one.
  [[nodiscard]] auto extended_posting() const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::extended_posting>
  {
    return with<queue_pair_parameter::extended_posting>([](auto& s) { s.extended_posting = true; });
  }
  /// Makes every request in the send queue signaled, regardless of its own setting; off by default.
  [[nodiscard]] auto signal_all_sends(setting<bool> all = true) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::signal_all_sends>
  {
    return with<queue_pair_parameter::signal_all_sends>(
        [&](auto& s) { all.replace(s.signal_all_sends); });
  }
  /// The port of the device; by default, the first active one.
  [[nodiscard]] auto port(setting<port_number> number) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::port>
  {
    return with<queue_pair_parameter::port>([&](auto& s) { number.replace(s.port); });
  }
  /// The partition, as an index into the port's pkey table; 0 by default.
  [[nodiscard]] auto pkey_index(setting<verbspp::pkey_index> index) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::pkey_index>
  {
    return with<queue_pair_parameter::pkey_index>(
        [&](auto& s) { index.replace(s.connection.pkey_index); });
  }
  /// The local address, as an index into the port's GID table. By default, a port on Ethernet
  /// offers its usable addresses (see `offer_of`), and the handshake selects the best pair of
  /// addresses of both ends; on InfiniBand, the default is 0.
  [[nodiscard]] auto gid_index(setting<verbspp::gid_index> index) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::gid_index>
  {
    return with<queue_pair_parameter::gid_index>([&](auto& s) { index.replace(s.gid_index); });
  }
  /// The number of times that a request is retransmitted if the peer has no receive posted;
  /// unlimited by default.
  [[nodiscard]] auto rnr_retry_count(
      optional_setting<verbspp::rnr_retry_count> count) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::rnr_retry_count>
  {
    return with<queue_pair_parameter::rnr_retry_count>(
        [&](auto& s) { count.replace(s.connection.rnr_retries); });
  }
  /// The number of times that a request is retransmitted after an ACK timeout; 7 by default. On
  /// Linux's software driver, rxe, 7 means forever, so 6 is used instead.
  [[nodiscard]] auto ack_retry_count(setting<retry_count> count) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::ack_retry_count>
  {
    return with<queue_pair_parameter::ack_retry_count>(
        [&](auto& s) { count.replace(s.connection.retries); });
  }
  /// The time for which a peer waits before it retransmits, if this end has no receive posted; code
  /// 12 (0.64 ms) by default.
  [[nodiscard]] auto min_rnr_timer(setting<verbspp::min_rnr_timer> timer) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::min_rnr_timer>
  {
    return with<queue_pair_parameter::min_rnr_timer>(
        [&](auto& s) { timer.replace(s.connection.min_rnr_timer); });
  }
  /// The time to wait for an acknowledgement; code 14 (67.1 ms) by default. A dead peer is detected
  /// after about ACK timeout x (ACK retry count + 1), and at the latest after four times that.
  [[nodiscard]] auto ack_timeout(setting<verbspp::ack_timeout> timeout) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::ack_timeout>
  {
    return with<queue_pair_parameter::ack_timeout>(
        [&](auto& s) { timeout.replace(s.connection.ack_timeout); });
  }
  /// The path MTU. By default, it is the smaller of the MTUs that the two ends accept. If one end
  /// requests an MTU that the other does not accept, they do not connect.
  [[nodiscard]] auto path_mtu(setting<verbspp::path_mtu> mtu) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::path_mtu>
  {
    return with<queue_pair_parameter::path_mtu>([&](auto& s) { mtu.replace(s.connection.mtu); });
  }
  /// The number of the first packet that this end sends; random by default.
  [[nodiscard]] auto send_psn(setting<packet_sequence_number> psn) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::send_psn>
  {
    return with<queue_pair_parameter::send_psn>(
        [&](auto& s) { psn.replace(s.connection.send_psn); });
  }
  /// The number of the first packet that the peer sends; by default, the send PSN in the peer's
  /// endpoint.
  [[nodiscard]] auto receive_psn(setting<packet_sequence_number> psn) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::receive_psn>
  {
    return with<queue_pair_parameter::receive_psn>(
        [&](auto& s) { psn.replace(s.connection.receive_psn); });
  }
  /// The maximum number of RDMA reads and atomics that this side may have outstanding at the same
  /// time; by default, the smaller of 16 and the device's limit. The handshake lowers it if the
  /// peer accepts fewer.
  [[nodiscard]] auto max_reads_as_initiator(setting<read_depth> depth) const noexcept
    requires Acknowledges<Transport> &&
             NotGivenYet<Given, queue_pair_parameter::max_reads_as_initiator>
  {
    return with<queue_pair_parameter::max_reads_as_initiator>(
        [&](auto& s) { depth.replace(s.max_reads_as_initiator); });
  }
  /// The maximum number of RDMA reads and atomics that the peer may have outstanding at the same
  /// time; by default, the smaller of 16 and the device's limit. The handshake lowers it if the
  /// peer requests fewer.
  [[nodiscard]] auto max_reads_as_target(setting<read_depth> depth) const noexcept
    requires Acknowledges<Transport> &&
             NotGivenYet<Given, queue_pair_parameter::max_reads_as_target>
  {
    return with<queue_pair_parameter::max_reads_as_target>(
        [&](auto& s) { depth.replace(s.max_reads_as_target); });
  }
  /// The service level. 0, the default, adopts the service level that the peer requests, if any.
  /// Ends that request different service levels do not connect.
  [[nodiscard]] auto service_level(setting<verbspp::service_level> level) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::service_level>
  {
    return with<queue_pair_parameter::service_level>(
        [&](auto& s) { level.replace(s.connection.service_level); });
  }
  /// The hop limit of packets with a GRH or, on RoCE v2, an IP header; 64 by default.
  [[nodiscard]] auto hop_limit(setting<verbspp::hop_limit> limit) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::hop_limit>
  {
    return with<queue_pair_parameter::hop_limit>(
        [&](auto& s) { limit.replace(s.connection.hop_limit); });
  }
  /// The traffic class of packets with a GRH. 0, the default, adopts the traffic class that the
  /// peer requests, if any. Ends that request different traffic classes do not connect. On RoCE v2,
  /// the upper six bits are the DSCP.
  [[nodiscard]] auto traffic_class(setting<verbspp::traffic_class> value) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::traffic_class>
  {
    return with<queue_pair_parameter::traffic_class>(
        [&](auto& s) { value.replace(s.connection.traffic_class); });
  }

  /// The flow label of packets with a GRH; 0 by default.
  [[nodiscard]] auto flow_label(setting<verbspp::flow_label> label) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::flow_label>
  {
    return with<queue_pair_parameter::flow_label>(
        [&](auto& s) { label.replace(s.connection.flow_label); });
  }

 protected:
  queue_pair_parameters() noexcept = default;
  /// Copies the settings from a builder in which fewer parameters have been set.
  template <queue_pair_parameter_set Fewer>
  explicit queue_pair_parameters(
      const queue_pair_parameters<Builder, Transport, Fewer>& other) noexcept
      : settings_(other.settings_) {}

  /// Returns a builder whose type also lists `Added`.
  template <queue_pair_parameter_set Added, class Set>
  [[nodiscard]] auto with(Set set) const noexcept {
    using larger = Builder<Transport, Given | Added>;
    larger next(static_cast<const Builder<Transport, Given>&>(*this));
    set(static_cast<queue_pair_parameters<Builder, Transport, (Given | Added)>&>(next).settings_);
    return next;
  }
  [[nodiscard]] const detail::dependent<detail::queue_pair_settings, Transport>& settings()
      const noexcept {
    return settings_;
  }

 private:
  template <template <transport, queue_pair_parameter_set> class, transport,
            queue_pair_parameter_set>
  friend class queue_pair_parameters;

  detail::dependent<detail::queue_pair_settings, Transport> settings_{};
};

/// Collects the parameters of a queue pair. Its type lists the parameters that were given.
///
/// Start with `build_queue_pair<transport::rc>()`. A builder can be kept as a template for several
/// queue pairs. `build()` exists once all required parameters were given.
template <transport Transport, queue_pair_parameter_set Given>
class queue_pair_builder : public queue_pair_parameters<queue_pair_builder, Transport, Given> {
 public:
  /// The kind of the queue pair's receive queue.
  static constexpr receive_queue_kind receives =
      Given.contains(queue_pair_parameter::shared_receive_queue) ? receive_queue_kind::shared
                                                                 : receive_queue_kind::own;
  /// The interface through which batches will be posted.
  static constexpr posting_interface posting =
      Given.contains(queue_pair_parameter::extended_posting) ? posting_interface::extended
                                                             : posting_interface::standard;

  queue_pair_builder() noexcept = default;

  /// Required. The protection domain for the queue pair, and thus for the memory that it uses.
  [[nodiscard]] auto protection_domain(const class protection_domain& domain) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::protection_domain>
  {
    return this->template with<queue_pair_parameter::protection_domain>(
        [&](auto& s) { s.domain = domain; });
  }
  /// Required. The completion queue for the requests in the send queue.
  [[nodiscard]] auto send_completion_queue(const class completion_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::send_completion_queue>
  {
    return this->template with<queue_pair_parameter::send_completion_queue>(
        [&](auto& s) { s.send_queue = queue; });
  }
  /// Required. The completion queue for receives; may be the same as the send completion queue.
  [[nodiscard]] auto receive_completion_queue(const class completion_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::receive_completion_queue>
  {
    return this->template with<queue_pair_parameter::receive_completion_queue>(
        [&](auto& s) { s.receive_queue = queue; });
  }
  /// One completion queue for both directions.
  [[nodiscard]] auto completion_queue(const class completion_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::send_completion_queue> &&
             NotGivenYet<Given, queue_pair_parameter::receive_completion_queue>
  {
    constexpr auto both = queue_pair_parameter::send_completion_queue |
                          queue_pair_parameter::receive_completion_queue;
    return this->template with<both>([&](auto& s) { s.send_queue = s.receive_queue = queue; });
  }
  /// Creates the queue pair (`ibv_create_qp`) and brings it to INIT, so that receives can be posted
  /// before the handshake.
  /// \errors `invalid_input` for a parameter above the device's limit, access flags that a queue
  /// pair does not accept, a port, pkey or GID that the device does not have, or a domain or queues
  /// that were moved from, or do not belong together; `not_found` if the given port is inactive, no
  /// port is active, no GID is usable, or the given GID is empty; `resource_exhausted`, `driver`;
  /// `not_supported` if the device lacks the transport or extended posting; `permission` for a
  /// queue key with its highest bit set, without CAP_NET_RAW
  [[nodiscard]] result<prepared_queue_pair<Transport, receives, posting>> build() const noexcept
    requires NoParameterMissing<Transport, Given>
  {
    VERBSPP_TRY(data, detail::create_prepared(Transport, this->settings()));
    return prepared_queue_pair<Transport, receives, posting>(std::move(data));
  }

  /// Creates the queue pair and leaves it in RESET, for programs that drive the state machine
  /// themselves; `queue_pair::prepare` then does the rest of what `build` does.
  /// \errors those of `build`
  [[nodiscard]] result<queue_pair<Transport, queue_pair_state::reset, receives, posting>> create()
      const noexcept
    requires NoParameterMissing<Transport, Given>
  {
    VERBSPP_TRY(data, detail::create(Transport, this->settings()));
    return queue_pair<Transport, queue_pair_state::reset, receives, posting>(std::move(data));
  }

  /// Takes over or borrows a queue pair that was created elsewhere, by librdmacm (`rdma_create_qp`)
  /// or by C code. The queue pair has to be in `State` according to the device (`ibv_query_qp`).
  ///
  /// The builder must be given the objects from which the queue pair was created. It also accepts
  /// parameters that are used later, for instance in a handshake. In INIT and later states, the
  /// defaults for port, pkey index, access flags and queue key are the values of the queue pair.
  /// Access flags or a queue key are required only in RESET, since the queue pair has yet to be
  /// prepared. A borrowing handle must be destroyed before the creator destroys the queue pair. The
  /// handle's destructor detaches the queue pair from the multicast groups that were joined through
  /// the handle. While the handle exists, no other code may change the state of the queue pair,
  /// unless the program then adapts the type (`assume_state_unchecked`).
  /// \errors `mismatch` if the queue pair has another transport, state or port, or was created from
  /// other objects; `invalid_input` for a null pointer; `not_supported` if extended posting is
  /// requested, but the queue pair was created without it; those of `build` for the parameters. On
  /// failure, the queue pair still belongs to the caller.
  template <queue_pair_state State>
  [[nodiscard]] result<queue_pair<Transport, State, receives, posting>> from_native(
      ibv_qp* native, ownership whose) const noexcept
    requires ParentsGiven<Given> && PreparationGiven<Transport, State, Given> &&
             NothingToCreate<Given>
  {
    VERBSPP_TRY(data, detail::adopt(Transport, State, native, whose, this->settings(), Given));
    return queue_pair<Transport, State, receives, posting>(std::move(data));
  }

 private:
  template <template <transport, queue_pair_parameter_set> class, transport,
            queue_pair_parameter_set>
  friend class queue_pair_parameters;

  /// Copies the settings from a builder in which fewer parameters have been set.
  template <queue_pair_parameter_set Fewer>
  explicit queue_pair_builder(const queue_pair_builder<Transport, Fewer>& other) noexcept
      : queue_pair_parameters<verbspp::queue_pair_builder, Transport, Given>(other) {}
};

/// Starts a builder: `build_queue_pair<transport::rc>().protection_domain(pd)...build()`.
template <transport Transport>
[[nodiscard]] queue_pair_builder<Transport> build_queue_pair() noexcept {
  return {};
}

}  // namespace verbspp
