// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/calling_client.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace verbspp::detail {

/// A call that was not answered yet, independent of the type of its method. If it is destroyed, the
/// call is refused.
class open_call {
 public:
  open_call() noexcept = default;
  /// For the thread that has the client's turn. An answer that is given before the call is moved
  /// stays here until `take_answer`.
  open_call(reference<calling_client> from, message&& request) noexcept
      : client_(std::move(from)), message_(std::move(request)), keeps_answer_(true) {}
  /// Returns the answer, or an empty message if there is none yet, or the call was moved.
  [[nodiscard]] message take_answer() noexcept {
    return is_open() ? message() : std::move(message_);
  }
  /// Adds the memory that the call lends. The description of the memory precedes the request.
  void lend(reference<lent_memory> lent) noexcept { lent_ = std::move(lent); }
  /// Adds lent memory whose bytes travel in the call and the answer, and not over a lane.
  /// \errors `invalid_input` if the call is malformed, or leaves too little space for the answer;
  /// `resource_exhausted`
  [[nodiscard]] result<void> lend_sent(const remote_memory_description& what,
                                       const method_description& of) noexcept;
  open_call(open_call&& other) noexcept
      : client_(std::move(other.client_)),
        message_(std::move(other.message_)),
        lent_(std::move(other.lent_)) {}
  open_call& operator=(open_call&& other) noexcept {
    if (this == &other) return *this;
    if (is_open()) drop();
    client_ = std::move(other.client_);
    message_ = std::move(other.message_);
    lent_ = std::move(other.lent_);
    keeps_answer_ = false;
    return *this;
  }
  open_call(const open_call&) = delete;
  open_call& operator=(const open_call&) = delete;
  VERBSPP_DATA_PATH ~open_call() {
    if (is_open()) drop();
  }

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(client_); }
  [[nodiscard]] std::span<const std::byte> request() const noexcept {
    return body_of(message_).subspan(lent_ ? lent_->request_offset() : 0);
  }
  [[nodiscard]] channel_id client() const noexcept {
    return is_open() ? client_->id() : channel_id();
  }

  /// Encodes an answer, and sends it. `encode` gets the space for the answer, and returns its size.
  /// \errors those of `encode`, and `invalid_input` if it returns a size above the space: the call
  /// is then still open, but `encode` may have overwritten its request; `invalid_input` if the call
  /// was answered already
  template <class Encode>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> answer_with(const char* operation,
                                                           Encode encode) noexcept {
    if (!is_open()) [[unlikely]]
      return answered_already(operation);
    const std::span<std::byte> into = space();
    VERBSPP_TRY(size, encode(into));
    if (size > into.size()) [[unlikely]]
      return too_large(operation, size, into.size());
    finish(call_frame_kind::answer, size);
    return success();
  }
  void refuse(error_kind kind, std::string_view text) noexcept;
  void refuse(const error& why) noexcept;

  // Functions for calls that lend memory.

  [[nodiscard]] std::uint64_t lent_size() const noexcept { return lent_ ? lent_->size() : 0; }
  [[nodiscard]] result<void> read(const scatter_list& into, std::uint64_t offset,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, std::uint64_t offset,
                                   call_limit limit) noexcept;
  /// Like `lent_memory::begin`.
  template <class Elements>
  [[nodiscard]] auto begin(const char* operation, const Elements& elements,
                           std::uint64_t offset) noexcept
      -> decltype(std::declval<lent_memory&>().begin(elements, offset)) {
    if (!is_open()) return answered_already(operation);
    return lent_->begin(elements, offset);
  }
  // Only for calls that have not been answered yet.
  [[nodiscard]] const reference<serving_lane>& lane() const noexcept { return lent_->lane(); }
  [[nodiscard]] const reference<calling_client>& caller() const noexcept { return client_; }

 private:
  [[nodiscard]] static error answered_already(const char* operation) noexcept;
  [[nodiscard]] static error too_large(const char* operation, std::size_t size,
                                       std::size_t limit) noexcept;
  /// The space for the body of the answer. It begins where the body of the request does, or behind
  /// lent memory whose bytes are sent.
  [[nodiscard]] std::span<std::byte> space() noexcept {
    if (lent_ && lent_->is_sent()) [[unlikely]]
      return lent_->space();
    const std::size_t size = message_.capacity() - call_header::size;
    return {message_.bytes().data() + call_header::size,
            std::min<std::size_t>(client_->answer_size(), size)};
  }
  void finish(call_frame_kind kind, std::size_t size) noexcept;
  void finish_lending(call_frame_kind kind, std::size_t size) noexcept;
  void finish(call_frame_kind kind, std::size_t size, std::byte flags) noexcept;
  /// Refuses the call because it was dropped.
  void drop() noexcept;

  reference<calling_client> client_{};
  message message_{};
  reference<lent_memory> lent_{};  ///< empty if calls of the method lend no memory
  bool keeps_answer_ = false;
};

}  // namespace verbspp::detail
