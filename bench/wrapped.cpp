// SPDX-License-Identifier: Apache-2.0
#include "wrapped.hpp"

#include <array>
#include <memory>

namespace {

using namespace verbspp;

/// Waits for one completion. Returns false unless it is the successful completion of this request.
inline bool wait_for(const completion_queue& queue, std::uint64_t id) noexcept {
  std::array<work_completion, 1> slots;
  for (;;) {
    const auto arrived = queue.poll(slots);
    if (!arrived) return false;
    if (arrived.assume_value().empty()) continue;
    const work_completion& completion = arrived.assume_value().front();
    return completion.is_success() && completion.wr_id() == id;
  }
}

/// Waits for the completions of the next `batch` requests. Returns false unless all are successful.
inline bool wait_for_batch(const completion_queue& queue, std::uint64_t id) noexcept {
  std::array<work_completion, batch> slots;
  for (std::size_t left = batch; left > 0;) {
    const auto arrived = queue.poll(slots);
    if (!arrived) return false;
    for (const work_completion& completion : arrived.assume_value())
      if (!completion.is_success() || completion.wr_id() != id++) return false;
    left -= arrived.assume_value().size();
  }
  return true;
}

/// Waits until a polling session finds completions. Returns false unless all of them are successful
/// writes with this id.
inline bool wait_for_session(const wrapped_ends::extended_queue_type& queue,
                             std::uint64_t id) noexcept {
  for (;;) {
    bool good = true;
    const auto arrived = queue.poll_each([&](const auto& completion) {
      const auto work = completion.get();
      if (!work || completion.wr_id() != id ||
          work.assume_value().operation() != work_operation::rdma_write)
        good = false;
    });
    if (!arrived) return false;
    if (arrived.assume_value() != 0) return good;
  }
}

[[gnu::always_inline]] inline bool write(wrapped_ends& ends, std::uint64_t id) noexcept {
  const auto element = ends.outgoing.gather_unchecked(0, message_size);
  const auto remote = ends.remote.slice_unchecked(0, message_size);
  if (!ends.queue_pair.post_write({.elements = element, .remote = remote}, {.id = id}))
    return false;
  return wait_for(ends.queue, id);
}

}  // namespace

/// Holds the memory that `loop_planted_write` allocates. It has external linkage, so that the
/// compiler cannot remove that allocation.
std::unique_ptr<std::uint64_t> planted;

bool loop_verbspp_write(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t id = 0; id < operations; ++id)
    if (!write(ends, id)) return false;
  return true;
}

bool loop_verbspp_send(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t first = 0; first < operations; first += batch) {
    for (std::uint64_t id = first; id < first + batch; ++id) {
      const auto element = ends.outgoing.gather_unchecked(0, message_size);
      if (!ends.queue_pair.post_send({.elements = element}, {.id = id})) return false;
    }
    if (!wait_for_batch(ends.queue, first)) return false;
  }
  return true;
}

bool loop_verbspp_receive(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t id = 0; id < operations; ++id) {
    const auto element = ends.incoming.scatter_unchecked(0, message_size);
    if (!ends.queue_pair.post_receive({.elements = element}, {.id = id})) return false;
    if (!wait_for(ends.queue, id)) return false;
  }
  return true;
}

bool loop_verbspp_list(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t first = 0; first < operations; first += batch) {
    const auto posted = ends.queue_pair.post_batch<batch>([&](auto& list) {
      for (std::uint64_t id = first; id < first + batch; ++id) {
        const auto element = ends.outgoing.gather_unchecked(0, message_size);
        list.post_send({.elements = element}, {.id = id});
      }
    });
    if (!posted) return false;
    if (!wait_for_batch(ends.queue, first)) return false;
  }
  return true;
}

bool loop_verbspp_extended(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t id = 0; id < operations; ++id) {
    const auto posted = ends.extended_pair.post_batch<1>([&](auto& single) {
      const auto element = ends.outgoing.gather_unchecked(0, message_size);
      const auto remote = ends.remote.slice_unchecked(0, message_size);
      single.post_write({.elements = element, .remote = remote}, {.id = id});
    });
    if (!posted) return false;
    if (!wait_for_session(ends.extended_queue, id)) return false;
  }
  return true;
}

namespace {

// Written like the program in the README: errors are passed to the caller.

error another_completion() noexcept {
  return {error_kind::mismatch, "benchmark", "a different completion was expected"};
}

transport_result<void> write_checked(wrapped_ends& ends, std::uint64_t operations) {
  for (std::uint64_t id = 0; id < operations; ++id) {
    const std::uint32_t length = *ends.length;
    const std::size_t offset = message_size - length;
    VERBSPP_TRY(element, ends.outgoing.gather(offset, length));
    VERBSPP_TRY(remote, ends.remote.slice(offset, length));
    VERBSPP_TRYV(ends.queue_pair.post_write({.elements = element, .remote = remote}, {.id = id}));
    for (std::uint64_t done = id; done == id;) {
      std::array<work_completion, batch> slots;
      VERBSPP_TRY(arrived, ends.queue.poll(slots));
      for (const work_completion& completion : arrived) {
        VERBSPP_TRY(work, completion.get());
        if (work.operation() != work_operation::rdma_write || completion.wr_id() != done++)
          return another_completion();
      }
    }
  }
  return success();
}

transport_result<void> stream(wrapped_ends& ends, std::uint64_t operations) {
  std::uint64_t done = 0;
  for (std::uint64_t first = 0; first < operations; first += batch) {
    for (std::uint64_t id = first; id < first + batch; ++id) {
      const std::uint32_t length = *ends.length;
      VERBSPP_TRY(element, ends.outgoing.gather(message_size - length, length));
      VERBSPP_TRYV(ends.queue_pair.post_send({.elements = element}, {.id = id}));
    }
    while (done < first + batch) {
      std::array<work_completion, batch> slots;
      VERBSPP_TRY(arrived, ends.queue.poll(slots));
      for (const work_completion& completion : arrived) {
        VERBSPP_TRY(work, completion.get());
        if (work.operation() != work_operation::send || completion.wr_id() != done++)
          return another_completion();
      }
    }
  }
  return success();
}

}  // namespace

bool loop_verbspp_checked(wrapped_ends& ends, std::uint64_t operations) noexcept {
  return write_checked(ends, operations).has_value();
}

bool loop_verbspp_stream(wrapped_ends& ends, std::uint64_t operations) noexcept {
  return stream(ends, operations).has_value();
}

bool loop_planted_write(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t id = 0; id < operations; ++id) {
    planted = std::make_unique<std::uint64_t>(id);
    if (!write(ends, *planted)) return false;
  }
  return true;
}
