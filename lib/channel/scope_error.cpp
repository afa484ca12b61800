// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/scope_error.hpp>

#include <ostream>
#include <string>

namespace verbspp {

scope_error::operator error() const noexcept {
  if (own_) return *own_;
  if (work_) return *work_;
  return {error_kind::invalid_input, "manual scope of a channel",
          "the results of some requests were not taken: poll or wait for each handle before the "
          "function returns, or call scope instead of manual_scope"};
}

std::string scope_error::message() const {
  std::string text;
  if (own_)
    text += "the function that was passed to the scope or stream failed: " + own_->message();
  if (work_) {
    if (!text.empty()) text += "; and ";
    if (failed_ + flushed_ != 0)
      text += "requests of the scope or stream failed (by themselves: " + std::to_string(failed_) +
              ", flushed: " + std::to_string(flushed_) + "): ";
    text += work_->message();
  }
  if (left_ != 0) {
    if (!text.empty()) text += "; and ";
    text += "requests whose results were not taken: " + std::to_string(left_);
  }
  return text;
}

void scope_error::raise() const { static_cast<error>(*this).raise(); }

std::ostream& operator<<(std::ostream& out, const scope_error& e) { return out << e.message(); }

}  // namespace verbspp
