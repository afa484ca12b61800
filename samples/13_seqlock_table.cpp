// SPDX-License-Identifier: Apache-2.0
/// \file
/// A table that clients read by RDMA reads while the server changes it. Clients send messages to
/// request changes. A sequence lock detects whether the row that was read is consistent.
///
/// The lock assumes only that each byte that a read returns was in memory at some time during the
/// read. The bytes of one RDMA read are fetched in no guaranteed order: a device may fetch the end
/// of a row before its beginning, and so return a "version after" that is older than the "version
/// before". A version in every cache line would help only if each line were fetched atomically.
/// Processors and PCIe devices usually do that, but the verbs don't guarantee it, and software
/// devices don't do it. So this table has a checksum in place of the "version after". It covers the
/// "version before" and the content, so a row that is torn in any way fails the check, except with
/// a probability of about 2^-64.
///
///     13_seqlock_table [DEVICE [MICROSECONDS]]
///
/// Between requests, the server changes the first row, and pauses for MICROSECONDS in the middle of
/// each of these changes, so that clients do read in the middle of a change.

#include <verbspp/channel.hpp>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;

constexpr std::size_t clients = 3, rows = 4, words = 510;
constexpr int turns = 2000, turns_per_change = 4;
/// The time after which a client gives up if each of its reads was in the middle of a change. It is
/// long because the operating system may not schedule the writer for a while.
constexpr auto longest_change = std::chrono::seconds(10);
constexpr std::uint32_t longest_pause = 1000;
constexpr access_flags shown = access::local_write | access::remote_read;

struct row {
  std::uint64_t version;  // odd while the server changes the row
  std::uint64_t content[words];
  std::uint64_t checksum;
};
using table_memory = remote_array<row, access::remote_read>;

/// A client's request: fill a row with numbers that count up from `first`.
struct change {
  std::uint64_t row;
  std::uint64_t first;
};

std::uint64_t checksum_of(std::uint64_t version, std::span<const std::uint64_t> content) {
  std::uint64_t sum = version;
  for (const std::uint64_t word : content) {
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;
    sum ^= sum >> 29;
  }
  return sum;
}

/// Stores a word atomically, after all earlier stores: the device may read it at any time.
void store(std::uint64_t& to, std::uint64_t value) {
  std::atomic_ref(to).store(value, std::memory_order_release);
}

/// Changes a row. Only one thread at a time may call this.
/// \param pause the time to wait in the middle of the change \returns the new version
std::uint64_t change_row(row& changed, std::uint64_t first, std::chrono::microseconds pause = {}) {
  const std::uint64_t version = changed.version + 2;
  store(changed.version, version - 1);
  for (std::uint64_t& word : changed.content) {
    if (&word == &changed.content[words / 2] && pause.count() != 0)
      std::this_thread::sleep_for(pause);
    store(word, first++);
  }
  store(changed.checksum, checksum_of(version, changed.content));
  store(changed.version, version);
  return version;
}

/// Returns the row if it is consistent, and nothing if it was read in the middle of a change.
std::optional<row> check(const row& seen) {
  if (seen.version % 2 != 0 || seen.checksum != checksum_of(seen.version, seen.content))
    return std::nullopt;
  return seen;
}

class client {
 public:
  client(channel&& server, const table_memory& table,
         registered_buffer<access::local_write, row> seen)
      : server_(std::move(server)), table_(table), seen_(std::move(seen)) {}

  transport_result<void> run(std::uint64_t number) {
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      const std::uint64_t which = (turn * 7 + number) % rows;
      if (turn % turns_per_change == 0) {
        VERBSPP_TRY(version, ask(which, turn << 32 | number << 24));
        last_[which] = version;
      }
      VERBSPP_TRY(found, read(which));
      VERBSPP_TRYV(verify(found, which));
    }
    return success();
  }
  [[nodiscard]] std::uint64_t retries() const noexcept { return retries_; }

 private:
  /// Reads until the row is consistent. Begins no further read after `longest_change`.
  transport_result<row> read(std::uint64_t which) {
    VERBSPP_TRY(remote, table_.element(which));
    VERBSPP_TRY(into, seen_.scatter());
    const wait_limit patience(longest_change);
    for (; !patience.has_passed(); ++retries_) {
      VERBSPP_TRYV(server_.read({.elements = into, .remote = remote}));
      if (const auto whole = check(seen_[0])) return *whole;
    }
    return error(error_kind::busy, "read a row", "each read was in the middle of a change");
  }

  /// Requests a change of a row. \returns the row's new version
  transport_result<std::uint64_t> ask(std::uint64_t which, std::uint64_t first) {
    const change wanted{.row = which, .first = first};
    VERBSPP_TRY(answer, server_.post_receive({}));
    VERBSPP_TRYV(server_.send({.elements = inline_payload(wanted)}));
    VERBSPP_TRY(told, answer.wait());
    return told.immediate().value_or(immediate_data(0)).value();
  }

  /// Checks the guarantees of the lock independently: the numbers of a row count up, versions never
  /// decrease, and a change is visible once it has been answered.
  result<void> verify(const row& found, std::uint64_t which) {
    for (std::size_t i = 0; i < words; ++i)
      if (found.content[i] != found.content[0] + i)
        return error(error_kind::driver, "verify a row", "it is torn, but passed the check");
    if (found.version < last_[which])
      return error(error_kind::driver, "verify a row",
                   "it is older than a version that the client already knew");
    last_[which] = found.version;
    return success();
  }

  channel server_;
  table_memory table_;
  registered_buffer<access::local_write, row> seen_;
  std::array<std::uint64_t, rows> last_{};
  std::uint64_t retries_ = 0;
};

/// The server's end of the connection to a client.
struct connection {
  channel peer;
  inbox requests;
};

/// Changes rows when clients request it, until a stop is requested. Between requests, changes the
/// first row, with a pause in the middle of each change.
transport_result<void> serve(std::vector<connection>& connections, std::span<row> table,
                             std::chrono::microseconds pause, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (connection& client : connections) {
      auto next = client.requests.poll();
      if (!next) continue;
      VERBSPP_TRY(request, *std::move(next));
      change wanted{};
      if (request.size() == sizeof wanted)
        std::memcpy(&wanted, request.bytes().data(), sizeof wanted);
      if (request.size() != sizeof wanted || wanted.row >= table.size())
        return error(error_kind::invalid_input, "change a row",
                     "the request has the wrong size, or there is no such row");
      const std::uint64_t version = change_row(table[wanted.row], wanted.first);
      VERBSPP_TRYV(
          client.peer.send({.immediate = immediate_data(static_cast<std::uint32_t>(version))}));
    }
    change_row(table[0], table[0].content[0] + 1, pause);
    std::this_thread::yield();
  }
  return success();
}

transport_result<void> run(std::string_view device_name, std::chrono::microseconds pause) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(table, registered_buffer<shown, row>::allocate(domain, rows));
  VERBSPP_TRY(memory, table.remote());
  VERBSPP_TRY(remote_table, table_memory::of(memory));
  VERBSPP_TRY(requests, message_pool::create(domain, clients * 4, sizeof(change)));
  for (row& each : table) change_row(each, 0);

  // One channel for each client. Here all clients are threads of this process; 09_channel connects
  // two processes.
  std::vector<connection> connections;
  std::vector<client> readers;
  const auto builder =
      domain.build_channel().max_inline_data(sizeof(change)).default_limit(std::chrono::seconds(5));
  for (std::size_t i = 0; i < clients; ++i) {
    VERBSPP_TRY(near, builder.build());
    VERBSPP_TRY(far, builder.build());
    VERBSPP_TRY(from_client, inbox::open(near, requests, {.depth = 4}));
    const endpoint near_end = near.endpoint();
    const endpoint far_end = far.endpoint();
    VERBSPP_TRY(to_client, std::move(near).handshake(far_end));
    VERBSPP_TRY(to_server, std::move(far).handshake(near_end));
    VERBSPP_TRY(seen, (registered_buffer<access::local_write, row>::allocate(domain, 1)));
    connections.push_back({.peer = std::move(to_client), .requests = std::move(from_client)});
    readers.emplace_back(std::move(to_server), remote_table, std::move(seen));
  }

  std::vector<transport_result<void>> outcomes(clients + 1, success());
  {
    std::jthread server([&](const std::stop_token& stop) {
      outcomes[clients] = serve(connections, {table.data(), table.size()}, pause, stop);
    });
    std::vector<std::jthread> threads;
    threads.reserve(clients);
    for (std::size_t i = 0; i < clients; ++i)
      threads.emplace_back([&, i] { outcomes[i] = readers[i].run(i); });
  }
  std::uint64_t retries = 0;
  for (const auto& each : outcomes) VERBSPP_TRYV(each);
  for (const client& each : readers) retries += each.retries();
  std::cout << clients * turns << " rows were read by " << clients
            << " clients, none of them torn; reads repeated because of a change: " << retries
            << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint32_t pause = 0;
  const std::string_view number = argc > 2 ? argv[2] : "50";
  const char* const end = number.data() + number.size();
  const auto [stopped, failed] = std::from_chars(number.data(), end, pause);
  if (argc > 3 || failed != std::errc() || stopped != end || pause > longest_pause) {
    std::cerr << "usage: 13_seqlock_table [DEVICE [MICROSECONDS]], with 0 to " << longest_pause
              << " microseconds\n";
    return 2;
  }
  const auto outcome = run(argc > 1 ? argv[1] : "soft0", std::chrono::microseconds(pause));
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
