// SPDX-License-Identifier: Apache-2.0
#include "calls/call_messages.hpp"
#include <verbspp/calls/detail/open_call.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace verbspp::detail {

error open_call::too_large(const char* operation, std::size_t size, std::size_t limit) noexcept {
  return error::above_limit(operation, "size of the encoded answer in bytes", size, limit);
}

error open_call::answered_already(const char* operation) noexcept {
  return {error_kind::invalid_input, operation,
          "this object has no open call: the call was answered or refused, or the object was moved "
          "from or default constructed"};
}

VERBSPP_DATA_PATH void open_call::finish(call_frame_kind kind, std::size_t size,
                                         std::byte flags) noexcept {
  static_cast<void>(message_.resize(call_header::size + size));
  // The header keeps the number and the method of the request.
  call_header::set_kind(message_.bytes().data(), kind, static_cast<std::uint32_t>(size), flags);
  const reference<calling_client> client = std::move(client_);
  if (keeps_answer_) return;
  message answer = std::move(message_);  // returns to its pool immediately if the client has left
  client->deliver(std::move(answer));
}

void open_call::finish_lending(call_frame_kind kind, std::size_t size) noexcept {
  std::byte flags{};
  if (!lent_->is_lane_usable()) flags = call_header::lane_failed;
  if (lent_->has_written()) flags = call_header::has_written;
  if (lent_->is_sent()) size = lent_->complete(size);
  lent_ = {};
  finish(kind, size, flags);
}

void open_call::finish(call_frame_kind kind, std::size_t size) noexcept {
  if (lent_) [[unlikely]]
    return finish_lending(kind, size);
  finish(kind, size, {});
}

result<void> open_call::lend_sent(const remote_memory_description& what,
                                  const method_description& of) noexcept {
  const std::size_t sent = of.lends.contains(access::remote_read) ? what.length : 0;
  const std::size_t room = space().size();
  const std::size_t size = message_.size() - call_header::size;
  if (what.length > room || size < loan_size + sent ||
      space_for_sending(of, what.length, size - loan_size - sent) > room)
    return error(error_kind::invalid_input, of.name,
                 "the message is too small for the lent memory: use the same version of verbspp at "
                 "both ends");
  static_cast<void>(message_.resize(call_header::size + room));
  const std::span<std::byte> body = body_of(message_);
  // The handler's writes need space, before the request, for all bytes of the lent memory.
  const std::size_t missing = what.length - sent;
  if (missing != 0) std::memmove(&body[loan_size + missing], &body[loan_size], size - loan_size);
  static_cast<void>(message_.resize(call_header::size + size + missing));
  lent_ = reference<lent_memory>(new (std::nothrow) lent_memory(what, body));
  if (!lent_) return error::from_errno(ENOMEM, of.name);
  return success();
}

result<void> open_call::read(const scatter_list& into, std::uint64_t offset,
                             call_limit limit) noexcept {
  if (!is_open()) return answered_already("received_call::read");
  return lent_->read(into, offset, limit);
}

result<void> open_call::write(const gather_list& from, std::uint64_t offset,
                              call_limit limit) noexcept {
  if (!is_open()) return answered_already("received_call::write");
  return lent_->write(from, offset, limit);
}

void open_call::refuse(error_kind kind, std::string_view text) noexcept {
  if (!is_open()) return;
  // The text is more important than bytes that the handler has written before it refused the call.
  if (lent_ && lent_->is_sent() && lent_->space().size() <= std::min(text.size(), longest_words))
    lent_ = {};
  finish(call_frame_kind::refusal, write_refusal(space(), kind, text));
}

void open_call::refuse(const error& why) noexcept {
  std::array<char, longest_words> text{};
  const std::size_t size = why.format(text);
  refuse(why.kind(), {text.data(), std::min(size, text.size() - 1)});
}

void open_call::drop() noexcept {
  keeps_answer_ = false;
  refuse(error_kind::cancelled, "the service's handler has dropped the call without an answer");
}

}  // namespace verbspp::detail
