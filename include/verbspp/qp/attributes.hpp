// SPDX-License-Identifier: Apache-2.0
/// \file
/// The attributes of a transition, as a set whose type lists the attributes that were given. The
/// transition table determines which attributes a set accepts and requires. The mask for
/// `ibv_modify_qp` contains the attributes that have a value.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/flags.hpp>
#include <verbspp/base/optional_setting.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/qp/parameters.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/qp/transition.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace verbspp {

// g++ warns that an enumerator of a scoped enumeration shadows a declaration outside of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// The attributes of a transition, with the values of `ibv_qp_attr_mask`.
enum class queue_pair_attribute : int {
  current_state = IBV_QP_CUR_STATE,
  notify_when_drained = IBV_QP_EN_SQD_ASYNC_NOTIFY,
  access = IBV_QP_ACCESS_FLAGS,
  pkey_index = IBV_QP_PKEY_INDEX,
  port = IBV_QP_PORT,
  qkey = IBV_QP_QKEY,
  path = IBV_QP_AV,
  path_mtu = IBV_QP_PATH_MTU,
  ack_timeout = IBV_QP_TIMEOUT,
  ack_retry_count = IBV_QP_RETRY_CNT,
  rnr_retry_count = IBV_QP_RNR_RETRY,
  receive_psn = IBV_QP_RQ_PSN,
  max_reads_as_initiator = IBV_QP_MAX_QP_RD_ATOMIC,
  alternate_path = IBV_QP_ALT_PATH,
  min_rnr_timer = IBV_QP_MIN_RNR_TIMER,
  send_psn = IBV_QP_SQ_PSN,
  max_reads_as_target = IBV_QP_MAX_DEST_RD_ATOMIC,
  path_migration = IBV_QP_PATH_MIG_STATE,
  destination = IBV_QP_DEST_QPN,
  rate_limit = IBV_QP_RATE_LIMIT,
};
#pragma GCC diagnostic pop

/// The name of the attribute, such as "path MTU"; "unknown attribute" for any other number.
[[nodiscard]] const char* to_string(queue_pair_attribute which) noexcept;

template <>
inline constexpr bool is_flag_bit<queue_pair_attribute> = true;

using queue_pair_attribute_set = flags<queue_pair_attribute>;

/// The states of automatic path migration, with the values of `ibv_mig_state`.
enum class path_migration_state : std::uint8_t {
  migrated = IBV_MIG_MIGRATED,
  rearm = IBV_MIG_REARM,  ///< the device arms migration once the peer is in this state, too
  armed = IBV_MIG_ARMED,
};

[[nodiscard]] const char* to_string(path_migration_state state) noexcept;

/// The path to which automatic migration switches; InfiniBand only.
struct alternate_path {
  class path way;
  port_number port{};
  verbspp::pkey_index pkey_index{};
  verbspp::ack_timeout ack_timeout{};
};

namespace detail {

/// The attributes that this transition accepts; empty if there is no such transition.
template <transport Transport, queue_pair_state From, queue_pair_state To>
inline constexpr std::optional<transition_attributes> transition_of =
    transition(static_cast<ibv_qp_type>(Transport), static_cast<ibv_qp_state>(From),
               static_cast<ibv_qp_state>(To));

template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute Attribute>
inline constexpr bool takes =
    transition_of<Transport, From, To> &&
    ((transition_of<Transport, From, To>->required | transition_of<Transport, From, To>->optional) &
     static_cast<int>(Attribute)) != 0;

template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given, queue_pair_attribute Attribute>
inline constexpr bool lacks =
    transition_of<Transport, From, To> &&
    (transition_of<Transport, From, To>->required & static_cast<int>(Attribute)) != 0 &&
    !Given.contains(Attribute);

/// Determines, for a setter, whether the transition requires the setter's attribute.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute Attribute>
struct need_of_attribute {
  static constexpr bool required =
      lacks<Transport, From, To, queue_pair_attribute_set{}, Attribute>;
};

/// The values in a set of attributes.
struct attribute_values {
  queue_pair_attribute_set given{};  ///< the attributes that have a value
  ibv_qp_attr native{};
  std::optional<path> way{};
  std::optional<path> alternate{};
};

}  // namespace detail

template <transport Transport, queue_pair_state From, queue_pair_state To>
concept TransitionExists = detail::because(detail::transition_of<Transport, From, To>.has_value(),
                                           "a queue pair of this transport has no such transition: "
                                           "see the state diagram in docs/queue_pair_states.md");

template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute Attribute>
concept TakesAttribute = detail::because(
    detail::takes<Transport, From, To, Attribute>,
    "this transition does not accept this attribute: see the table in docs/queue_pair_states.md");

template <queue_pair_attribute_set Given, queue_pair_attribute Attribute>
concept AttributeNotGivenYet = detail::because(
    !Given.contains(Attribute),
    "this attribute was already given: each attribute of a transition can be given only once");

/// True if the transition exists, and all attributes that it requires were given.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given>
concept NoAttributeMissing =
    TransitionExists<Transport, From, To> &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::pkey_index>,
                    "the pkey index is missing: this transition requires .pkey_index(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::port>,
                    "the port is missing: this transition requires .port(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::access>,
                    "the access flags are missing: this transition requires .access(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::qkey>,
                    "the queue key is missing: this transition requires .qkey(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::path>,
                    "the path to the peer is missing: this transition requires .path(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::path_mtu>,
                    "the path MTU is missing: this transition requires .path_mtu(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::destination>,
                    "the queue pair number of the peer is missing: this transition requires "
                    ".destination(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::receive_psn>,
                    "the receive PSN is missing: this transition requires .receive_psn(...)") &&
    detail::because(
        !detail::lacks<Transport, From, To, Given, queue_pair_attribute::max_reads_as_target>,
        "the maximum number of the peer's outstanding reads is missing: this transition requires "
        ".max_reads_as_target(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::min_rnr_timer>,
                    "the min RNR NAK timer is missing: this transition requires "
                    ".min_rnr_timer(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::send_psn>,
                    "the send PSN is missing: this transition requires .send_psn(...)") &&
    detail::because(!detail::lacks<Transport, From, To, Given, queue_pair_attribute::ack_timeout>,
                    "the ACK timeout is missing: this transition requires .ack_timeout(...)") &&
    detail::because(
        !detail::lacks<Transport, From, To, Given, queue_pair_attribute::ack_retry_count>,
        "the ACK retry count is missing: this transition requires "
        ".ack_retry_count(...)") &&
    detail::because(
        !detail::lacks<Transport, From, To, Given, queue_pair_attribute::rnr_retry_count>,
        "the RNR retry count is missing: this transition requires "
        ".rnr_retry_count(...)") &&
    detail::because(
        !detail::lacks<Transport, From, To, Given, queue_pair_attribute::max_reads_as_initiator>,
        "the maximum number of this side's outstanding reads is missing: this transition requires "
        ".max_reads_as_initiator(...)");

/// The attributes of one transition of one transport. The type lists the attributes that were
/// given.
///
/// Start with `attributes_for<transport::rc, queue_pair_state::init,
/// queue_pair_state::ready_to_receive>()`. There is a setter for each attribute that the transition
/// accepts. A setter returns a new set that also contains its attribute, and leaves the set on
/// which it was called unchanged. `queue_pair::modify` accepts a set that contains all required
/// attributes.
///
/// Setters of optional attributes also accept a `std::optional`. If that is empty, the queue pair's
/// attribute stays unchanged, but counts as given.
template <transport Transport, queue_pair_state From, queue_pair_state To,
          queue_pair_attribute_set Given = queue_pair_attribute_set{}>
class queue_pair_attributes {
  template <queue_pair_attribute Attribute, class Value>
  using setting =
      optional_setting<Value, detail::need_of_attribute<Transport, From, To, Attribute>>;

 public:
  static constexpr queue_pair_attribute_set given = Given;

  queue_pair_attributes() noexcept = default;

  /// Tells the device that the queue pair is in the state `From`. A device may reject the
  /// transition if the queue pair is in another state.
  [[nodiscard]] auto current_state() const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::current_state> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::current_state>
  {
    return with<queue_pair_attribute::current_state>(
        optional_setting<queue_pair_state>(From),
        [](auto& v, auto from) { v.native.cur_qp_state = static_cast<ibv_qp_state>(from); });
  }
  /// Specifies whether the device reports the asynchronous event `IBV_EVENT_SQ_DRAINED` when all
  /// requests that it had started have finished.
  [[nodiscard]] auto notify_when_drained(
      setting<queue_pair_attribute::notify_when_drained, bool> wanted = true) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::notify_when_drained> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::notify_when_drained>
  {
    return with<queue_pair_attribute::notify_when_drained>(
        wanted, [](auto& v, const auto& value) { v.native.en_sqd_async_notify = value ? 1 : 0; });
  }
  /// The rights that the peer has through this queue pair.
  [[nodiscard]] auto access(
      setting<queue_pair_attribute::access, access_flags> rights) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::access> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::access>
  {
    return with<queue_pair_attribute::access>(
        rights, [](auto& v, const auto& value) { v.native.qp_access_flags = value.bits; });
  }
  [[nodiscard]] auto pkey_index(
      setting<queue_pair_attribute::pkey_index, verbspp::pkey_index> index) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::pkey_index> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::pkey_index>
  {
    return with<queue_pair_attribute::pkey_index>(
        index, [](auto& v, const auto& value) { v.native.pkey_index = value.value(); });
  }
  [[nodiscard]] auto port(setting<queue_pair_attribute::port, port_number> number) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::port> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::port>
  {
    return with<queue_pair_attribute::port>(
        number, [](auto& v, const auto& value) { v.native.port_num = value.value(); });
  }
  /// The key that a datagram must carry to be accepted.
  [[nodiscard]] auto qkey(setting<queue_pair_attribute::qkey, queue_key> key) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::qkey> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::qkey>
  {
    return with<queue_pair_attribute::qkey>(
        key, [](auto& v, const auto& value) { v.native.qkey = value.value(); });
  }
  /// The path to the peer: an `infiniband_path` or a `roce_path`, according to the port's link
  /// layer.
  [[nodiscard]] auto path(setting<queue_pair_attribute::path, class path> way) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::path> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::path>
  {
    return with<queue_pair_attribute::path>(way, [](auto& v, const auto& value) { v.way = value; });
  }
  [[nodiscard]] auto path_mtu(
      setting<queue_pair_attribute::path_mtu, verbspp::path_mtu> mtu) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::path_mtu> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::path_mtu>
  {
    return with<queue_pair_attribute::path_mtu>(
        mtu, [](auto& v, const auto& value) { v.native.path_mtu = value.native(); });
  }
  /// The number of the peer's queue pair.
  [[nodiscard]] auto destination(
      setting<queue_pair_attribute::destination, queue_pair_number> number) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::destination> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::destination>
  {
    return with<queue_pair_attribute::destination>(
        number, [](auto& v, const auto& value) { v.native.dest_qp_num = value.value(); });
  }
  /// The peer's send PSN.
  [[nodiscard]] auto receive_psn(
      setting<queue_pair_attribute::receive_psn, packet_sequence_number> psn) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::receive_psn> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::receive_psn>
  {
    return with<queue_pair_attribute::receive_psn>(
        psn, [](auto& v, const auto& value) { v.native.rq_psn = value.value(); });
  }
  [[nodiscard]] auto send_psn(
      setting<queue_pair_attribute::send_psn, packet_sequence_number> psn) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::send_psn> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::send_psn>
  {
    return with<queue_pair_attribute::send_psn>(
        psn, [](auto& v, const auto& value) { v.native.sq_psn = value.value(); });
  }
  [[nodiscard]] auto ack_timeout(
      setting<queue_pair_attribute::ack_timeout, verbspp::ack_timeout> timeout) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::ack_timeout> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::ack_timeout>
  {
    return with<queue_pair_attribute::ack_timeout>(
        timeout, [](auto& v, const auto& value) { v.native.timeout = value.code(); });
  }
  /// The number of retransmissions after an ACK timeout. With 7, Linux's software driver, rxe,
  /// retries forever: it never notices that a peer is dead.
  [[nodiscard]] auto ack_retry_count(
      setting<queue_pair_attribute::ack_retry_count, retry_count> count) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::ack_retry_count> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::ack_retry_count>
  {
    return with<queue_pair_attribute::ack_retry_count>(
        count, [](auto& v, const auto& value) { v.native.retry_cnt = value.value(); });
  }
  [[nodiscard]] auto rnr_retry_count(
      setting<queue_pair_attribute::rnr_retry_count, verbspp::rnr_retry_count> count) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::rnr_retry_count> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::rnr_retry_count>
  {
    return with<queue_pair_attribute::rnr_retry_count>(
        count, [](auto& v, const auto& value) { v.native.rnr_retry = value.code(); });
  }
  [[nodiscard]] auto min_rnr_timer(
      setting<queue_pair_attribute::min_rnr_timer, verbspp::min_rnr_timer> timer) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::min_rnr_timer> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::min_rnr_timer>
  {
    return with<queue_pair_attribute::min_rnr_timer>(
        timer, [](auto& v, const auto& value) { v.native.min_rnr_timer = value.code(); });
  }
  /// The maximum number of RDMA reads and atomics that this side may have outstanding at the same
  /// time.
  [[nodiscard]] auto max_reads_as_initiator(
      setting<queue_pair_attribute::max_reads_as_initiator, read_depth> depth) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::max_reads_as_initiator> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::max_reads_as_initiator>
  {
    return with<queue_pair_attribute::max_reads_as_initiator>(
        depth, [](auto& v, const auto& value) { v.native.max_rd_atomic = value.value(); });
  }
  /// The maximum number of RDMA reads and atomics that the peer may have outstanding at the same
  /// time.
  [[nodiscard]] auto max_reads_as_target(
      setting<queue_pair_attribute::max_reads_as_target, read_depth> depth) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::max_reads_as_target> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::max_reads_as_target>
  {
    return with<queue_pair_attribute::max_reads_as_target>(
        depth, [](auto& v, const auto& value) { v.native.max_dest_rd_atomic = value.value(); });
  }
  /// The path to which automatic migration switches. Linux accepts it only on InfiniBand ports.
  [[nodiscard]] auto alternate_path(
      setting<queue_pair_attribute::alternate_path, struct alternate_path> other) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::alternate_path> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::alternate_path>
  {
    return with<queue_pair_attribute::alternate_path>(other, [](auto& v, const auto& value) {
      v.alternate = value.way;
      v.native.alt_port_num = value.port.value();
      v.native.alt_pkey_index = value.pkey_index.value();
      v.native.alt_timeout = value.ack_timeout.code();
    });
  }
  /// The same setter, for a braced initializer.
  [[nodiscard]] auto alternate_path(const struct alternate_path& other) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::alternate_path> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::alternate_path>
  {
    return alternate_path(
        setting<queue_pair_attribute::alternate_path, struct alternate_path>(other));
  }
  [[nodiscard]] auto path_migration(
      setting<queue_pair_attribute::path_migration, path_migration_state> state) const noexcept
    requires TakesAttribute<Transport, From, To, queue_pair_attribute::path_migration> &&
             AttributeNotGivenYet<Given, queue_pair_attribute::path_migration>
  {
    return with<queue_pair_attribute::path_migration>(state, [](auto& v, const auto& value) {
      v.native.path_mig_state = static_cast<ibv_mig_state>(value);
    });
  }

  /// Used by the library only: the values that were set.
  [[nodiscard]] const detail::attribute_values& values() const& noexcept VERBSPP_LIFETIMEBOUND {
    return values_;
  }
  [[nodiscard]] detail::attribute_values values() const&& noexcept { return values_; }

 private:
  template <transport, queue_pair_state, queue_pair_state, queue_pair_attribute_set>
  friend class queue_pair_attributes;

  /// Returns a set that also contains `Added`. Stores the value if there is one.
  template <queue_pair_attribute Added, class Setting, class Set>
  [[nodiscard]] auto with(const Setting& given_value, Set set) const noexcept {
    queue_pair_attributes<Transport, From, To, Given | Added> next;
    next.values_ = values_;
    if (given_value.has_value()) {
      next.values_.given = next.values_.given | Added;
      set(next.values_, *given_value);
    }
    return next;
  }

  detail::attribute_values values_{};
};

/// Returns an empty set of attributes for a transition.
template <transport Transport, queue_pair_state From, queue_pair_state To>
  requires TransitionExists<Transport, From, To>
[[nodiscard]] queue_pair_attributes<Transport, From, To> attributes_for() noexcept {
  return {};
}

}  // namespace verbspp
