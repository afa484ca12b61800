// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/detail/channel_core.hpp>

#include <cerrno>
#include <new>

namespace verbspp::detail {

channel_core& channel_core::empty() noexcept {
  thread_local channel_core none{channel_settings()};
  none.state_ = channel_state::empty;
  return none;
}

result<channel_core*> channel_core::create(const channel_settings& settings) noexcept {
  auto* const made = new (std::nothrow) channel_core(settings);
  if (made == nullptr) return error::from_errno(ENOMEM, "build a channel");
  auto ready = made->prepare();
  if (ready.has_value()) ready = made->allocate(made->capacities_);
  if (!ready.has_value()) {
    delete made;
    return ready.assume_error();
  }
  return made;
}

/// There is no handle any more.
void channel_connection::go_if_unused() noexcept {
  if (is_orphan_) {
    delete static_cast<channel_core*>(this);
  } else if (!failure_) {
    lost_->earlier = {};
    need_attention(false);
  }
}

bool channel_core::find_send_room() noexcept {
  if (may_send_) collect();
  return next_send_ < send_end_;
}

void channel_core::open_stream(scope_state& stream) noexcept {
  stream.is_stream = true;
  for (const scope_state* outer = stream.outer; outer != nullptr; outer = outer->outer)
    if (outer->is_stream) return;
  note_signaled();
}

}  // namespace verbspp::detail
