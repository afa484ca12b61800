// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_request.hpp>

#include <algorithm>

namespace verbspp {

cm_request::cm_request(detail::cm_identifier id, const detail::cm_event_data& event) noexcept
    : id_(std::move(id)),
      responder_resources_(event.responder_resources),
      initiator_depth_(event.initiator_depth) {
  const auto bytes = event.private_data();
  data_ = cm_request_data::from(bytes.first(std::min(bytes.size(), cm_request_data::max_size)))
              .assume_value();
}

detail::cm_parameters cm_request::parameters(const cm_accept_options& options) const noexcept {
  return {.responder_resources = responder_resources_,
          .initiator_depth = initiator_depth_,
          .data = options.data,
          .rnr_retries = options.rnr_retries.code()};
}

result<void> cm_request::reject(const cm_rejection_data& data) && noexcept {
  if (id_.is_empty()) return detail::cm_moved_from("rdma_reject");
  detail::cm_identifier taken = std::move(id_);
  return taken.reject(data.bytes());
}

}  // namespace verbspp
