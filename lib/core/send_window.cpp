// SPDX-License-Identifier: Apache-2.0
#include <verbspp/core/detail/send_window.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

work_error lost_sends::error_of(const request& one) const noexcept {
  const bool is_root = one.number == root;
  return work_error(is_root ? static_cast<work_status>(status) : work_status::flushed,
                    is_root ? vendor_code : 0, one.number, queue_pair)
      .with_operation(one.operation);
}

result<void> send_window::allocate() noexcept {
  // There is room for twice the capacity, because the requests in a batch are numbered while the
  // queue may still be full.
  const std::size_t count = 2 * std::bit_ceil(std::size_t{std::max(capacity_, 1U)});
  records_owner_ = owned<record[]>(new (std::nothrow) record[count]);
  records_ = records_owner_.get();
  if (records_ == nullptr) return error::from_errno(ENOMEM, "build a channel");
  mask_ = count - 1;
  return success();
}

void send_window::set_capacity(std::uint32_t requests) noexcept {
  capacity_ = records_ == nullptr ? requests
                                  : std::min(requests, static_cast<std::uint32_t>((mask_ + 1) / 2));
}

void send_window::open() noexcept {
  is_open_ = true;
  usable_ = capacity_;
  signaled_end_ = next_;
  end_ = completed_ + usable_;
}

void send_window::close() noexcept {
  is_open_ = false;
  usable_ = 0;
  end_ = completed_;
}

/// Begins a run of the scope's requests, because requests outside of the scope were posted since
/// its last request, or since it was opened.
void send_window::begin_run(scope_state& scope) noexcept {
  if (scope.has_sends() && scope.sends_end > completed_) {
    record& last = records_[place_of(scope.sends_end - 1)];
    last.number = scope.sends_end - 1;
    last.scope = &scope;
    last.run_first = scope.run_first;
    runs_end_ = std::max(runs_end_, scope.sends_end);
    lost_->search_end = 0;
  }
  scope.run_first = next_;
}

/// Releases the memory of the requests from `completed_` up to, but not including, `end`.
void send_window::release_memory(std::uint64_t end, memory_guard& guard) noexcept {
  for (std::uint64_t number = completed_; number != end; ++number) release_memory_of(number, guard);
}

void send_window::note_unheld(std::uint64_t number) noexcept {
  records_[place_of(number)].unheld = number;
  unheld_end_ = std::max(unheld_end_, number + 1);
}

std::uint32_t send_window::unheld() const noexcept {
  std::uint32_t count = 0;
  for (std::uint64_t number = completed_; number < unheld_end_; ++number)
    if (records_[place_of(number)].unheld == number) ++count;
  return count;
}

void send_window::set_suspect(bool is_suspect) noexcept {
  if (this->is_suspect() == is_suspect) return;
  succeeded_ = is_suspect ? 0 : completed_;
  if (is_suspect)
    ++care_;
  else
    --care_;
}

result<void> send_window::begin_connection(bool has_handles, bool has_send_handles) noexcept {
  owned<lost_sends> made(new (std::nothrow) lost_sends);
  if (!made) return error::from_errno(ENOMEM, "build a channel");
  if (has_send_handles) {
    lost_->end = next_;
    made->earlier = std::move(lost_);
  }
  if (!has_handles) set_suspect(false);
  lost_ = std::move(made);
  return success();
}

void send_window::fail(std::uint64_t number, std::uint32_t status,
                       std::uint32_t vendor_code) noexcept {
  lost_->first = std::min(lost_->first, number);
  if (status == IBV_WC_WR_FLUSH_ERR || lost_->root != lost_sends::none) return;
  lost_->root = number;
  lost_->status = status;
  lost_->vendor_code = vendor_code;
}

const lost_sends* send_window::failure_of(std::uint64_t number) const noexcept {
  const lost_sends* lost = lost_.get();
  while (lost != nullptr && (number < lost->first || number >= lost->end))
    lost = lost->earlier.get();
  return lost;
}

std::uint32_t send_window::kept_connections() const noexcept {
  std::uint32_t count = 0;
  for (const lost_sends* each = lost_.get(); each != nullptr; each = each->earlier.get()) ++count;
  return count;
}

scope_state* send_window::scope_of(std::uint64_t number, const open_scopes& scopes) const noexcept {
  for (scope_state* scope = scopes.innermost(); scope != nullptr; scope = scope->outer)
    if (number >= scope->run_first && number < scope->sends_end) return scope;
  const auto ends_run = [this](std::uint64_t last) {
    const record& noted = records_[place_of(last)];
    return noted.number == last && noted.scope != nullptr;
  };
  // The requests of a run fail one after the other, so each search continues where the previous one
  // ended.
  lost_sends& lost = *lost_.get();
  if (number < lost.search_first || number >= lost.search_end)
    lost.search_first = lost.search_end = number;
  std::uint64_t& last = lost.search_end;
  while (last < runs_end_ && !ends_run(last)) ++last;
  if (last >= runs_end_) return nullptr;
  const record& run = records_[place_of(last)];
  return run.run_first <= number ? run.scope : nullptr;
}

}  // namespace verbspp::detail
