// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/transport_error.hpp>

#include <ostream>

namespace verbspp {

transport_error::transport_error(const error& call) noexcept : call_(call) {
  const auto request = work_error::from(call);
  if (!request) return;
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
