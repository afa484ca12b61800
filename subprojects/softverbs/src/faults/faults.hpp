// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace softverbs {
class machine;
}  // namespace softverbs

/// Failures on demand: what the rest of the device asks whether it has to fail. The grammar is
/// that of softverbs.h.
namespace softverbs::faults {

/// How a verb tells that it failed.
enum class convention : std::uint8_t {
  returns_errno,
  minus_one,  ///< and errno
  null,       ///< and errno
  negative_errno,
  reregistration,  ///< its own codes, and errno
};

struct verb {
  std::string_view name;
  convention reports;
};

/// All that can fail. The names are those of verbs.h, also where a program calls something
/// else behind them.
inline constexpr std::array verbs{
    verb{"ibv_alloc_mw", convention::null},
    verb{"ibv_alloc_parent_domain", convention::null},
    verb{"ibv_alloc_pd", convention::null},
    verb{"ibv_alloc_td", convention::null},
    verb{"ibv_attach_mcast", convention::returns_errno},
    verb{"ibv_bind_mw", convention::returns_errno},
    verb{"ibv_close_device", convention::minus_one},
    verb{"ibv_create_ah", convention::null},
    verb{"ibv_create_ah_from_wc", convention::null},
    verb{"ibv_create_comp_channel", convention::null},
    verb{"ibv_create_cq", convention::null},
    verb{"ibv_create_cq_ex", convention::null},
    verb{"ibv_create_qp", convention::null},
    verb{"ibv_create_qp_ex", convention::null},
    verb{"ibv_create_srq", convention::null},
    verb{"ibv_dealloc_mw", convention::returns_errno},
    verb{"ibv_dealloc_pd", convention::returns_errno},
    verb{"ibv_dealloc_td", convention::returns_errno},
    verb{"ibv_dereg_mr", convention::returns_errno},
    verb{"ibv_destroy_ah", convention::returns_errno},
    verb{"ibv_destroy_comp_channel", convention::returns_errno},
    verb{"ibv_destroy_cq", convention::returns_errno},
    verb{"ibv_destroy_qp", convention::returns_errno},
    verb{"ibv_destroy_srq", convention::returns_errno},
    verb{"ibv_detach_mcast", convention::returns_errno},
    verb{"ibv_get_async_event", convention::minus_one},
    verb{"ibv_get_cq_event", convention::minus_one},
    verb{"ibv_get_device_index", convention::minus_one},
    verb{"ibv_get_device_list", convention::null},
    verb{"ibv_get_device_name", convention::null},
    verb{"ibv_get_pkey_index", convention::minus_one},
    verb{"ibv_import_dm", convention::null},
    verb{"ibv_import_mr", convention::null},
    verb{"ibv_import_pd", convention::null},
    verb{"ibv_init_ah_from_wc", convention::minus_one},
    verb{"ibv_modify_qp", convention::returns_errno},
    verb{"ibv_modify_srq", convention::returns_errno},
    verb{"ibv_next_poll", convention::returns_errno},
    verb{"ibv_open_device", convention::null},
    verb{"ibv_poll_cq", convention::negative_errno},
    verb{"ibv_post_recv", convention::returns_errno},
    verb{"ibv_post_send", convention::returns_errno},
    verb{"ibv_post_srq_recv", convention::returns_errno},
    verb{"ibv_qp_to_qp_ex", convention::null},
    verb{"ibv_query_device", convention::returns_errno},
    verb{"ibv_query_device_ex", convention::returns_errno},
    verb{"ibv_query_ece", convention::returns_errno},
    verb{"ibv_query_gid", convention::minus_one},
    verb{"ibv_query_gid_ex", convention::returns_errno},
    verb{"ibv_query_gid_table", convention::negative_errno},
    verb{"ibv_query_gid_type", convention::minus_one},
    verb{"ibv_query_pkey", convention::minus_one},
    verb{"ibv_query_port", convention::returns_errno},
    verb{"ibv_query_qp", convention::returns_errno},
    verb{"ibv_query_rt_values_ex", convention::returns_errno},
    verb{"ibv_query_srq", convention::returns_errno},
    verb{"ibv_reg_dmabuf_mr", convention::null},
    verb{"ibv_reg_mr", convention::null},
    verb{"ibv_reg_mr_iova", convention::null},
    verb{"ibv_req_notify_cq", convention::returns_errno},
    verb{"ibv_rereg_mr", convention::reregistration},
    verb{"ibv_resize_cq", convention::returns_errno},
    verb{"ibv_resolve_eth_l2_from_gid", convention::minus_one},
    verb{"ibv_set_ece", convention::returns_errno},
    verb{"ibv_start_poll", convention::returns_errno},
    verb{"ibv_wr_complete", convention::returns_errno},
};

/// The place in that list; behind its end if it isn't there.
constexpr std::size_t find(std::string_view name) noexcept {
  std::size_t at = 0;
  while (at < verbs.size() && verbs[at].name != name) ++at;
  return at;
}

/// A verb that isn't listed doesn't compile.
consteval std::size_t number_of(std::string_view name) {
  const std::size_t number = find(name);
  return number < verbs.size() ? number : throw "not listed";
}

/// What a verb returns instead of doing its work.
struct answer {
  int value;
  operator int() const noexcept { return value; }
  template <typename Object>
  operator Object*() const noexcept {
    return nullptr;
  }
};

/// What happens to a work request.
struct verdict {
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t vendor_code = 0;
  std::int64_t delay = 0;  ///< of its completion, in nanoseconds
};

/// False as long as nothing was asked for: all that a program without faults has to look at.
inline std::atomic<bool> any{false};

/// A queue pair, by the numbers of its device and its own.
struct place {
  unsigned device;
  std::uint32_t pair;
};

std::optional<answer> strike_now(std::size_t verb, const ibv_context* context);
verdict judge_now(std::uint32_t pair, bool receives);
bool loses_now(const place& where);
bool silences_now(const place& where) noexcept;

/// Whether a call has to fail. Not under the engine's lock. Without a context, the call works
/// on a broken device, too.
inline std::optional<answer> strike(std::size_t verb, const ibv_context* context) {
  if (!any.load(std::memory_order_relaxed)) return std::nullopt;
  return strike_now(verb, context);
}

// What follows is called under the engine's lock.

/// What becomes of the next work request of this queue pair.
inline verdict judge(std::uint32_t pair, bool receives) {
  if (!any.load(std::memory_order_relaxed)) return {};
  return judge_now(pair, receives);
}

/// Whether a packet for the queue pair doesn't arrive.
inline bool loses(const place& where) {
  return any.load(std::memory_order_relaxed) && loses_now(where);
}

/// Whether none that it sends arrives.
inline bool silences(const place& where) noexcept {
  return any.load(std::memory_order_relaxed) && silences_now(where);
}

/// Has the machine, which may be the new one of a child of fork, keep the times that are asked for.
void keep_time(machine& on);

// Also without the lock.

bool port_is_down(unsigned device) noexcept;
bool is_broken(unsigned device) noexcept;

/// Adds faults; 0, or EINVAL or ENOMEM. What is wrong is said on stderr, with where they come
/// from and what follows. Not under the lock.
int inject(const char* text, const char* origin, const char* consequence) noexcept;
/// Drops all, and repairs what they have broken.
void reset() noexcept;
/// How many have acted since the last reset.
unsigned long long struck() noexcept;
/// Those of SOFTVERBS_FAULTS, at the first call; false if they make no sense.
bool read_environment() noexcept;

}  // namespace softverbs::faults

/// Returns from a call of `verb` that has to fail.
#define SOFTVERBS_FAULT(verb, context)                                                 \
  if (const auto failure =                                                             \
          ::softverbs::faults::strike(::softverbs::faults::number_of(#verb), context)) \
  return *failure
