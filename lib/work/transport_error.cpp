// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/transport_error.hpp>

#include <ostream>

namespace verbspp {

std::string transport_error::message() const {
  return is_work_ ? work_.message() : call_.message();
}

std::ostream& operator<<(std::ostream& out, const transport_error& e) { return out << e.message(); }

namespace detail {

void throw_transport_error::operator()(const transport_error& e) const {
  if (const work_error* const work = e.work()) throw_work_error{}(*work);
  throw_error(*e.call());
}

}  // namespace detail

}  // namespace verbspp
