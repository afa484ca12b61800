// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/group_results.hpp>

#include <ostream>
#include <string>

namespace verbspp {

group_error group_results::error() const noexcept {
  if (refused_) return *refused_;
  for (const peer_result& each : *this)
    if (!each.result.has_value()) return {each.peer, each.result.assume_error(), failed_};
  return {};
}

std::string group_results::message() const {
  if (refused_) return refused_->message();
  if (size_ == 0) return "succeeded";
  if (failed_ == 0 && size_ == 1) return "peer " + std::to_string((*this)[0].peer) + " succeeded";
  if (failed_ == 0) return "all " + std::to_string(size_) + " peers succeeded";
  std::string text;
  for (const peer_result& each : *this) {
    if (each.result.has_value()) continue;
    if (!text.empty()) text += "; ";
    text += "peer " + std::to_string(each.peer) + ": " + each.result.assume_error().message();
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const group_results& results) {
  return out << results.message();
}

}  // namespace verbspp
