// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

namespace verbspp::detail {

/// The links that make an object an element of a circular list. The head of the list has links,
/// too, but is not an element.
struct list_links {
  list_links* next = nullptr;  ///< null if this is in no list
  list_links* previous = nullptr;

  [[nodiscard]] VERBSPP_DATA_PATH bool is_linked() const noexcept { return next != nullptr; }
  /// Inserts this element before `place`, or at the end of the list if `place` is the head.
  /// \pre this element is in no list
  VERBSPP_DATA_PATH void link_before(list_links& place) noexcept {
    // In this order, g++ does not combine stores into a vector.
    list_links* const before = place.previous;
    next = &place;
    before->next = this;
    previous = before;
    place.previous = this;
  }
  /// Removes this element from its list. Does nothing if it is in no list.
  VERBSPP_DATA_PATH void unlink() noexcept {
    if (next == nullptr) return;
    previous->next = next;
    next->previous = previous;
    next = nullptr;
  }
};

}  // namespace verbspp::detail
