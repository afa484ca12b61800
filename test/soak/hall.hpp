// SPDX-License-Identifier: Apache-2.0
/// \file
/// The variant of the soak that has a server. Clients connect to it, send requests, and then
/// disconnect or are killed.
#pragma once

#include "board.hpp"
#include "outcome.hpp"
#include "patterns.hpp"
#include "punctuality.hpp"
#include "soak.hpp"
#include <verbspp/channel.hpp>
#include <verbspp/verbspp.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace verbspp::soak {

/// The state that one client and the server share, in addition to the messages that they send each
/// other. Each client numbers its connections, starting with 1.
struct desk {
  std::atomic<std::uint64_t> asked{0};    ///< the last connection that the client has requested
  std::atomic<std::uint64_t> granted{0};  ///< the last connection that the server has built
  /// The last connection that the client or the server has ended on purpose, or is about to end.
  /// Requests on this connection may fail at both ends.
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> operations{0};
  /// The client's encoded endpoint. The client stores it before it changes `asked`.
  std::array<std::byte, endpoint::encoded_size> client{};
  std::array<std::byte, endpoint::encoded_size> server{};  ///< stored before `granted` is changed

  void give_up(std::uint64_t connection) {
    if (ended.load() < connection) ended = connection;
  }
};

/// The memory that the server and its clients share. They are either threads, or processes that map
/// this memory.
struct hall : verdict {
  std::array<desk, 8> desks{};
};

/// The header of every message. The bytes after the header are generated from it.
struct request_head {
  std::uint64_t client = 0;
  std::uint64_t connection = 0;
  std::uint64_t number = 0;

  [[nodiscard]] std::uint64_t content() const { return mix(client, connection, number); }
  /// Returns the size of the whole message. It depends on the header and on the size of the place.
  [[nodiscard]] std::size_t size(std::size_t place) const {
    const std::uint64_t chance = content();
    return sizeof(request_head) +
           (chance >> 62 == 0 ? chance : chance % 100) % (place - sizeof(request_head) + 1);
  }
  void write(std::span<std::byte> to) const {
    std::memcpy(to.data(), this, sizeof(*this));
    const auto rest = to.subspan(sizeof(*this));
    if (!rest.empty())
      std::memcpy(rest.data(), bytes_of(content(), 0, rest.size()).data(), rest.size());
  }
  /// Decodes the header of a message, and checks the bytes after it.
  [[nodiscard]] static request_head read(std::span<const std::byte> from, std::size_t place) {
    request_head found;
    if (from.size() < sizeof(found)) throw wrong("a message is shorter than its header");
    std::memcpy(&found, from.data(), sizeof(found));
    const auto rest = from.subspan(sizeof(found));
    const std::string which = "message " + std::to_string(found.number) + " of connection " +
                              std::to_string(found.connection) + " of client " +
                              std::to_string(found.client);
    if (from.size() != found.size(place)) throw wrong(which + " has a wrong length");
    if (!rest.empty() && std::memcmp(rest.data(), bytes_of(found.content(), 0, rest.size()).data(),
                                     rest.size()) != 0)
      throw wrong(which + " has wrong bytes");
    return found;
  }
};

/// The largest number of requests from one client that may be unanswered.
inline constexpr std::size_t client_window = 8;
inline constexpr std::uint32_t hall_message_size = 2048;

/// Answers messages from the places in the pool in which they arrived. Uses one to three threads.
class server {
 public:
  server(const options& wanted, hall& shared, unsigned clients);
  /// Admits clients until the soak is over. Then ends their connections, even if they are still
  /// sending.
  void run();
  [[nodiscard]] const std::map<std::string, std::uint64_t>& counts() const { return counts_; }
  [[nodiscard]] const punctuality& limits() const { return limits_; }

 private:
  /// The state of one channel of the hub. Any thread of the server may receive its messages.
  struct row {
    std::mutex lock;
    channel link;
    /// Messages that could not be answered so far because the send queue was full.
    std::deque<message> unanswered;
    unsigned client = 0;
    std::uint64_t connection = 0;
    std::uint64_t taken = 0;
  };

  void admit(unsigned client);
  void serve(const std::stop_token& stop, std::uint64_t seed);
  void take(arrival& arrived, std::mt19937_64& chance);
  void answer(row& client);
  void judge(row& client);
  /// Destroys the client's channel. \pre the row is locked
  void drop(row& client, std::mt19937_64& chance);
  void count(const std::string& what);

  const options& wanted_;
  hall& hall_;
  const unsigned clients_;
  std::mt19937_64 random_;
  punctuality limits_;
  std::mutex counting_;
  std::map<std::string, std::uint64_t> counts_;
  verbspp::context context_;
  protection_domain domain_;
  message_pool pool_;
  std::optional<channel_hub> hub_;
  std::vector<row> rows_;
  std::vector<channel_id> ids_;  ///< the last channel of each client
};

/// Sends requests, checks the answers, and disconnects.
class client {
 public:
  client(const options& wanted, hall& shared, unsigned number);
  void run(std::uint64_t first_connection);
  [[nodiscard]] const std::map<std::string, std::uint64_t>& counts() const { return counts_; }
  [[nodiscard]] const punctuality& limits() const { return limits_; }

 private:
  [[nodiscard]] std::uint64_t any(std::uint64_t below) { return random_() % below; }
  [[nodiscard]] bool once_in(std::uint64_t times) { return any(times) == 0; }
  [[nodiscard]] bool has_ended() const { return desk_.ended.load() >= connection_; }
  void claim(bool holds, const std::string& what) const;
  void fill_places();
  void check_places();
  [[nodiscard]] bool connect();
  void ask();
  void look(bool waits);
  void take(message answer);
  void let_go(std::size_t most);
  void note(const error& cause, const char* where);
  void leave();

  const options& wanted_;
  hall& hall_;
  desk& desk_;
  const unsigned number_;
  std::mt19937_64 random_;
  punctuality limits_;
  std::map<std::string, std::uint64_t> counts_;
  verbspp::context context_;
  protection_domain domain_;
  message_pool pool_;
  /// All places in the pool while there is no connection, and empty otherwise.
  std::vector<std::pair<message, place>> places_;
  channel link_;
  std::optional<inbox> answers_;
  std::uint64_t connection_ = 0;
  std::uint64_t sent_ = 0;
  std::set<std::uint64_t> unanswered_;
  std::deque<message> kept_;
};

}  // namespace verbspp::soak
