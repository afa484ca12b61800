// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_state.hpp"
#include <verbspp/hub/channel_hub.hpp>

#include <ostream>
#include <utility>

namespace verbspp {

namespace {

constexpr const char* polling_hub = "poll a hub";

}  // namespace

result<channel_hub> channel_hub::create(const class protection_domain& domain,
                                        const hub_options& options) noexcept {
  VERBSPP_TRY(state, detail::hub_state::create(domain, nullptr, options));
  return channel_hub(std::move(state));
}

result<channel_hub> channel_hub::create(const class protection_domain& domain,
                                        const message_pool& pool,
                                        const hub_options& options) noexcept {
  VERBSPP_TRY(state, detail::hub_state::create(domain, &pool, options));
  return channel_hub(std::move(state));
}

// The functions that return arrivals are in hub_arrivals.cpp.

result<void> channel_hub::poll() const noexcept {
  if (!state_) return error(error_kind::invalid_input, polling_hub, "this hub was moved from");
  if (state_->has_table())
    return error(error_kind::invalid_input, polling_hub,
                 "the hub's channels belong to a table of clients (hub_clients) or to a service: "
                 "call poll of that object instead");
  const detail::hub_reference kept = state_;
  return kept->poll_channels();
}

int channel_hub::file_descriptor() const noexcept {
  return state_ ? state_->loop_descriptor() : -1;
}

result<bool> channel_hub::request_notification() const noexcept {
  if (!state_) return error(error_kind::invalid_input, polling_hub, "this hub was moved from");
  return state_->request_notification();
}

wait_limit::time_point channel_hub::deadline() const noexcept {
  return state_ ? state_->deadline() : (wait_limit::time_point::max)();
}

void channel_hub::wake(channel_id id) const noexcept {
  if (state_ && id.index < state_->capacity()) state_->report(id);
}

std::uint32_t channel_hub::size() const noexcept { return state_ ? state_->size() : 0; }

std::uint32_t channel_hub::capacity() const noexcept { return state_ ? state_->capacity() : 0; }

std::uint64_t channel_hub::room() const noexcept { return state_ ? state_->room() : 0; }

std::uint32_t channel_hub::receives_posted() const noexcept {
  return state_ ? state_->posted() : 0;
}

ibv_cq* channel_hub::native_handle() const noexcept {
  return state_ ? state_->queue().native_handle() : nullptr;
}

std::ostream& operator<<(std::ostream& out, const channel_id& id) {
  return out << id.index << '.' << id.generation;
}

std::ostream& operator<<(std::ostream& out, const channel_hub& hub) {
  if (!hub.state_) return out << "hub, empty";
  return out << "hub, " << hub.size() << " of " << hub.capacity()
             << (hub.capacity() == 1 ? " channel" : " channels")
             << ", room for completions: " << hub.room()
             << ", shared receives posted: " << hub.receives_posted() << ", device "
             << hub.state_->domain().context().device_name();
}

}  // namespace verbspp
