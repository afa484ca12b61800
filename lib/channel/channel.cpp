// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/channel.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/queue/completion_channel.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <chrono>
#include <ostream>
#include <utility>

namespace verbspp {

namespace {

/// The time limit for closing a channel that is renewed.
constexpr auto time_to_close = std::chrono::milliseconds(100);

}  // namespace

channel::channel(prepared_channel&& prepared) noexcept : channel(std::move(prepared.inner_)) {}

result<void> channel::close(const wait_limit& limit) noexcept {
  if (is_empty()) return success();
  const result<void> closed = core().close(limit);
  core().run_continuations();
  return closed;
}

result<endpoint> channel::renew() noexcept {
  if (is_empty()) return detail::channel_core::refusal_of_empty("renew a channel");
  return core().renew(time_to_close);
}

result<void> channel::handshake(const struct endpoint& remote) noexcept {
  return core().connect(remote);
}

result<void> channel::handshake(const managed_attributes& by) noexcept {
  return core().connect(by);
}

void channel::poll() noexcept {
  if (is_empty()) return;
  core().poll();
}

result<wait_end> channel::wait(const wait_limit& limit, int file_descriptor) noexcept {
  return core().wait_for_news(limit, file_descriptor);
}

int channel::file_descriptor() const noexcept { return is_empty() ? -1 : core().loop_descriptor(); }

result<bool> channel::request_notification() noexcept { return core().ask_to_be_woken(); }

wait_limit::time_point channel::deadline() const noexcept { return core().deadline(); }

void channel::watch(int file_descriptor, watch_for what) noexcept {
  if (!is_empty()) core().watch({.number = file_descriptor, .what = what});
}

void channel::stop() const noexcept {
  if (!is_empty()) core().connection().stop();
}

void channel::tie(detail::tied_socket&& socket) noexcept {
  if (!is_empty()) core().tie(std::move(socket));
}

endpoint channel::endpoint() const noexcept { return core().connection().local(); }

queue_pair_capacities channel::capacities() const noexcept {
  return core().connection().capacities();
}

std::optional<channel_failure> channel::failure() const noexcept {
  return core().connection().failure();
}

std::uint32_t channel::outstanding() const noexcept { return core().outstanding(); }

ibv_qp* channel::native_handle() const noexcept { return core().connection().native(); }

ibv_cq* channel::native_completion_queue() const noexcept {
  return is_empty() ? nullptr : core().connection().queue().native_handle();
}

std::ostream& operator<<(std::ostream& out, const channel& channel) {
  if (channel.is_empty()) return out << "channel, empty";
  const detail::channel_connection& connection = channel.core().connection();
  out << "channel, " << to_string(channel.state()) << ", " << connection.local() << ", device "
      << connection.domain().context().device_name()
      << ", requests outstanding: " << channel.outstanding();
  if (const auto& failure = connection.failure()) out << "; " << *failure;
  return out;
}

result<channel> prepared_channel::handshake(const struct endpoint& remote) && noexcept {
  channel connected(std::move(*this));
  VERBSPP_TRYV(connected.handshake(remote));
  return connected;
}

result<channel> prepared_channel::handshake(const managed_attributes& by) && noexcept {
  channel connected(std::move(*this));
  VERBSPP_TRYV(connected.handshake(by));
  return connected;
}

}  // namespace verbspp
