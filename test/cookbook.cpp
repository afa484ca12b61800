// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs the functions of the guide's cookbook on a device, and checks their effects.
///
///     cookbook [DEVICE]

// NOLINTNEXTLINE(bugprone-suspicious-include): this source belongs to the guide
#include "../docs/guide/code/cookbook.cpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace guide;

constexpr auto patience = 30s;
constexpr access_flags everything =
    access::local_write | access::remote_read | access::remote_write | access::remote_atomic;

result<void> require(bool holds, const char* what) {
  if (holds) return success();
  return error(error_kind::driver, "cookbook", what);
}

/// Two channels in the same process that are connected to each other.
struct ends {
  channel left;
  channel right;
};

auto build(const protection_domain& domain) {
  return domain.build_channel().max_inline_data(64).access(everything).waiting(wait_mode::sleep());
}

result<ends> connect(prepared_channel left, prepared_channel right) {
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  VERBSPP_TRY(connected_left, std::move(left).handshake(right_end));
  VERBSPP_TRY(connected_right, std::move(right).handshake(left_end));
  return ends{std::move(connected_left), std::move(connected_right)};
}
result<ends> connect(const protection_domain& domain) {
  VERBSPP_TRY(left, build(domain).build());
  VERBSPP_TRY(right, build(domain).build());
  return connect(std::move(left), std::move(right));
}

/// Sends a file to a thread that receives it.
transport_result<void> whole_files(const protection_domain& domain, const std::string& content) {
  int pipe[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe) != 0)
    return error::from_errno(errno, "socketpair");
  const tcp_socket mine = tcp_socket::from_native(pipe[0]);
  const tcp_socket theirs = tcp_socket::from_native(pipe[1]);
  transport_result<void> outcome = success();
  std::thread receiver([&] {
    outcome = [&]() -> transport_result<void> {
      VERBSPP_TRY(window, receive_file(theirs.descriptor(), domain, content.size() + 10));
      const auto written = std::as_bytes(std::span(content));
      VERBSPP_TRYV(require(std::equal(written.begin(), written.end(), window.begin()),
                           "the received file differs from its source"));
      return success();
    }();
  });
  const auto sent = [&]() -> transport_result<void> {
    VERBSPP_TRY(prepared, domain.build_channel().max_inline_data(8).build());
    using window = remote_memory<access::remote_write>;
    VERBSPP_TRY(met, exchange<window>(mine.descriptor(), std::move(prepared), patience));
    std::istringstream file(content);
    VERBSPP_TRY(length, send_file(met.channel, file, domain, met.theirs));
    return require(length == content.size(), "send_file returned a wrong length");
  }();
  receiver.join();
  VERBSPP_TRYV(sent);
  return outcome;
}

transport_result<void> files(const protection_domain& domain) {
  VERBSPP_TRY(two, connect(domain));
  std::string content(10 * (1U << 20) + 5, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i / 4096 + i);
  VERBSPP_TRY(window, (registered_buffer<everything, char>::allocate(domain, content.size())));
  VERBSPP_TRY(memory, window.remote());
  VERBSPP_TRYV(whole_files(domain, content));
  std::istringstream broken(content);
  broken.setstate(std::ios::badbit);
  VERBSPP_TRYV(require(send_file(two.left, broken, domain, memory).has_error(),
                       "send_file took a failed read for the end of the file"));

  VERBSPP_TRY(source, registered_buffer<>::allocate(domain, 65536));
  std::ranges::fill(source, std::byte{7});
  VERBSPP_TRYV(write_many(two.left, source, memory));
  VERBSPP_TRYV(require(std::ranges::count(window, 7) >= 65536, "some of the writes are missing"));
  VERBSPP_TRY(record, source.gather(0, 64));
  VERBSPP_TRY(to_record, memory.slice(0, 64));
  VERBSPP_TRY(to_header, memory.slice(1 << 20, 64));
  VERBSPP_TRYV(write_record(two.left, record, to_record, record, to_header));
  VERBSPP_TRYV(require(window[(1 << 20) + 63] == 7, "the batch has not written the header"));
  return success();
}

transport_result<void> tables(const protection_domain& domain) {
  VERBSPP_TRY(two, connect(domain));
  VERBSPP_TRY(table, (registered_buffer<everything, row>::allocate(domain, 8)));
  for (std::uint64_t i = 0; i < table.size(); ++i) {
    table[i] = {.version = 2 * i, .content = {i, i + 1, i + 2}, .checksum = 0};
    table[i].checksum = checksum_of(table[i]);
  }
  VERBSPP_TRY(memory, table.remote());
  VERBSPP_TRY(rows, remote_table::of(memory));
  VERBSPP_TRY(copy, row_buffer::allocate(domain, 1));
  VERBSPP_TRY(seen, read_row(two.left, rows, 5, copy));
  VERBSPP_TRYV(require(seen.content[0] == 5, "the row has wrong content"));
  VERBSPP_TRY(version, read_version(two.left, rows, 6, copy));
  VERBSPP_TRYV(require(version == 12, "the field has a wrong value"));

  VERBSPP_TRY(counter, (registered_buffer<everything, std::uint64_t>::allocate(domain, 1)));
  VERBSPP_TRY(remote, counter.remote());
  VERBSPP_TRY(before, (registered_buffer<access::local_write, std::uint64_t>::allocate(domain, 1)));
  for (std::uint64_t expected = 0; expected < 3; ++expected) {
    VERBSPP_TRY(ticket, take_ticket(two.left, remote, before));
    VERBSPP_TRYV(require(ticket == expected, "the ticket has a wrong number"));
  }
  VERBSPP_TRYV(prepare_owner(domain));
  // A word can also be a field of a remote structure.
  using counted_rows = remote_array<row, everything & access::all_remote>;
  VERBSPP_TRY(all, table.remote());
  VERBSPP_TRY(atomic_rows, counted_rows::of(all));
  VERBSPP_TRY(second, atomic_rows.element(1));
  VERBSPP_TRY(word, remote_word::at(second.field(&row::version)));
  VERBSPP_TRY(into, before.scatter(0, 1));
  VERBSPP_TRYV(two.left.fetch_and_add({.result = into, .remote = word, .addend = UINT64_MAX}));
  return require(before[0] == 2 && table[1].version == 1, "a field was not changed as a word");
}

/// Sends requests whose memory is owned, shared or borrowed. The messages arrive in an inbox.
transport_result<void> owners(const protection_domain& domain) {
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(left, build(domain).build());
  VERBSPP_TRY(right, build(domain).build());
  VERBSPP_TRY(messages, inbox::open(right, pool));
  VERBSPP_TRY(two, connect(std::move(left), std::move(right)));
  const auto expect = [&](std::string_view text) -> result<void> {
    VERBSPP_TRY(message, messages.wait(patience));
    return require(
        std::ranges::equal(message.bytes().first(text.size()), std::as_bytes(std::span(text))),
        "a message has a wrong text");
  };
  const auto fill = [](auto& buffer, std::string_view text) {
    std::ranges::copy(std::as_bytes(std::span(text)), buffer.begin());
  };

  VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, 256));
  fill(buffer, "owned");
  VERBSPP_TRYV(send_owned(two.left, buffer));
  VERBSPP_TRYV(require(buffer.size() == 256, "the returned buffer has a wrong size"));
  VERBSPP_TRYV(expect("owned"));
  fill(buffer, "borrowed");
  VERBSPP_TRYV(send_borrowed(two.left, buffer));
  VERBSPP_TRYV(expect("borrowed"));
  VERBSPP_TRYV(wait_in_several_ways(two.left, buffer, std::stop_token()));
  for (int i = 0; i < 6; ++i) VERBSPP_TRYV(expect("borrowed"));
  VERBSPP_TRYV(send_message(two.left, pool, "of a pool"));
  VERBSPP_TRYV(expect("of a pool"));
  VERBSPP_TRYV(send_inline(two.left, "inline"));
  VERBSPP_TRYV(expect("inline"));
  std::vector<std::byte> own(64, std::byte{'x'});
  VERBSPP_TRYV(send_own_memory(two.left, domain, own));
  VERBSPP_TRYV(expect("xxxx"));
  fill(buffer, "shared");
  VERBSPP_TRYV(send_shared({&two.left, 1}, std::move(buffer)));
  VERBSPP_TRYV(expect("shared"));
  return success();
}

transport_result<void> leases(const protection_domain& domain) {
  VERBSPP_TRY(two, connect(domain));
  VERBSPP_TRY(buffer, registered_buffer<lendable>::allocate(domain, 64));
  using lent_memory = remote_memory<access::remote_write>;
  VERBSPP_TRY(note, registered_buffer<>::allocate(domain, lent_memory::encoded_size));
  VERBSPP_TRY(offer, two.right.post_receive(std::move(note)));
  transport_result<void> borrowed = success();
  std::thread borrower([&] {
    borrowed = [&]() -> transport_result<void> {
      auto [received, bytes] = offer.wait(patience);
      VERBSPP_TRYV(received);
      VERBSPP_TRY(memory,
                  lent_memory::decode(std::as_bytes(std::span(bytes.data(), bytes.size()))));
      VERBSPP_TRYV(
          two.right.write({.elements = inline_payload("lent"), .remote = memory}, patience));
      VERBSPP_TRYV(two.right.send({}, patience));
      return success();
    }();
  });
  auto lent = lend(two.left, std::move(buffer));
  borrower.join();
  VERBSPP_TRYV(borrowed);
  VERBSPP_TRY(returned, std::move(lent));
  VERBSPP_TRYV(require(returned[0] == std::byte{'l'}, "the borrower's write is missing"));
  return success();
}

transport_result<void> loops(const protection_domain& domain) {
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(left, build(domain).build());
  VERBSPP_TRY(right, prepare_to_sleep(domain));
  VERBSPP_TRY(messages, inbox::open(right, pool));
  VERBSPP_TRY(two, connect(std::move(left), std::move(right)));
  int pipe[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe) != 0)
    return error::from_errno(errno, "socketpair");
  transport_result<void> looped = success();
  std::thread loop([&] { looped = run_loop(messages, pipe[0]); });
  const auto sent = send_inline(two.left, "to the loop");
  ::close(pipe[1]);
  loop.join();
  ::close(pipe[0]);
  VERBSPP_TRYV(sent);
  return looped;
}

/// Sends on a channel that was closed beforehand; the peer waits for the new connection.
transport_result<void> failures(const protection_domain& domain) {
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  transport_result<void> answered = success();
  std::thread peer([&] {
    answered = [&]() -> transport_result<void> {
      VERBSPP_TRY(socket, listener.accept(patience));
      VERBSPP_TRY(prepared, build(domain).build());
      VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, 64));
      VERBSPP_TRY(arriving, prepared.post_receive(std::move(buffer)));
      VERBSPP_TRY(met, exchange(socket.descriptor(), std::move(prepared), patience));
      auto [received, memory] = arriving.wait(patience);
      VERBSPP_TRYV(received);
      VERBSPP_TRYV(met.channel.wait(patience));
      return success();
    }();
  });
  const auto sent = [&]() -> transport_result<void> {
    VERBSPP_TRY(two, connect(domain));
    VERBSPP_TRYV(two.left.close());
    VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, 64));
    return send_with_retries(two.left, buffer,
                             [&] { return tcp_socket::connect("127.0.0.1", port, patience); });
  }();
  peer.join();
  VERBSPP_TRYV(sent);
  return answered;
}

/// Runs an exchange with a secret, allocates a large buffer, and prints objects.
transport_result<void> others(const protection_domain& domain) {
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  constexpr std::array<std::byte, 32> secret{};
  VERBSPP_TRY(connecting,
              tcp_socket::connect("127.0.0.1", std::to_string(listener.port()), patience));
  VERBSPP_TRY(accepted, listener.accept(patience));
  VERBSPP_TRY(left, build(domain).build());
  VERBSPP_TRY(right, build(domain).build());
  using outcome = decltype(accept_with_secret(accepted, std::move(left), secret));
  std::optional<outcome> met;
  std::thread server([&] { met.emplace(accept_with_secret(accepted, std::move(left), secret)); });
  const auto connected = exchange(connecting.descriptor(), std::move(right), patience,
                                  {.application = "my service", .version = 1, .secret = secret});
  server.join();
  if (!met->has_value() && met->error() == error_kind::not_supported) return success();
  VERBSPP_TRYV(*met);
  VERBSPP_TRYV(connected);
  VERBSPP_TRY(large, allocate_large(domain, 4 << 20));
  VERBSPP_TRYV(require(large.size() == 4 << 20, "the large buffer has a wrong size"));
  show(met->value().channel, domain.context());
  set_destroy_failure_handler(nullptr);
  return success();
}

/// Sends a structure inline, and copies it out of the received message. A message of a different
/// size is an error.
transport_result<void> structures(const protection_domain& domain) {
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(two, connect(domain));
  VERBSPP_TRY(messages, inbox::open(two.right, pool));
  VERBSPP_TRYV(send_order(two.left, {.number = 7, .price = 2.5}));
  VERBSPP_TRY(received, receive_order(messages));
  VERBSPP_TRYV(
      require(received.number == 7 && received.price == 2.5, "the order has wrong values"));
  VERBSPP_TRYV(send_message(two.left, pool, "no order"));
  return require(receive_order(messages).error() == error_kind::mismatch,
                 "a message of 8 bytes was accepted as an order");
}

/// Sends a message to a thread that has its own channel, and receives the answer.
transport_result<void> threads(const protection_domain& domain) {
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(two, connect(domain));
  VERBSPP_TRY(answers, inbox::open(two.left, pool));
  std::jthread server([&, peer = std::move(two.right)](const std::stop_token& stop) mutable {
    serve_alone(std::move(peer), pool, stop);
  });
  VERBSPP_TRYV(send_message(two.left, pool, "a question"));
  VERBSPP_TRY(answer, answers.wait(patience));
  return require(answer.size() == 10, "the answer has a wrong size");
}

/// Ends a wait when the process receives a signal.
transport_result<void> stop_at_a_signal(const protection_domain& domain,
                                        const std::stop_token& stop) {
  VERBSPP_TRY(pool, message_pool::create(domain, 64, 256));
  VERBSPP_TRY(two, connect(domain));
  VERBSPP_TRY(messages, inbox::open(two.right, pool));
  ::kill(::getpid(), SIGTERM);
  return require(messages.wait(wait_limit(patience, stop)).error() == error_kind::cancelled,
                 "the signal did not end the wait");
}

transport_result<void> run(std::string_view device_name) {
  const std::stop_token stop = stopped_by_signals();
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRYV(prepare_with_limits(domain));
  for (const auto each :
       {files, tables, owners, leases, loops, failures, structures, threads, others})
    VERBSPP_TRYV(each(domain));
  VERBSPP_TRYV(stop_at_a_signal(domain, stop));
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
