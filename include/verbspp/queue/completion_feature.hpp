// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/flags.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

// g++ warns that an enumerator of a scoped enumeration shadows a declaration outside of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
/// The features that a completion queue can have in addition to polling for `work_completion`s.
enum class completion_feature : std::uint64_t {
  // If completions are read field by field, these fields can be read in addition to `wr_id`, the
  // status and the operation. The enumerators have the values of `ibv_create_cq_wc_flags`.
  byte_count = IBV_WC_EX_WITH_BYTE_LEN,
  immediate = IBV_WC_EX_WITH_IMM,  ///< the immediate data, and the invalidated rkey
  queue_pair_number = IBV_WC_EX_WITH_QP_NUM,
  source = IBV_WC_EX_WITH_SRC_QP,
  source_lid = IBV_WC_EX_WITH_SLID,
  service_level = IBV_WC_EX_WITH_SL,
  /// The time when the device finished the request, in ticks of the device's clock.
  timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
  /// The time when the device finished the request, in nanoseconds since 1970.
  wall_clock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,

  /// Completions can be read field by field (`ibv_cq_ex`). Each of the fields above implies this.
  extended = std::uint64_t{1} << 61,
  /// Threads can sleep until completions arrive: the queue reports to a completion channel.
  waitable = std::uint64_t{1} << 62,
  /// Permits the driver to omit its locks for the queue (`IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
  /// Thread rule: only one thread at a time may poll the queue, change the state of queue pairs
  /// that complete in it, or destroy these queue pairs.
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

/// Returns these features, together with those that they imply.
[[nodiscard]] constexpr completion_features with_implied(completion_features features) noexcept {
  return features.intersects(all_completion_fields) ? features | completion_feature::extended
                                                    : features;
}

}  // namespace detail

template <completion_features Features, completion_features Fields>
concept HasCompletionFields =
    detail::because(Features.contains(Fields),
                    "this completion lacks a requested field: add the field to the features of the "
                    "queue, as in completion_queue_with<completion_feature::...>, and, if the code "
                    "calls get<...>() with a list of fields, to that list");

template <completion_features Features>
concept Waitable = detail::because(
    Features.contains(completion_feature::waitable),
    "this type of completion queue has no completion channel, so no thread can wait for it: create "
    "it as a waitable_completion_queue, or add completion_feature::waitable to the features of "
    "completion_queue_with; if the queue was created with this feature, but passed on as a type "
    "without it, call queue.with<completion_feature::waitable>()");

template <completion_features Features>
concept NeedsNoChannel =
    detail::because(!Features.contains(completion_feature::waitable),
                    "a waitable completion queue is adopted with its completion channel: "
                    "from_native(channel, native, ownership)");

template <completion_features Features>
concept PolledByField = detail::because(
    detail::with_implied(Features).contains(completion_feature::extended),
    "this type of completion queue cannot be polled field by field: create it as an "
    "extended_completion_queue, or add the fields to the features of completion_queue_with; if the "
    "queue was created with the fields, but passed on as a type without them, call "
    "queue.with<fields>()");

}  // namespace verbspp
