// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/flags.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

// g++ takes an enumerator of a scoped enumeration for a shadow of what has its name outside.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// What a completion queue can do beside being polled for `work_completion`s.
enum class completion_feature : std::uint64_t {
  // What a completion tells beside `wr_id`, status and operation, where it is read field by field.
  // The values are those of `ibv_create_cq_wc_flags`.
  byte_count = IBV_WC_EX_WITH_BYTE_LEN,
  immediate = IBV_WC_EX_WITH_IMM,  ///< and the invalidated rkey
  queue_pair_number = IBV_WC_EX_WITH_QP_NUM,
  source = IBV_WC_EX_WITH_SRC_QP,
  source_lid = IBV_WC_EX_WITH_SLID,
  service_level = IBV_WC_EX_WITH_SL,
  /// When the device finished, in ticks of its own clock.
  timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
  /// The same in nanoseconds since 1970.
  wall_clock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,

  /// Completions can be read field by field (`ibv_cq_ex`). Follows from each of the fields.
  extended = std::uint64_t{1} << 61,
  /// Somebody can sleep until completions come: the queue reports to a completion channel.
  waitable = std::uint64_t{1} << 62,
  /// The device's driver takes no locks for the queue (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
  /// Thread
  /// rule: one thread at a time polls it, and changes the states of, or destroys, queue pairs that
  /// complete in it.
  single_threaded = std::uint64_t{1} << 63,
};
#pragma GCC diagnostic pop

template <>
inline constexpr bool is_flag_bit<completion_feature> = true;

using completion_features = flags<completion_feature>;

namespace detail {

inline constexpr completion_features all_completion_fields =
    completion_feature::byte_count | completion_feature::immediate |
    completion_feature::queue_pair_number | completion_feature::source |
    completion_feature::source_lid | completion_feature::service_level |
    completion_feature::timestamp | completion_feature::wall_clock;

/// With what follows from them.
[[nodiscard]] constexpr completion_features with_implied(completion_features features) noexcept {
  return features.intersects(all_completion_fields) ? features | completion_feature::extended
                                                    : features;
}

}  // namespace detail

template <completion_features Features, completion_features Fields>
concept HasCompletionFields =
    detail::because(Features.contains(Fields),
                    "this completion queue was not created with this field: name it among the "
                    "features of the queue, as in completion_queue_with<completion_feature::...>");

template <completion_features Features>
concept Waitable = detail::because(
    Features.contains(completion_feature::waitable),
    "this completion queue reports to no channel, so nobody can wait for it: create "
    "it as a waitable_completion_queue, or name completion_feature::waitable among "
    "the features of completion_queue_with");

template <completion_features Features>
concept NeedsNoChannel =
    detail::because(!Features.contains(completion_feature::waitable),
                    "a completion queue that can be waited for is adopted with the completion "
                    "channel that it reports to: from_native(channel, native, ownership)");

template <completion_features Features>
concept PolledByField =
    detail::because(detail::with_implied(Features).contains(completion_feature::extended),
                    "this completion queue is not polled field by field: create it as an "
                    "extended_completion_queue, or name the fields among the features of "
                    "completion_queue_with");

}  // namespace verbspp
