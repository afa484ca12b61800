// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/transport_error.hpp>

#include <optional>
#include <ostream>
#include <string>

namespace verbspp {

std::optional<batch_error> batch_error::from(const error& e) noexcept {
  if (!detail::error_access::is_of_batch(e)) return std::nullopt;
  return batch_error(detail::error_access::cause(e), detail::error_access::accepted(e));
}

std::string batch_error::message() const { return error(*this).message(); }

std::ostream& operator<<(std::ostream& out, const batch_error& e) { return out << e.message(); }

void batch_error::raise() const { error(*this).raise(); }

transport_error::transport_error(const error& call) noexcept : call_(call) {
  const auto request = work_error::from(call);
  // A call on a connection that a failed request has broken is not itself a failed request.
  if (!request || call != error_kind::failed_request) return;
  work_ = *request;
  is_work_ = true;
}

std::string transport_error::message() const {
  return is_work_ ? work_.message() : call_.message();
}

std::ostream& operator<<(std::ostream& out, const transport_error& e) { return out << e.message(); }

void transport_error::raise() const {
  if (is_work_) work_.raise();
  call_.raise();
}

}  // namespace verbspp
