// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp::detail {

struct inbox_state;
struct pool_place;

/// The inboxes of a channel, with their posted receives and arrived messages. An inbox that was
/// destroyed stays in the list until its last posted receive has finished. The functions that
/// access the state of an inbox are defined in lib/core/inbox_state.hpp.
class inbox_list {
 public:
  inbox_list() noexcept = default;
  inbox_list(const inbox_list&) = delete;
  inbox_list& operator=(const inbox_list&) = delete;

  // Sums over all inboxes.

  /// The number of inboxes that were not destroyed.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// The number of posted receives.
  [[nodiscard]] std::uint32_t posted() const noexcept;
  /// True if an inbox has a message that was not taken.
  [[nodiscard]] bool has_messages() const noexcept;

  // The inboxes.

  void add(inbox_state& inbox) noexcept;
  /// Removes an inbox that is being destroyed. Its state is deleted once it has no posted receives.
  void remove(owned<inbox_state> destroyed) noexcept;
  /// The inbox whose posted receives have this `wr_id`; null if there is none.
  [[nodiscard]] inbox_state* find(std::uint64_t wr_id) const noexcept;
  /// The inbox that gets the channel's messages from the pool of the hub; null if there is none.
  [[nodiscard]] inbox_state* shared() const noexcept { return shared_; }
  void set_shared(inbox_state& inbox) noexcept { shared_ = &inbox; }

  /// Deletes the state of a destroyed inbox that has no posted receives; otherwise a no-op.
  void delete_if_finished(inbox_state& inbox) noexcept;
  /// Gives each inbox a new tag, and calls `fail(inbox)` for each of its posted receives. `fail`
  /// must call the inbox's `take_posted` and `note_ended`, and may call `delete_if_finished`.
  template <class Fail>
  void flush(Fail fail) noexcept;
  /// Adds a message to an inbox. If the inbox was destroyed, the place returns to the pool instead.
  void deliver(inbox_state& inbox, pool_place& place) noexcept;

 private:
  [[nodiscard]] std::uint64_t new_tag() noexcept;

  std::uint32_t count_ = 0;
  std::uint32_t tags_ = 0;  ///< counts the tags that inboxes have had
  inbox_state* first_ = nullptr;
  inbox_state* shared_ = nullptr;
};

}  // namespace verbspp::detail
