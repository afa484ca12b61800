// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/detail/cm_handshake.hpp>

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>

namespace verbspp::detail {

namespace {

rdma_conn_param native(const cm_parameters& parameters, std::uint32_t queue_pair,
                       bool has_shared_receives) noexcept {
  rdma_conn_param made{};
  const auto data = parameters.data.bytes();
  made.private_data = data.data();
  made.private_data_len = static_cast<std::uint8_t>(data.size());
  made.responder_resources = parameters.responder_resources;
  made.initiator_depth = parameters.initiator_depth;
  made.retry_count = parameters.retries;
  made.rnr_retry_count = parameters.rnr_retries;
  made.srq = has_shared_receives ? 1 : 0;
  made.qp_num = queue_pair;
  return made;
}

/// Returns the private data of an event as `Data`. Some links pad the data, so it is cut to the
/// maximum size of `Data`.
template <class Data>
Data data_of(const cm_event_data& event) noexcept {
  const auto bytes = event.private_data();
  return Data::from(bytes.first(std::min(bytes.size(), Data::max_size))).assume_value();
}

}  // namespace

result<void> check_prepared(const channel& renewed) noexcept {
  if (renewed.state() == channel_state::prepared) return success();
  if (renewed.state() == channel_state::empty)
    return channel_core::refusal_of_empty("connection manager");
  const bool is_connected = renewed.state() == channel_state::connected;
  return error(is_connected ? error_kind::busy : error_kind::not_connected, "connection manager",
               is_connected ? "the channel is already connected: renew it before it connects again"
                            : "the channel is not prepared: renew it first");
}

result<cm_handshake> cm_handshake::start(cm_identifier id, state now, ibv_qp* queue_pair,
                                         const endpoint& local, const cm_parameters& parameters,
                                         const wait_limit& limit) noexcept {
  constexpr const char* operation = "connection manager";
  if (id.is_empty() || queue_pair == nullptr) return cm_moved_from(operation);
  if (local.type != transport::rc)
    return error(error_kind::invalid_input, operation,
                 "the channel is UC, but the connection manager connects only RC: build it with "
                 "transport::rc, or connect it by a handshake of endpoints");
  if (queue_pair->context->device->transport_type == IBV_TRANSPORT_IWARP)
    return error(error_kind::not_supported, operation,
                 "on iWARP the device's driver connects the queue pair by itself, which this "
                 "library does not support: use InfiniBand or RoCE");
  const char* const found = ibv_get_device_name(id.native_context()->device);
  const char* const prepared = ibv_get_device_name(queue_pair->context->device);
  if (std::strcmp(found, prepared) != 0)
    return error(error_kind::mismatch, operation,
                 "the channel or queue pair was prepared on one device, but the route or request "
                 "uses another: prepare it on the context() of the route or request");
  return cm_handshake(std::move(id), now, queue_pair->qp_num, queue_pair->srq != nullptr,
                      parameters, limit);
}

result<cm_handshake> cm_handshake::connect(cm_identifier id, ibv_qp* queue_pair,
                                           const endpoint& local, const cm_parameters& asked,
                                           const wait_limit& limit) noexcept {
  cm_parameters parameters = asked;
  parameters.responder_resources = local.reads_as_target.value();
  parameters.initiator_depth = local.reads_as_initiator.value();
  VERBSPP_TRY(made, start(std::move(id), state::asked, queue_pair, local, parameters, limit));
  rdma_conn_param of_c = native(parameters, made.queue_pair_, made.has_shared_receives_);
  VERBSPP_TRYV(made.id_.connect(of_c));
  return made;
}

result<cm_handshake> cm_handshake::accept(cm_identifier id, ibv_qp* queue_pair,
                                          const endpoint& local, const cm_parameters& answer,
                                          const wait_limit& limit) noexcept {
  cm_parameters parameters = answer;
  parameters.responder_resources =
      std::min(answer.responder_resources, local.reads_as_target.value());
  parameters.initiator_depth = std::min(answer.initiator_depth, local.reads_as_initiator.value());
  return start(std::move(id), state::answering, queue_pair, local, parameters, limit);
}

const char* cm_handshake::name() const noexcept {
  return state_ == state::asked || state_ == state::connecting ? "rdma_connect" : "rdma_accept";
}

result<cm_step> cm_handshake::take(const cm_event_data& event) noexcept {
  switch (event.event) {
    case cm_event::connect_response:
      if (state_ != state::asked) break;
      theirs_ = data_of<cm_acceptance_data>(event);
      state_ = state::connecting;
      return cm_step::connect;
    case cm_event::established:
      if (state_ != state::answered) break;
      state_ = state::done;
      return cm_step::done;
    case cm_event::rejected:
      rejection_.emplace(cm_rejection{
          .reason = static_cast<cm_rejection_reason>(event.status < 0 ? 0 : event.status),
          .data = data_of<cm_rejection_data>(event)});
      break;
    default:
      break;
  }
  return refuse(cm_failure(event, name()));
}

result<cm_step> cm_handshake::poll() noexcept {
  if (state_ != state::failed && id_.is_empty()) return cm_moved_from(name());
  switch (state_) {
    case state::failed:
      return *failed_;
    case state::done:
      return cm_step::done;
    case state::answering:
    case state::connecting:
      return cm_step::connect;
    case state::asked:
    case state::answered:
      break;
  }
  const auto event = id_.next_event();
  if (!event.has_value()) return refuse(event.assume_error());
  if (event.assume_value()) return take(*event.assume_value());
  if (limit_.has_passed())
    return refuse(limit_.failure(
        name(), state_ == state::asked ? "the peer has neither accepted nor rejected the request: "
                                         "check that its host is up (with ping), that no firewall "
                                         "blocks UDP port 4791 (RoCE v2), and that its program "
                                         "takes requests, or allow more time"
                                       : "the peer has not continued the handshake: it may have "
                                         "given up, or may need more time"));
  return cm_step::waiting;
}

result<managed_attributes> cm_handshake::attributes() noexcept {
  auto found = id_.attributes();
  if (found.has_value()) return found;
  // The kernel provides no attributes once the peer has disconnected.
  return refuse(found.assume_error().as(
      error_kind::not_connected,
      "the kernel has no attributes for this connection, usually because the peer gave up before "
      "it was established: see the peer's output, or let the peer wait longer"));
}

result<void> cm_handshake::set_connected() noexcept {
  result<void> told = success();
  if (state_ == state::connecting) {
    told = id_.establish();
    state_ = state::done;
  } else {
    rdma_conn_param of_c = native(parameters_, queue_pair_, has_shared_receives_);
    told = id_.accept(of_c);
    state_ = state::answered;
  }
  if (!told.has_value()) return refuse(told.assume_error());
  return success();
}

error cm_handshake::refuse(const error& why) noexcept {
  id_.destroy();
  failed_ = why;
  state_ = state::failed;
  return why;
}

result<void> cm_handshake::wait() noexcept {
  const auto waited = id_.wait_readable(limit_);
  if (!waited.has_value()) return refuse(waited.assume_error());
  return success();
}

}  // namespace verbspp::detail
