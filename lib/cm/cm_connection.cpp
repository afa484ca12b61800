// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_connection.hpp>

namespace verbspp {

namespace {

error not_there(const char* operation, cm_state state) noexcept {
  return {state == cm_state::removed ? error_kind::not_found : error_kind::not_connected, operation,
          state == cm_state::removed
              ? "the device was removed: destroy all objects that were created on it"
              : "there is no connection: the object is empty, or was moved from"};
}

}  // namespace

result<void> cm_connection::disconnect() noexcept {
  if (state_ == cm_state::empty || state_ == cm_state::removed)
    return not_there("rdma_disconnect", state_);
  if (state_ != cm_state::connected) return success();
  state_ = cm_state::disconnected;
  // A failure is ignored, because it usually means that the connection has already ended.
  static_cast<void>(id_.disconnect());
  return success();
}

std::optional<cm_event> cm_connection::heard(
    const std::optional<detail::cm_event_data>& event) noexcept {
  if (!event) return std::nullopt;
  switch (event->event) {
    case cm_event::disconnected:
      // The peer is waiting for this end to disconnect as well.
      if (state_ == cm_state::connected) static_cast<void>(disconnect());
      break;
    case cm_event::time_wait_exit:
      state_ = cm_state::over;
      break;
    case cm_event::device_removal:
      state_ = cm_state::removed;
      break;
    default:
      break;
  }
  return event->event;
}

result<std::optional<cm_event>> cm_connection::poll() noexcept {
  if (state_ == cm_state::empty) return not_there("rdma_get_cm_event", state_);
  VERBSPP_TRY(event, id_.next_event());
  return heard(event);
}

result<std::optional<cm_event>> cm_connection::wait_event(const wait_limit& limit) noexcept {
  if (state_ == cm_state::empty) return not_there("rdma_get_cm_event", state_);
  VERBSPP_TRY(event, id_.wait_event(limit));
  return heard(event);
}

result<void> cm_connection::wait_for_end(const wait_limit& limit) noexcept {
  constexpr const char* operation = "cm_connection::wait_for_end";
  while (state_ == cm_state::connected) {
    VERBSPP_TRY(event, wait_event(limit));
    if (!event) return limit.failure(operation, "neither end has closed the connection");
  }
  if (state_ == cm_state::empty || state_ == cm_state::removed) return not_there(operation, state_);
  return success();
}

}  // namespace verbspp
