// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/group_error.hpp>

#include <ostream>
#include <string>

namespace verbspp {

std::string group_error::message() const {
  std::string text;
  if (own_) text = "the function that was passed to the scope failed: " + own_->message();
  if (own_ && peer_) text += "; and ";
  if (peer_) {
    text += "peer " + std::to_string(*peer_);
    if (failed_ > 1) text += ", the first of " + std::to_string(failed_) + " that failed";
    text += ": ";
  }
  if (peer_ || !own_) text += cause_.message();
  return text;
}

void group_error::raise() const { static_cast<transport_error>(*this).raise(); }

std::ostream& operator<<(std::ostream& out, const group_error& e) { return out << e.message(); }

}  // namespace verbspp
