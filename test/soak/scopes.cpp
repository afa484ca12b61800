// SPDX-License-Identifier: Apache-2.0
/// \file
/// Scopes and streams.
#include "operations.hpp"

#include <algorithm>

namespace verbspp::soak {

namespace {

/// Thrown by the function of a scope.
struct thrown_in_scope {};

}  // namespace

void end::use_scope(unsigned depth) {
  doing_ = "a scope";
  std::vector<work> jobs;
  std::vector<std::size_t> taken;  // indexes of jobs that have been settled
  const std::uint64_t count = any(16);
  const std::uint64_t stop_at = once_in(4) ? any(count + 1) : UINT64_MAX;
  const bool throws = once_in(2);
  const bool is_manual = once_in(4);
  std::uint32_t left = 0;
  const error own(error_kind::permission, "the soak", "an error of the scope's function");
  bool was_refused = false;
  const auto body = [&](channel_scope& scope) -> result<int> {
    std::vector<std::pair<std::size_t, scoped_pending>> handles;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i == stop_at) {
        if (throws) throw thrown_in_scope();
        return own;
      }
      if (depth < 2 && once_in(30)) use_scope(depth + 1);
      if (once_in(5)) {
        // Sometimes, posts several requests with one doorbell.
        const std::size_t first = jobs.size();
        const auto posted = scope.post_batch<4, 12, 4 * inline_limit>([&](auto& batch) {
          for (std::uint64_t k = any(4) + 1; k != 0; --k) {
            work job;
            if (!choose(job, true)) continue;
            with_operation(job, [&](const auto& what) { post(batch, what); });
            jobs.push_back(job);
          }
        });
        std::size_t accepted = jobs.size() - first;
        if (!posted.has_value()) {
          accepted = posted.error().accepted();
          note_failure(posted.error().cause(), "posting a batch");
          check_refused(posted.error().cause(), "posting a batch");
          was_refused = true;
        }
        for (std::size_t k = first; k < first + accepted; ++k) count_posted(jobs[k]);
        while (jobs.size() > first + accepted) {
          undo(jobs.back());
          jobs.pop_back();
        }
        if (was_refused) return posted.error().cause();
        continue;
      }
      work job;
      if (!choose(job, true)) continue;
      auto posted = with_operation(job, [&](const auto& what) { return post(scope, what); });
      if (!posted.has_value()) {
        note_failure(posted.error(), "posting in a scope");
        check_refused(posted.error(), "posting in a scope");
        undo(job);
        was_refused = true;
        return posted.error();
      }
      count_posted(job);
      jobs.push_back(job);
      ++left;
      if (once_in(2)) handles.emplace_back(jobs.size() - 1, std::move(posted).assume_value());
      while (!handles.empty() && once_in(3)) {
        const std::size_t at = any(handles.size());
        std::swap(handles[at], handles.back());
        auto [index, handle] = std::move(handles.back());
        handles.pop_back();
        if (once_in(3)) continue;  // the handle is dropped
        const auto done = handle.wait(patient_limit());
        --left;
        taken.push_back(index);
        if (!done.has_value()) {
          note_failure(done.error(), "a handle of a scope");
          must_be_broken("a request of a scope");
        }
        settle(jobs[index], done.has_value());
      }
    }
    return 7;
  };
  const auto settle_rest = [&](bool have_succeeded) {
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (std::find(taken.begin(), taken.end(), i) == taken.end()) settle(jobs[i], have_succeeded);
  };
  try {
    const wait_limit limit = patient_limit();
    const auto ended = is_manual    ? channel_.manual_scope(body, limit)
                       : once_in(8) ? channel_.scope(body)
                                    : channel_.scope(body, limit);
    if (ended.has_value()) {
      claim(ended.assume_value() == 7, "a scope returned a value other than its function's");
      claim(!is_manual || left == 0, "a manual scope does not report requests without results");
      settle_rest(true);
      return;
    }
    const scope_error& failure = ended.error();
    claim(!failure.message().empty(), "a scope's error has no message");
    if (failure.own()) {
      claim(was_refused || *failure.own() == error_kind::permission,
            "a scope reports an error that its function did not return: " + failure.message());
    } else if (!failure.work()) {
      claim(is_manual && failure.left() == left,
            "a manual scope counts the requests without results as " +
                std::to_string(failure.left()) + " instead of " + std::to_string(left));
    }
    if (failure.work()) {
      note_failure(*failure.work(), "a scope");
      must_be_broken("a scope");
    }
    settle_rest(!failure.work() && channel_.is_connected());
  } catch (const thrown_in_scope&) {
    settle_rest(channel_.is_connected());
  }
}

void end::use_stream() {
  doing_ = "a stream";
  std::vector<work> jobs;
  const std::uint64_t count = any(60);
  const stream_options how{.signal_every = 1 + static_cast<std::uint32_t>(any(20))};
  bool was_refused = false;
  const auto ended = channel_.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::uint64_t i = 0; i < count && jobs.size() < 40; ++i) {
          work job;
          if (!choose(job, true)) continue;
          const auto posted =
              with_operation(job, [&](const auto& what) { return post(stream, what); });
          if (!posted.has_value()) {
            note_failure(posted.error(), "posting in a stream");
            undo(job);
            was_refused = true;
            return posted.error();
          }
          count_posted(job);
          jobs.push_back(job);
        }
        return success();
      },
      how, patient_limit());
  if (ended.has_value()) return settle_all(jobs, true);
  claim(!ended.error().message().empty(), "a stream's error has no message");
  note_failure(ended.error(), "a stream");
  if (ended.error().work()) must_be_broken("a stream");
  if (was_refused && !ended.error().work()) return settle_all(jobs, channel_.is_connected());
  settle_all(jobs, false);
}

}  // namespace verbspp::soak
