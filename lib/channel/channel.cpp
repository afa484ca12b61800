// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/channel.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/queue/completion_channel.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <chrono>
#include <ostream>

namespace verbspp {

namespace detail {

void print(std::ostream& out, const channel_core* core) {
  if (core == nullptr) {
    out << "channel, empty";
    return;
  }
  out << "channel, " << to_string(core->state()) << ", " << core->connection().local()
      << ", device " << core->connection().domain().context().device_name()
      << ", requests outstanding: " << core->outstanding();
  if (const auto& failure = core->connection().failure()) out << "; " << *failure;
}

}  // namespace detail

namespace {

/// How long a channel that is renewed may take for closing.
constexpr auto time_to_close = std::chrono::milliseconds(100);

}  // namespace

channel::channel(prepared_channel&& prepared) noexcept : core_(std::move(prepared.core_)) {}

result<void> channel::close(const wait_limit& limit) noexcept {
  if (core_.get() == nullptr) return success();
  return core_->close(limit);
}

result<endpoint> channel::renew() noexcept {
  if (core_.get() == nullptr) return detail::channel_core::refusal_of_empty("renew of a channel");
  VERBSPP_TRYV(core_->renew(time_to_close));
  return core_->connection().local();
}

result<void> channel::handshake(const struct endpoint& remote) noexcept {
  return core().connect(remote);
}

result<void> channel::handshake(const managed_attributes& by) noexcept {
  return core().connect(by);
}

channel_id channel::id() const noexcept { return core().id(); }

void channel::poll() noexcept {
  if (core_.get() == nullptr) return;
  core_->connection().stay_awake();
  core_->collect();
}

result<wait_end> channel::wait(const wait_limit& limit, int file_descriptor) noexcept {
  return core().wait_for_news(limit, file_descriptor);
}

int channel::file_descriptor() const noexcept {
  if (core_.get() == nullptr) return -1;
  const auto queue = core_->connection().queue().with<completion_feature::waitable>();
  return queue.has_value() ? queue.assume_value().completion_channel().file_descriptor() : -1;
}

result<bool> channel::request_notification() noexcept { return core().ask_to_be_woken(); }

void channel::watch(int file_descriptor, watch_for what) noexcept {
  if (core_.get() != nullptr) core_->connection().watch({.number = file_descriptor, .what = what});
}

std::optional<channel_failure> channel::failure() const noexcept {
  return core().connection().failure();
}

endpoint channel::endpoint() const noexcept { return core().connection().local(); }

queue_pair_capacities channel::capacities() const noexcept {
  return core().connection().capacities();
}

std::uint32_t channel::outstanding() const noexcept { return core().outstanding(); }

ibv_qp* channel::native_handle() const noexcept { return core().connection().native(); }

ibv_cq* channel::native_completion_queue() const noexcept {
  return core_.get() != nullptr ? core_->connection().queue().native_handle() : nullptr;
}

endpoint prepared_channel::endpoint() const noexcept {
  return core_.get() != nullptr ? core_->connection().local() : verbspp::endpoint();
}

namespace {

template <class Peer>
result<channel> connected(detail::core_owner taken, const Peer& peer) noexcept {
  if (taken.get() == nullptr)
    return detail::channel_core::refusal_of_empty("handshake of a channel");
  VERBSPP_TRYV(taken->connect(peer));
  return channel(std::move(taken));
}

}  // namespace

result<channel> prepared_channel::handshake(const struct endpoint& remote) && noexcept {
  return connected(std::move(core_), remote);
}

result<channel> prepared_channel::handshake(const managed_attributes& by) && noexcept {
  return connected(std::move(core_), by);
}

queue_pair_capacities prepared_channel::capacities() const noexcept {
  return core_.get() != nullptr ? core_->connection().capacities() : queue_pair_capacities();
}

ibv_qp* prepared_channel::native_handle() const noexcept {
  return core_.get() != nullptr ? core_->connection().native() : nullptr;
}

}  // namespace verbspp
