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

// g++ takes an enumerator of a scoped enumeration for a shadow of what has its name outside.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// What a queue pair builder can be given, a bit each.
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
                    "the protection domain is missing: call .protection_domain(pd) before "
                    ".build()");

template <queue_pair_parameter_set Given>
concept SendCompletionQueueGiven =
    detail::because(Given.contains(queue_pair_parameter::send_completion_queue),
                    "the send completion queue is missing: call .send_completion_queue(cq) or "
                    ".completion_queue(cq) before .build()");

template <queue_pair_parameter_set Given>
concept ReceiveCompletionQueueGiven =
    detail::because(Given.contains(queue_pair_parameter::receive_completion_queue),
                    "the receive completion queue is missing: call .receive_completion_queue(cq) "
                    "or .completion_queue(cq) before .build()");

template <transport Transport, queue_pair_parameter_set Given>
concept AccessGiven =
    detail::because(!Connects<Transport> || Given.contains(queue_pair_parameter::access),
                    "the access flags are missing: call .access(access::...) before .build() to "
                    "say what peers may do through this queue pair");

template <transport Transport, queue_pair_parameter_set Given>
concept QueueKeyGiven =
    detail::because(!SendsDatagrams<Transport> || Given.contains(queue_pair_parameter::qkey),
                    "the queue key is missing: call .qkey(...) before .build() to say what "
                    "datagrams have to carry to be let in");

template <transport Transport, queue_pair_parameter_set Given>
concept NoParameterMissing = ProtectionDomainGiven<Given> && SendCompletionQueueGiven<Given> &&
                             ReceiveCompletionQueueGiven<Given> && AccessGiven<Transport, Given> &&
                             QueueKeyGiven<Transport, Given>;

/// What a queue pair that was made elsewhere was made from.
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
    "a queue pair that was made elsewhere has the sizes that it was made with: leave out "
    "max_send_work_requests and the like, and signal_all_sends");

/// From RESET the queue pair is still to be prepared; later the device knows what it lets in.
template <transport Transport, queue_pair_state State, queue_pair_parameter_set Given>
concept PreparationGiven =
    detail::because(State != queue_pair_state::reset || !Connects<Transport> ||
                        Given.contains(queue_pair_parameter::access),
                    "the access flags are missing: a queue pair in RESET is still to be prepared, "
                    "so call .access(access::...) before .from_native<...>(...)") &&
    detail::because(State != queue_pair_state::reset || !SendsDatagrams<Transport> ||
                        Given.contains(queue_pair_parameter::qkey),
                    "the queue key is missing: a queue pair in RESET is still to be prepared, so "
                    "call .qkey(...) before .from_native<...>(...)");

template <queue_pair_parameter_set Given, queue_pair_parameter Parameter>
concept NotGivenYet = detail::because(!Given.contains(Parameter),
                                      "this parameter was given already: each parameter of the "
                                      "queue pair builder can be given once");

template <queue_pair_parameter_set Given>
concept NoSharedReceives =
    detail::because(!Given.contains(queue_pair_parameter::shared_receive_queue),
                    "this queue pair takes its receives from a shared receive queue, whose size "
                    "is given at its creation");

template <queue_pair_parameter_set Given>
concept NoOwnReceives =
    detail::because(!Given.intersects(queue_pair_parameter::max_receive_work_requests |
                                      queue_pair_parameter::max_receive_elements),
                    "with a shared receive queue there is no receive queue of the queue pair's own "
                    "to size");

namespace detail {

/// Everything that the builder collects.
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

/// Creates the queue pair, which is in RESET then.
[[nodiscard]] result<queue_pair_data> create(transport type,
                                             const queue_pair_settings& settings) noexcept;
/// Takes in a queue pair that was made elsewhere, once it has been found to be what is said.
[[nodiscard]] result<queue_pair_data> adopt(transport type, queue_pair_state state, ibv_qp* native,
                                            ownership whose, const queue_pair_settings& settings,
                                            queue_pair_parameter_set given) noexcept;
/// Creates the queue pair and brings it to INIT.
[[nodiscard]] result<queue_pair_data> create_prepared(transport type,
                                                      const queue_pair_settings& settings) noexcept;

}  // namespace detail

template <transport Transport, queue_pair_parameter_set Given = queue_pair_parameter_set{}>
class queue_pair_builder;

/// What a queue pair can be given besides its parents, for whatever builds one: `Builder`, whose
/// type knows which parameters it has, inherits this. Each setter returns the builder of the larger
/// set, and leaves the one it was called on as it was.
///
/// What has a default takes a `std::optional` as well: an empty one leaves the default, and counts
/// as given. (What the type of the queue pair follows from does not: a shared receive queue, and
/// extended posting.)
template <template <transport, queue_pair_parameter_set> class Builder, transport Transport,
          queue_pair_parameter_set Given>
class queue_pair_parameters {
  // As optional_setting<Value>, but instantiated only where it is used.
  template <class Value>
  using setting = optional_setting<detail::dependent<Value, Transport>>;

 public:
  /// Required on RC and UC. What the peer may do through this queue pair: local write for its sends
  /// into receives, remote read, remote write, remote atomic. The memory has to grant it as well.
  [[nodiscard]] auto access(access_flags rights) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::access>
  {
    return with<queue_pair_parameter::access>([&](auto& s) { s.connection.access = rights; });
  }
  /// Required on UD. What datagrams have to carry to be let in. The peers get it with the endpoint.
  [[nodiscard]] auto qkey(queue_key key) const noexcept
    requires SendsDatagrams<Transport> && NotGivenYet<Given, queue_pair_parameter::qkey>
  {
    return with<queue_pair_parameter::qkey>([&](auto& s) { s.connection.qkey = key; });
  }
  /// Takes receives from there; the queue pair has no `post_receive` then.
  [[nodiscard]] auto shared_receive_queue(const class shared_receive_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::shared_receive_queue> && NoOwnReceives<Given>
  {
    return with<queue_pair_parameter::shared_receive_queue>([&](auto& s) { s.receives = queue; });
  }

  /// The length of the send queue; 16 by default, up to the device's limit.
  [[nodiscard]] auto max_send_work_requests(
      optional_setting<work_request_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_send_work_requests>
  {
    return with<queue_pair_parameter::max_send_work_requests>(
        [&](auto& s) { count.replace(s.max_send_work_requests); });
  }
  /// The length of the receive queue; 16 by default, up to the device's limit.
  [[nodiscard]] auto max_receive_work_requests(
      optional_setting<work_request_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_receive_work_requests> &&
             NoSharedReceives<Given>
  {
    return with<queue_pair_parameter::max_receive_work_requests>(
        [&](auto& s) { count.replace(s.max_receive_work_requests); });
  }
  /// Scatter-gather elements per send; the smaller of 16 and the device's limit by default.
  [[nodiscard]] auto max_send_elements(setting<element_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_send_elements>
  {
    return with<queue_pair_parameter::max_send_elements>(
        [&](auto& s) { count.replace(s.max_send_elements); });
  }
  /// Scatter-gather elements per receive; the smaller of 16 and the device's limit by default.
  [[nodiscard]] auto max_receive_elements(setting<element_count> count) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_receive_elements> &&
             NoSharedReceives<Given>
  {
    return with<queue_pair_parameter::max_receive_elements>(
        [&](auto& s) { count.replace(s.max_receive_elements); });
  }
  /// Bytes that a send may carry inline; 0 by default. The verbs report no limit of the device.
  [[nodiscard]] auto max_inline_data(setting<inline_size> size) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::max_inline_data>
  {
    return with<queue_pair_parameter::max_inline_data>(
        [&](auto& s) { size.replace(s.max_inline_data); });
  }
  /// Batches go through the extended posting interface (`ibv_wr_start` to `ibv_wr_complete`), which
  /// writes into the device's queue without a list in between. A device without it refuses to build
  /// (`not_supported`); what `post_batch` takes is the same either way.
  [[nodiscard]] auto extended_posting() const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::extended_posting>
  {
    return with<queue_pair_parameter::extended_posting>([](auto& s) { s.extended_posting = true; });
  }
  /// Makes every request of the send queue signaled, whatever it says itself; not so by default.
  [[nodiscard]] auto signal_all_sends(setting<bool> all = true) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::signal_all_sends>
  {
    return with<queue_pair_parameter::signal_all_sends>(
        [&](auto& s) { all.replace(s.signal_all_sends); });
  }
  /// The device's port; the first active one by default.
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
  /// The local address, as an index into the port's GID table. By default the best one: RoCE v2
  /// before v1, IPv4-mapped before global IPv6 before link-local.
  [[nodiscard]] auto gid_index(setting<verbspp::gid_index> index) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::gid_index>
  {
    return with<queue_pair_parameter::gid_index>([&](auto& s) { index.replace(s.gid_index); });
  }
  /// Unlimited by default.
  [[nodiscard]] auto rnr_retry_count(
      optional_setting<verbspp::rnr_retry_count> count) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::rnr_retry_count>
  {
    return with<queue_pair_parameter::rnr_retry_count>(
        [&](auto& s) { count.replace(s.connection.rnr_retries); });
  }
  /// 7 by default. Linux' software driver, rxe, would retry without end then, so it is given 6.
  [[nodiscard]] auto ack_retry_count(setting<retry_count> count) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::ack_retry_count>
  {
    return with<queue_pair_parameter::ack_retry_count>(
        [&](auto& s) { count.replace(s.connection.retries); });
  }
  /// Code 12 (0.64 ms) by default.
  [[nodiscard]] auto min_rnr_timer(setting<verbspp::min_rnr_timer> timer) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::min_rnr_timer>
  {
    return with<queue_pair_parameter::min_rnr_timer>(
        [&](auto& s) { timer.replace(s.connection.min_rnr_timer); });
  }
  /// Code 14 (67.1 ms) by default; a peer that is gone is noticed after about
  /// ACK timeout x (ACK retry count + 1), at most four times that.
  [[nodiscard]] auto ack_timeout(setting<verbspp::ack_timeout> timeout) const noexcept
    requires Acknowledges<Transport> && NotGivenYet<Given, queue_pair_parameter::ack_timeout>
  {
    return with<queue_pair_parameter::ack_timeout>(
        [&](auto& s) { timeout.replace(s.connection.ack_timeout); });
  }
  /// By default the smaller of what both ends take. Ends of which one does not take what the other
  /// asks for do not connect.
  [[nodiscard]] auto path_mtu(setting<verbspp::path_mtu> mtu) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::path_mtu>
  {
    return with<queue_pair_parameter::path_mtu>([&](auto& s) { mtu.replace(s.connection.mtu); });
  }
  /// Random by default.
  [[nodiscard]] auto send_psn(setting<packet_sequence_number> psn) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::send_psn>
  {
    return with<queue_pair_parameter::send_psn>(
        [&](auto& s) { psn.replace(s.connection.send_psn); });
  }
  /// The peer's send PSN, from its endpoint, by default.
  [[nodiscard]] auto receive_psn(setting<packet_sequence_number> psn) const noexcept
    requires Connects<Transport> && NotGivenYet<Given, queue_pair_parameter::receive_psn>
  {
    return with<queue_pair_parameter::receive_psn>(
        [&](auto& s) { psn.replace(s.connection.receive_psn); });
  }
  /// RDMA reads and atomics of this side that may be outstanding at once; the smaller of 16 and
  /// what both devices grant by default.
  [[nodiscard]] auto max_reads_as_initiator(setting<read_depth> depth) const noexcept
    requires Acknowledges<Transport> &&
             NotGivenYet<Given, queue_pair_parameter::max_reads_as_initiator>
  {
    return with<queue_pair_parameter::max_reads_as_initiator>(
        [&](auto& s) { depth.replace(s.max_reads_as_initiator); });
  }
  /// RDMA reads and atomics of the peer's that may be outstanding at once; the default likewise.
  [[nodiscard]] auto max_reads_as_target(setting<read_depth> depth) const noexcept
    requires Acknowledges<Transport> &&
             NotGivenYet<Given, queue_pair_parameter::max_reads_as_target>
  {
    return with<queue_pair_parameter::max_reads_as_target>(
        [&](auto& s) { depth.replace(s.max_reads_as_target); });
  }
  /// By default, and where it is 0, that of the peer, or 0. Ends that ask for different ones do not
  /// connect.
  [[nodiscard]] auto service_level(setting<verbspp::service_level> level) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::service_level>
  {
    return with<queue_pair_parameter::service_level>(
        [&](auto& s) { level.replace(s.connection.service_level); });
  }
  /// 64 by default; used wherever packets carry a GRH, so always on Ethernet.
  [[nodiscard]] auto hop_limit(setting<verbspp::hop_limit> limit) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::hop_limit>
  {
    return with<queue_pair_parameter::hop_limit>(
        [&](auto& s) { limit.replace(s.connection.hop_limit); });
  }
  /// The same; used wherever packets carry a GRH. On RoCE v2 its upper six bits are the DSCP.
  [[nodiscard]] auto traffic_class(setting<verbspp::traffic_class> value) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::traffic_class>
  {
    return with<queue_pair_parameter::traffic_class>(
        [&](auto& s) { value.replace(s.connection.traffic_class); });
  }

  /// 0 by default; used wherever packets carry a GRH.
  [[nodiscard]] auto flow_label(setting<verbspp::flow_label> label) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::flow_label>
  {
    return with<queue_pair_parameter::flow_label>(
        [&](auto& s) { label.replace(s.connection.flow_label); });
  }

 protected:
  queue_pair_parameters() noexcept = default;
  /// With what a builder of fewer parameters was given.
  template <queue_pair_parameter_set Fewer>
  explicit queue_pair_parameters(
      const queue_pair_parameters<Builder, Transport, Fewer>& other) noexcept
      : settings_(other.settings_) {}

  /// The builder that has been given `Added` as well.
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

/// Collects the parameters of a queue pair; its type knows which ones it has.
///
/// `build_queue_pair<transport::rc>()` starts one. It can be kept as a template for several queue
/// pairs. `build()` exists once everything required was given.
template <transport Transport, queue_pair_parameter_set Given>
class queue_pair_builder : public queue_pair_parameters<queue_pair_builder, Transport, Given> {
 public:
  /// Whether the queue pair will have receives of its own.
  static constexpr receive_queue_kind receives =
      Given.contains(queue_pair_parameter::shared_receive_queue) ? receive_queue_kind::shared
                                                                 : receive_queue_kind::own;
  /// How batches will be posted.
  static constexpr posting_interface posting =
      Given.contains(queue_pair_parameter::extended_posting) ? posting_interface::extended
                                                             : posting_interface::standard;

  queue_pair_builder() noexcept = default;

  /// Required. The protection domain of the queue pair, and so of the memory it uses.
  [[nodiscard]] auto protection_domain(const class protection_domain& domain) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::protection_domain>
  {
    return this->template with<queue_pair_parameter::protection_domain>(
        [&](auto& s) { s.domain = domain; });
  }
  /// Required. Where sends, writes and reads complete.
  [[nodiscard]] auto send_completion_queue(const class completion_queue& queue) const noexcept
    requires NotGivenYet<Given, queue_pair_parameter::send_completion_queue>
  {
    return this->template with<queue_pair_parameter::send_completion_queue>(
        [&](auto& s) { s.send_queue = queue; });
  }
  /// Required. Where receives complete; may be the same as the send completion queue.
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
  /// \errors `invalid_input` for a parameter above the device's limit, a port, pkey or GID that the
  /// device does not have, parents of different devices; `not_found` if no port is active or no GID
  /// is usable; `resource_exhausted`; `not_supported` for extended posting; `permission` for a
  /// queue key with its highest bit set, without CAP_NET_RAW
  [[nodiscard]] result<prepared_queue_pair<Transport, receives, posting>> build() const noexcept
    requires NoParameterMissing<Transport, Given>
  {
    VERBSPP_TRY(data, detail::create_prepared(Transport, this->settings()));
    return prepared_queue_pair<Transport, receives, posting>(std::move(data));
  }

  /// Creates the queue pair and leaves it in RESET, for those who drive the state machine
  /// themselves; `queue_pair::prepare` then goes on as `build` does.
  /// \errors as `build`
  [[nodiscard]] result<queue_pair<Transport, queue_pair_state::reset, receives, posting>> create()
      const noexcept
    requires NoParameterMissing<Transport, Given>
  {
    VERBSPP_TRY(data, detail::create(Transport, this->settings()));
    return queue_pair<Transport, queue_pair_state::reset, receives, posting>(std::move(data));
  }

  /// Takes in a queue pair that was made elsewhere, by librdmacm (`rdma_create_qp`) or a C program,
  /// in the state that the device says it has (`ibv_query_qp`).
  ///
  /// The builder has to be given what the queue pair was made from, and takes what is used later (a
  /// handshake's parameters). From INIT on, port, pkey index, access flags and queue key are those
  /// that the queue pair has; only from RESET, from where it is still to be prepared, the latter
  /// two are required. Whoever borrows must let go before the maker destroys the queue pair;
  /// multicast groups that it joins through the library are left then. Nobody else may change its
  /// state meanwhile, unless the type is told (`assume_state_unchecked`).
  /// \errors `mismatch` if the queue pair is of another transport, in another state, at another
  /// port, or made from something else; `invalid_input` for a null pointer; `not_supported` if it
  /// was made without extended posting, and that is asked for; as `build` for the parameters. Then
  /// it stays the caller's
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

  /// With what a builder of fewer parameters was given.
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
