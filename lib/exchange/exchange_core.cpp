// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include "exchange/frame.hpp"
#include "exchange/frame_seal.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/exchange/detail/exchange_core.hpp>

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace verbspp::detail {

namespace {

/// The maximum size of an encoded endpoint, with room for later format versions.
constexpr std::size_t largest_endpoint = 1024;
constexpr std::size_t largest_frames_out = 6 * frame_header_size + largest_hello +
                                           frame_seal::proof_size + 3 * frame_seal::tag_size +
                                           refused_frame::largest;
constexpr std::size_t largest_own_hello = frame_header_size + largest_hello;

constexpr const char* starting = "exchange: start";

result<void> check_application(std::string_view name) noexcept {
  if (name.size() > longest_application)
    return error::above_limit(starting, "length of the application's name", name.size(),
                              longest_application);
  if (!is_application(name))
    return error(error_kind::invalid_input, starting,
                 "the application's name has characters that are not printable ASCII: use letters, "
                 "digits and spaces");
  return success();
}

constexpr std::size_t offer_size(std::size_t values) noexcept {
  return 2 + largest_endpoint + values;
}

/// Fills the nonce with random bytes; on failure, returns false and leaves errno set.
bool fill_nonce(std::span<std::byte> nonce) noexcept {
  return ::getrandom(nonce.data(), nonce.size(), 0) == std::ssize(nonce);
}

}  // namespace

result<void> exchange_core::check(const exchange_options& options) noexcept {
  VERBSPP_TRYV(check_application(options.application));
  if (!options.secret.empty()) VERBSPP_TRYV(frame_seal::create(options.secret));
  return success();
}

result<owned<exchange_core>> exchange_core::create(const exchange_setup& setup,
                                                   const wait_limit& limit) noexcept {
  constexpr const char* not_a_stream =
      "the file descriptor is not a stream socket: use a stream socket that is connected";
  if (setup.file_descriptor < 0)
    return error::out_of_range(starting, "file descriptor", setup.file_descriptor,
                               "use a stream socket that is connected");
  int type = 0;
  socklen_t size_of_type = sizeof type;
  if (::getsockopt(setup.file_descriptor, SOL_SOCKET, SO_TYPE, &type, &size_of_type) != 0)
    return error::from_errno(errno, starting).as(error_kind::invalid_input, not_a_stream);
  if (type != SOCK_STREAM) return error(error_kind::invalid_input, starting, not_a_stream);
  VERBSPP_TRYV(check_application(setup.options.application));
  const std::size_t values = setup.largest_mine;
  const std::size_t output = largest_frames_out + offer_size(setup.largest_mine);
  const std::size_t input =
      frame_header_size + std::max({largest_hello, refused_frame::largest,
                                    offer_size(setup.largest_theirs) + frame_seal::tag_size});
  const std::size_t total = values + output + input + largest_own_hello + longest_application;
  owned<exchange_core> made(new (std::nothrow) exchange_core(setup, limit));
  owned<std::byte[]> memory(new (std::nothrow) std::byte[total]);
  if (!made || !memory) return error::from_errno(ENOMEM, starting);
  const std::span<std::byte> all(memory.get(), total);
  made->values_ = all.first(values);
  made->output_ = all.subspan(values, output);
  made->input_ = all.subspan(values + output, input);
  made->own_hello_ = all.subspan(values + output + input, largest_own_hello);
  // The application's name is stored at the end of the memory.
  const std::span<std::byte> name = all.last(longest_application);
  std::ranges::copy(std::as_bytes(std::span(setup.options.application)), name.begin());
  made->options_.application = {reinterpret_cast<const char*>(name.data()),
                                setup.options.application.size()};
  made->memory_ = std::move(memory);
  if (!setup.options.secret.empty()) {
    VERBSPP_TRY(seal, frame_seal::create(setup.options.secret));
    made->seal_ = std::move(seal);
  }
  made->options_.secret = {};
  if (!made->add_hello())
    return error::from_errno(
        errno, "exchange: getrandom",
        "the kernel returned no random numbers, which are needed to distinguish exchanges");
  made->is_over_ = false;
  return made;
}

exchange_core::exchange_core(const exchange_setup& setup, const wait_limit& limit) noexcept
    : file_descriptor_(setup.file_descriptor),
      mine_(setup.mine),
      theirs_(setup.theirs),
      options_(setup.options),
      is_of_equals_(setup.is_of_equals),
      is_tied_(setup.connects_channel && setup.options.ties_socket),
      party_(setup.party),
      limit_(limit) {}

exchange_core::~exchange_core() {
  if (!is_over_)
    tell(error(error_kind::cancelled, "exchange", "the exchange was aborted before it was done"));
}

result<tied_socket> exchange_core::socket_to_tie() const noexcept {
  return is_tied_ ? tied_socket::duplicate_of(file_descriptor_) : tied_socket();
}

void exchange_core::set_mine(const endpoint& local, std::size_t size_of_values) noexcept {
  local_ = local;
  values_ = values_.first(size_of_values);
}

short exchange_core::events() const noexcept {
  // The bytes after the last frame belong to the program, so the exchange does not wait for them.
  const int to_read = awaited_ == awaited::nothing ? 0 : POLLIN;
  const bool has_output = output_at_ < output_end_ && broken_output_ == 0;
  return static_cast<short>(to_read | (has_output ? POLLOUT : 0));
}

short exchange_core::loop_events() const noexcept {
  // With a stop token, the descriptor may be that of an epoll instance, which becomes readable for
  // any of its events, and never writable.
  return limit_.has_callbacks() ? static_cast<short>(events() | POLLIN) : events();
}

result<void> exchange_core::wait() noexcept {
  pollfd entry{.fd = file_descriptor_, .events = events(), .revents = 0};
  VERBSPP_TRYV(wait_readable(std::span(&entry, 1), limit_));
  return success();
}

result<exchange_step> exchange_core::poll() noexcept {
  if (failure_) return *failure_;
  for (;;) {
    flush();
    if (awaited_ == awaited::nothing && output_at_ == output_end_) {
      is_over_ = true;
      return exchange_step::done;
    }
    if (awaited_ == awaited::nothing && broken_output_ != 0)
      return refuse(without_more(broken_output_));
    if (awaited_ != awaited::nothing && awaited_ != awaited::connection &&
        awaited_ != awaited::decision) {
      const result<bool> has_frame = fill();
      if (!has_frame.has_value()) return refuse(has_frame.assume_error());
      if (has_frame.assume_value()) {
        const result<void> taken = take_frame();
        if (!taken.has_value()) return refuse(taken.assume_error());
        continue;
      }
    }
    if (awaited_ == awaited::connection) return exchange_step::offered;
    if (awaited_ == awaited::decision && !limit_.has_passed()) return exchange_step::greeted;
    // Sending has failed, and the peer has not sent a reason.
    if (broken_output_ != 0) return refuse(without_more(broken_output_));
    if (limit_.has_passed()) return refuse(at_limit());
    descriptor_.set_events(events());
    return exchange_step::waiting;
  }
}

void exchange_core::offer() noexcept {
  if (awaited_ != awaited::decision) return;
  add_offer();
  awaited_ = has_offer_ ? awaited::connection : awaited::offer;
}

void exchange_core::set_connected() noexcept {
  if (awaited_ != awaited::connection) return;
  add_frame(static_cast<std::uint8_t>(frame_type::ready), {});
  awaited_ = awaited::ready;
  input_size_ = 0;
}

error exchange_core::refuse(const error& why) noexcept {
  if (failure_) return *failure_;
  failure_ = why;
  tell(why);
  return why;
}

/// Sends the reason to the peer without waiting. If the socket has no room for the reason, the
/// peer learns of the failure only when the socket is closed.
void exchange_core::tell(const error& why) noexcept {
  if (is_over_) return;
  is_over_ = true;
  // A frame that was sent partially has to be completed first, so the refusal is appended.
  std::array<std::byte, refused_frame::largest> body{};
  add_frame(static_cast<std::uint8_t>(frame_type::refused),
            std::span(body).first(refused_frame::of(why).encode(body)));
  flush();
}

void exchange_core::flush() noexcept {
  while (output_at_ < output_end_ && broken_output_ == 0) {
    const std::span<const std::byte> rest = output_.subspan(output_at_, output_end_ - output_at_);
    const ssize_t count =
        ::send(file_descriptor_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0)
      output_at_ += static_cast<std::size_t>(count);
    else if (errno == EAGAIN)
      return;
    else if (errno != EINTR)
      // Data that the peer sent before it closed the connection may still be available to read.
      broken_output_ = errno;
  }
  if (output_at_ == output_end_) output_at_ = output_end_ = 0;
}

/// Reads one frame, and no byte beyond it.
/// \returns true if the frame is complete
result<bool> exchange_core::fill() noexcept {
  for (;;) {
    std::size_t needed = frame_header_size;
    if (input_size_ >= frame_header_size) {
      VERBSPP_TRY(header, frame_header::decode(input_.first<frame_header_size>()));
      VERBSPP_TRYV(check_awaited(static_cast<std::uint8_t>(header.type), header.length));
      needed += header.length;
      if (input_size_ == needed) return true;
    }
    const std::span<std::byte> to = input_.subspan(input_size_, needed - input_size_);
    const ssize_t count = ::recv(file_descriptor_, to.data(), to.size(), MSG_DONTWAIT);
    if (count > 0) {
      input_size_ += static_cast<std::size_t>(count);
    } else if (count == 0) {
      return without_more(broken_output_);
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return without_more(errno);
    }
  }
}

/// Checks that a frame of this type may arrive now, and that its length is allowed.
result<void> exchange_core::check_awaited(std::uint8_t type, std::size_t length) const noexcept {
  const auto came = static_cast<frame_type>(type);
  std::size_t largest = refused_frame::largest;
  if (came != frame_type::refused) {
    frame_type expected = frame_type::hello;
    largest = seal_ ? frame_seal::tag_size : 0;
    switch (awaited_) {
      case awaited::hello:
        largest = largest_hello;
        break;
      case awaited::proof:
        expected = frame_type::proof;
        largest = frame_seal::proof_size;
        break;
      case awaited::choice:
      case awaited::decision:
      case awaited::offer:
        expected = frame_type::offer;
        largest = input_.size() - frame_header_size;
        break;
      case awaited::connection:
      case awaited::ready:
        expected = frame_type::ready;
        break;
      case awaited::done:
      case awaited::nothing:
        expected = frame_type::done;
        break;
    }
    if (came != expected)
      return error_in_words_of(error_kind::invalid_input, "exchange: read a frame",
                               "the peer sent the frame '%s' instead of '%s': it is at another "
                               "point of the protocol, is another program, or uses another version "
                               "of verbspp, or the bytes are damaged",
                               to_string(came), to_string(expected));
  }
  if (length > largest)
    return error::above_limit("exchange: read a frame", "length of the frame in bytes", length,
                              largest,
                              "the peer sent more than is allowed: it is another program, or uses "
                              "another version of verbspp, or the bytes are damaged");
  return success();
}

result<void> exchange_core::take_frame() noexcept {
  if (static_cast<frame_type>(input_[3]) == frame_type::refused) {
    VERBSPP_TRY(refusal, refused_frame::decode(body()));
    is_over_ = true;
    return refusal.as_error();
  }
  switch (awaited_) {
    case awaited::hello:
      VERBSPP_TRYV(take_hello(body()));
      awaited_ = seal_ ? awaited::proof : behind_greeting();
      break;
    case awaited::proof:
      VERBSPP_TRYV(take_proof(body()));
      awaited_ = behind_greeting();
      break;
    case awaited::choice:
    case awaited::offer: {
      VERBSPP_TRY(offered, opened());
      VERBSPP_TRYV(take_offer(offered));
      has_offer_ = true;
      awaited_ = awaited_ == awaited::choice ? awaited::decision : awaited::connection;
      return success();  // the values stay in the input buffer
    }
    case awaited::ready:
      VERBSPP_TRYV(opened());
      add_frame(static_cast<std::uint8_t>(frame_type::done), {});
      awaited_ = awaited::done;
      break;
    case awaited::done:
      VERBSPP_TRYV(opened());
      awaited_ = awaited::nothing;
      break;
    case awaited::decision:
    case awaited::connection:
    case awaited::nothing:
      break;
  }
  input_size_ = 0;
  return success();
}

/// Returns the step that follows the hello frames, or the proofs if a secret is used. If the peer
/// chooses the connection, this is `choice`: the exchange waits for the peer's offer. Otherwise it
/// is `decision`: the exchange waits until this side calls `offer`.
exchange_core::awaited exchange_core::behind_greeting() const noexcept {
  return lets_choose_ ? awaited::choice : awaited::decision;
}

std::span<std::byte> exchange_core::body() noexcept {
  return input_.subspan(frame_header_size, input_size_ - frame_header_size);
}

/// Returns the body of the frame that has arrived, decrypted if there is a secret.
result<std::span<const std::byte>> exchange_core::opened() noexcept {
  const std::span<std::byte> all = body();
  if (!seal_) return all;
  if (all.size() < frame_seal::tag_size)
    return error::out_of_range("exchange: read a frame", "length of an encrypted frame in bytes",
                               all.size(),
                               "an encrypted frame has at least 16 bytes: the bytes are damaged, "
                               "or were changed in transit");
  const std::span<std::byte> content = all.first(all.size() - frame_seal::tag_size);
  if (!seal_->open(input_.first(frame_header_size), content, all.last<frame_seal::tag_size>()))
    return error(error_kind::permission, "exchange: decrypt a frame",
                 "the frame was changed in transit, or libcrypto failed");
  return content;
}

result<void> exchange_core::take_proof(std::span<const std::byte> body) noexcept {
  if (seal_->is_proof(body)) return success();
  return error(error_kind::permission, "exchange: check the shared secret",
               "the two ends have different secrets, or the frames were changed in transit: give "
               "both ends the same secret");
}

result<void> exchange_core::take_hello(std::span<const std::byte> body) noexcept {
  constexpr const char* comparing = "exchange: compare the programs";
  VERBSPP_TRY(hello, hello_frame::decode(body));
  if (hello.nonce == nonce_)
    return error(error_kind::mismatch, comparing,
                 "the peer echoed this side's data: this side is connected to itself, or to a "
                 "program that echoes; use the peer's host and port");
  if (hello.is_of_equals != is_of_equals_)
    return error::mismatch(comparing, "use of meet", is_of_equals_ ? "yes" : "no",
                           hello.is_of_equals ? "yes" : "no",
                           "call meet at both ends, or at neither");
  if (is_of_equals_ && hello.party == party_)
    return error(error_kind::mismatch, comparing,
                 "this side is connected to itself: use the peer's host and port");
  is_tied_ = is_tied_ && hello.is_tied;
  lets_choose_ = is_of_equals_ && hello.party > party_;
  if (hello.application != options_.application)
    return error_in_words_of(error_kind::mismatch, comparing,
                             "this application is '%.*s', but the peer's is '%.*s': give both ends "
                             "the same exchange_options::application",
                             static_cast<int>(options_.application.size()),
                             options_.application.data(),
                             static_cast<int>(hello.application.size()), hello.application.data());
  if (hello.version != options_.version)
    return error::mismatch(comparing, "version of the application", options_.version, hello.version,
                           "both ends must have the same version");
  if (hello.has_secret != static_cast<bool>(seal_))
    return error::mismatch(comparing, "shared secret", seal_ ? "required" : "none",
                           hello.has_secret ? "required" : "none",
                           "give the same secret to both ends, or to neither");
  // Without this check, a stranger could connect to this program twice, and let the two connections
  // prove the secret to each other.
  if (seal_ && !is_of_equals_ && hello.is_accepting == is_accepting())
    return error(error_kind::mismatch, comparing,
                 is_accepting()
                     ? "both ends have exchange_role::accepting: with a secret, only the end that "
                       "accepted the connection may have this role"
                     : "neither end has exchange_role::accepting: with a secret, the end that "
                       "accepted the connection must have this role");
  VERBSPP_TRYV(check_fields(theirs_, std::span(hello.fields).first(hello.field_count)));
  if (!seal_) return success();
  if (!seal_->derive(own_hello_, input_.first(input_size_)))
    return error::from_errno(EIO, "exchange: HMAC", "libcrypto could not derive the keys");
  add_frame(static_cast<std::uint8_t>(frame_type::proof), seal_->own_proof());
  return success();
}

result<void> exchange_core::take_offer(std::span<const std::byte> body) noexcept {
  field_reader in(body);
  VERBSPP_TRY(length, in.number(2));
  VERBSPP_TRY(encoded, in.bytes(length));
  VERBSPP_TRY(decoded, endpoint::decode(encoded));
  remote_ = decoded;
  offered_values_ = body.subspan(2 + length);
  return success();
}

bool exchange_core::add_hello() noexcept {
  if (!fill_nonce(nonce_)) return false;
  hello_frame hello{.nonce = nonce_,
                    .has_secret = static_cast<bool>(seal_),
                    .is_of_equals = is_of_equals_,
                    .is_accepting = is_accepting(),
                    .is_tied = is_tied_,
                    .party = party_,
                    .version = options_.version,
                    .application = options_.application,
                    .field_count = mine_.size()};
  std::ranges::copy(mine_, hello.fields.begin());
  std::array<std::byte, largest_hello> body{};
  add_frame(static_cast<std::uint8_t>(frame_type::hello),
            std::span(body).first(hello.encode(body)));
  own_hello_ = own_hello_.first(output_end_);
  std::ranges::copy(output_.first(output_end_), own_hello_.begin());
  return true;
}

void exchange_core::add_offer() noexcept {
  const auto encoded = local_.encode();
  std::array<std::byte, 2 + encoded.size()> end{};
  field_writer out(end);
  out.number(encoded.size(), 2);
  out.bytes(encoded);
  add_frame(static_cast<std::uint8_t>(frame_type::offer), end, values_);
}

/// Appends a frame to the output. There is always room, since each side sends each kind of frame at
/// most once.
void exchange_core::add_frame(std::uint8_t type, std::span<const std::byte> body,
                              std::span<const std::byte> more) noexcept {
  const auto kind = static_cast<frame_type>(type);
  const bool is_sealed =
      seal_ && (kind == frame_type::offer || kind == frame_type::ready || kind == frame_type::done);
  const std::size_t size = body.size() + more.size();
  const frame_header header{
      .type = kind,
      .length = static_cast<std::uint32_t>(size + (is_sealed ? frame_seal::tag_size : 0))};
  const std::span<std::byte> to = output_.subspan(output_end_);
  field_writer out(to);
  out.bytes(header.encode());
  out.bytes(body);
  out.bytes(more);
  if (is_sealed &&
      !seal_->seal(to.first(frame_header_size), to.subspan(frame_header_size, size),
                   to.subspan(frame_header_size + size).first<frame_seal::tag_size>())) {
    // Data that cannot be encrypted must not be sent.
    broken_output_ = EIO;
    return;
  }
  output_end_ += frame_header_size + header.length;
}

/// The error for an exchange that cannot go on: the connection has ended, the socket was never
/// connected (ENOTCONN), or a frame could not be encrypted (EIO with a secret). `errnum` is 0 if
/// the peer has closed the connection, and nothing had failed before; the error then has no errno.
error exchange_core::without_more(int errnum) const noexcept {
  const char* hint = nullptr;
  // Receiving from a Unix socket that was never connected fails with EINVAL.
  if (broken_output_ == ENOTCONN) errnum = ENOTCONN;
  if (errnum == ENOTCONN || (errnum == EIO && seal_)) {
    hint = errnum == EIO
               ? "libcrypto could not encrypt a frame, or the socket failed"
               : "the socket is not connected: connect it, or use the one that accept returned";
    return error::from_errno(errnum, "exchange", hint).as(error_kind::not_connected, hint);
  }
  switch (awaited_) {
    case awaited::hello:
      hint =
          "the connection ended before the peer's hello arrived: the peer stopped, failed or "
          "exited (see its output), it is another program, or the network failed";
      break;
    case awaited::decision:
      hint = "the connection ended before this side sent its endpoint: see the peer's output";
      break;
    case awaited::proof:
    case awaited::choice:
    case awaited::offer:
      hint =
          "the connection ended after the peer's hello had arrived, but before its endpoint: see "
          "the peer's output";
      break;
    case awaited::connection:
    case awaited::ready:
      hint =
          "the connection ended after the peer's endpoint had arrived, but before its report that "
          "it was ready: see the peer's output";
      break;
    case awaited::done:
      hint =
          "both sides were ready, but the connection ended before the peer confirmed that: the "
          "peer may have succeeded and exited at once, or failed";
      break;
    case awaited::nothing:
      hint = "the connection ended before this side had sent its last frame: see the peer's output";
      break;
  }
  return error::from_errno(errnum, "exchange").as(error_kind::not_connected, hint);
}

error exchange_core::at_limit() const noexcept {
  const char* hint = nullptr;
  switch (awaited_) {
    case awaited::hello:
      hint =
          "the peer's hello has not arrived, or only a part of it has: the peer hangs, is busy or "
          "is "
          "another program, or the network failed; see the peer's output, or allow more time";
      break;
    case awaited::decision:
      hint =
          "the peer sent its hello, but the limit was reached before this side sent its endpoint: "
          "allow more time or, at an acceptor, more handshakes at once "
          "(acceptor_options::handshakes)";
      break;
    case awaited::proof:
    case awaited::choice:
    case awaited::offer:
      hint =
          "the peer's hello has arrived, but its endpoint has not: see the peer's output, or allow "
          "more time";
      break;
    case awaited::connection:
    case awaited::ready:
      hint =
          "the peer's endpoint has arrived, but its report that it is ready has not: see the "
          "peer's output, or allow more time";
      break;
    case awaited::nothing:
      hint =
          "the peer has not received the last frame of this side: see the peer's output, or "
          "allow more time";
      break;
    case awaited::done:
      hint =
          "the peer reported that it is ready, but its last frame has not arrived: see the peer's "
          "output, or allow more time";
      break;
  }
  return limit_.failure("exchange", hint);
}

}  // namespace verbspp::detail
