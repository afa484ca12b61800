// SPDX-License-Identifier: Apache-2.0
/// \file
/// Connects by IP address, and implements the protocol of rdma-core's rping, which can be the other
/// end. The client offers two buffers: the server reads a text from the first one, and writes it to
/// the second one. The server serves one client, then exits.
///
///     16_rping -s [-a ADDRESS] [-p PORT] [-v]                              the server
///     16_rping -c -a ADDRESS [-p PORT] [-C COUNT] [-S SIZE] [-v] [-V]      the client

#include <verbspp/cm.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

struct arguments {
  bool is_server = false;
  std::string_view address{};
  std::uint16_t port = 7174;
  unsigned count = 10;
  std::size_t size = 64;
  bool is_verbose = false;
  bool validates = false;
};

constexpr std::size_t largest = 65536;
constexpr auto patience = 30s;
constexpr access_flags shown = access::local_write | access::remote_read | access::remote_write;

/// The content of a message: 16 bytes that describe memory, in big-endian order.
using advertisement = std::array<std::byte, 16>;

void put(std::span<std::byte> to, std::uint64_t number) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[to.size() - 1 - i] = static_cast<std::byte>(number >> 8 * i);
}
std::uint64_t get(std::span<const std::byte> from) {
  std::uint64_t number = 0;
  for (const std::byte each : from) number = number << 8 | std::to_integer<std::uint64_t>(each);
  return number;
}

/// Sends and receives messages of the size of an `advertisement`, one at a time. The next receive
/// is posted before the current message is processed.
class messages {
 public:
  static result<messages> prepare(const protection_domain& domain, prepared_channel& prepared) {
    VERBSPP_TRY(in, registered_buffer<>::allocate(domain, sizeof(advertisement)));
    VERBSPP_TRY(out, registered_buffer<>::allocate(domain, sizeof(advertisement)));
    VERBSPP_TRY(into, in.scatter());
    VERBSPP_TRY(next, prepared.post_receive({.elements = into}));
    return messages(std::move(in), std::move(out), std::move(next));
  }

  template <access_flags Rights>
  transport_result<void> send(channel& over, const remote_memory<Rights>& memory) {
    const std::span bytes(out_.data(), sizeof(advertisement));
    put(bytes.first(8), memory.address());
    put(bytes.subspan(8, 4), memory.rkey().value());
    put(bytes.subspan(12, 4), memory.length());
    VERBSPP_TRY(from, out_.gather());
    VERBSPP_TRYV(over.send({.elements = from}, patience));
    return success();
  }
  /// Receives a description of the peer's memory. It is not trusted: the peer's device checks
  /// address and key.
  transport_result<remote_memory<access::remote_read | access::remote_write>> receive(
      channel& over) {
    VERBSPP_TRY(came, next_.wait(patience));
    if (came.byte_count() != sizeof(advertisement))
      return error(error_kind::mismatch, "rping", "the peer has sent a message of the wrong size");
    const std::span<const std::byte> bytes(in_.data(), sizeof(advertisement));
    const remote_memory<access::remote_read | access::remote_write> memory(
        get(bytes.first(8)), get(bytes.subspan(12, 4)),
        remote_key(static_cast<std::uint32_t>(get(bytes.subspan(8, 4)))));
    VERBSPP_TRY(into, in_.scatter());
    VERBSPP_TRY(next, over.post_receive({.elements = into}));
    next_ = std::move(next);
    return memory;
  }

 private:
  messages(registered_buffer<> in, registered_buffer<> out, pending<> next)
      : in_(std::move(in)), out_(std::move(out)), next_(std::move(next)) {}

  registered_buffer<> in_;
  registered_buffer<> out_;
  pending<> next_;
};

/// Writes the text that rping sends: "rdma-ping-" and a number, followed by a pattern.
void fill(std::span<std::byte> text, unsigned number) {
  constexpr char first = 'A';
  constexpr unsigned letters = 'z' - 'A' + 1;
  char* const characters = reinterpret_cast<char*>(text.data());
  const int length = std::snprintf(characters, text.size(), "rdma-ping-%u: ", number);
  for (std::size_t i = static_cast<std::size_t>(length), next = number; i < text.size();
       ++i, ++next)
    characters[i] = static_cast<char>(first + next % letters);
  characters[text.size() - 1] = '\0';
}

std::string_view text_of(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.substr(0, all.find('\0'));
}

/// Answers one ping of a client. \returns false if the client has left instead
transport_result<bool> answer(managed_channel& met, messages& talk, registered_buffer<shown>& data,
                              bool is_verbose) {
  const auto source = talk.receive(met.channel);
  if (!source.has_value()) {
    // If the client has disconnected, the channel ends the wait with an error, but here this is the
    // normal end.
    if (met.connection.wait_for_end(0s).has_value()) return false;
    return source.error();
  }
  if (source.value().length() > data.size())
    return error(error_kind::mismatch, "rping",
                 "the client offers more memory than the server has room for");
  const auto length = static_cast<std::size_t>(source.value().length());
  VERBSPP_TRY(into, data.scatter(0, length));
  VERBSPP_TRYV(met.channel.read({.elements = into, .remote = source.value()}, patience));
  const std::string_view text = text_of(std::span(data.data(), length));
  if (is_verbose) std::cout << "server ping data: " << text << '\n';
  VERBSPP_TRY(own, data.remote());
  VERBSPP_TRYV(talk.send(met.channel, own));

  VERBSPP_TRY(sink, talk.receive(met.channel));
  VERBSPP_TRY(from, data.gather(0, std::min(text.size() + 1, length)));
  VERBSPP_TRYV(met.channel.write({.elements = from, .remote = sink}, patience));
  VERBSPP_TRYV(talk.send(met.channel, own));
  return true;
}

transport_result<void> serve(const arguments& given) {
  cm_address address = cm_address::any(given.port);
  if (!given.address.empty()) {
    VERBSPP_TRY(one, cm_address::from(given.address, given.port));
    address = one;
  }
  VERBSPP_TRY(listener, cm_listener::open(address));
  VERBSPP_TRY(request, listener.accept(wait_limit::forever()));
  VERBSPP_TRY(context, request.context());
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(data, registered_buffer<shown>::allocate(domain, largest));
  VERBSPP_TRY(prepared, domain.build_channel().waiting(wait_mode::sleep()).build());
  VERBSPP_TRY(talk, messages::prepare(domain, prepared));
  VERBSPP_TRY(met, std::move(request).accept(std::move(prepared), patience));
  met.channel.watch(met.connection.file_descriptor());
  unsigned pings = 0;
  for (;; ++pings) {
    VERBSPP_TRY(goes_on, answer(met, talk, data, given.is_verbose));
    if (!goes_on) break;
  }
  std::cout << pings << (pings == 1 ? " ping answered\n" : " pings answered\n");
  return success();
}

transport_result<void> ping(const arguments& given) {
  VERBSPP_TRY(address, cm_address::from(given.address, given.port));
  VERBSPP_TRY(route, cm_route::resolve(address, patience));
  VERBSPP_TRY(context, route.context());
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(source, registered_buffer<shown>::allocate(domain, given.size));
  VERBSPP_TRY(sink, registered_buffer<shown>::allocate(domain, given.size));
  VERBSPP_TRY(source_memory, source.remote());
  VERBSPP_TRY(sink_memory, sink.remote());
  VERBSPP_TRY(prepared, domain.build_channel().waiting(wait_mode::sleep()).build());
  VERBSPP_TRY(talk, messages::prepare(domain, prepared));
  VERBSPP_TRY(met, std::move(route).connect(std::move(prepared), patience));
  met.channel.watch(met.connection.file_descriptor());
  for (unsigned i = 0; i < given.count; ++i) {
    fill(source, i);
    VERBSPP_TRYV(talk.send(met.channel, source_memory));
    VERBSPP_TRYV(talk.receive(met.channel));
    VERBSPP_TRYV(talk.send(met.channel, sink_memory));
    VERBSPP_TRYV(talk.receive(met.channel));
    if (given.validates && !std::ranges::equal(source, sink))
      return error(error_kind::mismatch, "rping",
                   "the data that came back differs from the source");
    if (given.is_verbose) std::cout << "ping data: " << text_of(sink) << '\n';
  }
  met.channel.watch(-1);
  VERBSPP_TRYV(met.connection.disconnect());
  std::cout << given.count << (given.count == 1 ? " ping\n" : " pings\n");
  return success();
}

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() && end == text.data() + text.size();
}

std::optional<arguments> arguments_of(std::span<char*> words) {
  arguments given;
  bool is_client = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "-s") {
      given.is_server = true;
    } else if (word == "-c") {
      is_client = true;
    } else if (word == "-v") {
      given.is_verbose = true;
    } else if (word == "-V") {
      given.validates = true;
    } else if (i + 1 == words.size()) {
      return std::nullopt;
    } else if (const std::string_view value = words[++i]; word == "-a") {
      given.address = value;
    } else if (!(word == "-p" && read(value, given.port)) &&
               !(word == "-C" && read(value, given.count)) &&
               !(word == "-S" && read(value, given.size))) {
      return std::nullopt;
    }
  }
  // The text must be long enough to contain its number.
  const bool is_in_range = given.size >= 24 && given.size <= largest;
  if (given.is_server == is_client || (is_client && given.address.empty()) || !is_in_range)
    return std::nullopt;
  return given;
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = arguments_of(std::span(argv, static_cast<std::size_t>(argc)));
  if (!given) {
    std::cerr
        << "usage: 16_rping -s [-a ADDRESS] [-p PORT] [-v]\n"
           "       16_rping -c -a ADDRESS [-p PORT] [-C COUNT] [-S SIZE, 24 to 65536] [-v] [-V]\n";
    return 2;
  }
  const auto outcome = given->is_server ? serve(*given) : ping(*given);
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
