// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

namespace verbspp {

/// Blocking calls: each posts one request, waits for it, and returns its result. If the queue is
/// full, it also waits for room.
///
/// The memory is given as elements, or as an object: `send(buffer)`, `read(part, {.remote =
/// theirs})`. The request covers all of the object; a `message` that the request has filled gets
/// the length of the data. The caller keeps the memory. When the call returns, no request uses the
/// memory any more, even if the limit was reached and the channel broke. The only exception is a
/// device that fails to destroy the queue pair. The call then returns an error of kind `driver`,
/// shared memory is never freed, and the caller must neither free nor reuse memory that is not
/// shared.
///
/// Without a limit, the channel's default limit applies. If the limit has expired before the call,
/// nothing is posted, and the channel is not affected. If the limit is reached later, the channel
/// breaks, even if the request was still waiting for room in the queue.
///
/// `Poster` provides `core()`, which returns the channel's state.
/// \errors as posting and `pending::wait`; those of the memory's `gather` or `scatter`
template <class Poster>
class blocking_operations {
 public:
  VERBSPP_DATA_PATH transport_result<completed_work> send(
      const send_operation& operation, call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }
  VERBSPP_DATA_PATH transport_result<completed_work> receive(
      const receive_operation& operation, call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }
  VERBSPP_DATA_PATH transport_result<completed_work> write(
      const write_operation& operation, call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }
  VERBSPP_DATA_PATH transport_result<completed_work> read(
      const read_operation& operation, call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }
  VERBSPP_DATA_PATH transport_result<completed_work> compare_and_swap(
      const compare_and_swap_operation& operation,
      call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }
  VERBSPP_DATA_PATH transport_result<completed_work> fetch_and_add(
      const fetch_and_add_operation& operation,
      call_limit limit = call_limit::of_channel()) noexcept {
    return run(operation, limit);
  }

  template <class Memory>
    requires BorrowedMemory<Memory>
  VERBSPP_DATA_PATH transport_result<completed_work> send(
      Memory&& memory, call_limit limit = call_limit::of_channel()) noexcept {
    return run_with(memory, send_operation(), limit);
  }
  /// Here and below, leave the operation's `elements` empty: the memory replaces them.
  template <class Memory>
    requires BorrowedMemory<Memory>
  VERBSPP_DATA_PATH transport_result<completed_work> send(
      Memory&& memory, const send_operation& rest,
      call_limit limit = call_limit::of_channel()) noexcept {
    return run_with(memory, rest, limit);
  }
  template <class Memory>
    requires BorrowedMemory<Memory> && FillableMemory<Memory> && OutlivesCall<Memory>
  VERBSPP_DATA_PATH transport_result<completed_work> receive(
      Memory&& memory, call_limit limit = call_limit::of_channel()) noexcept {
    return run_with(memory, receive_operation(), limit);
  }
  template <class Memory>
    requires BorrowedMemory<Memory>
  VERBSPP_DATA_PATH transport_result<completed_work> write(
      Memory&& memory, const write_operation& rest,
      call_limit limit = call_limit::of_channel()) noexcept {
    return run_with(memory, rest, limit);
  }
  template <class Memory>
    requires BorrowedMemory<Memory> && FillableMemory<Memory> && OutlivesCall<Memory>
  VERBSPP_DATA_PATH transport_result<completed_work> read(
      Memory&& memory, const read_operation& rest,
      call_limit limit = call_limit::of_channel()) noexcept {
    return run_with(memory, rest, limit);
  }

 protected:
  blocking_operations() noexcept = default;
  blocking_operations(blocking_operations&&) noexcept = default;
  blocking_operations& operator=(blocking_operations&&) noexcept = default;
  ~blocking_operations() = default;

 private:
  /// \param kept a reference to shared memory, which is dropped when the request has finished
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> run(
      const Operation& operation, call_limit limit, detail::kept_memory kept = {}) noexcept {
    detail::channel_core& core = static_cast<Poster&>(*this).core();
    detail::request made;
    const result<void> posted =
        limit.has_passed() ? core.ended_before(limit.begin({}))
                           : core.post(operation, made, {.waits_for_room = true, .limit = limit});
    if (!posted.has_value()) [[unlikely]] {
      kept.let_go();
      return posted.assume_error();
    }
    if (kept.keeper != nullptr) core.keep(made, kept);
    return core.wait_without_handle(made, limit);
  }
  template <class Memory, class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> run_with(
      Memory& memory, const Operation& rest, call_limit limit) noexcept {
    Operation operation = rest;
    if (!detail::name_all(operation, memory)) [[unlikely]]
      return detail::element_for<detail::fills<Operation>>(memory).assume_error();
    if constexpr (SharedMemory<Memory>) {
      return run(operation, limit, memory.keep());
    } else {
      const auto done = run(operation, limit);
      if constexpr (detail::fills<Operation>) detail::note_filling(memory, done);
      return done;
    }
  }
};

}  // namespace verbspp
