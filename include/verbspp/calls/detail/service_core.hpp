// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/calling_client.hpp>
#include <verbspp/calls/detail/open_call.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/channel/hub_clients.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace verbspp::detail {

/// A method of a service with its handler.
class method_handler {
 public:
  explicit method_handler(const method_description& method) noexcept : method_(&method) {}
  method_handler(const method_handler&) = delete;
  method_handler& operator=(const method_handler&) = delete;
  virtual ~method_handler();

  [[nodiscard]] const method_description& method() const noexcept { return *method_; }
  virtual void take(open_call&& call) const = 0;

 private:
  const method_description* method_;
};

/// An entry in the table of clients. Destroying it records that the client has left.
class client_entry {
 public:
  client_entry() noexcept = default;
  explicit client_entry(reference<calling_client>&& of) noexcept : client_(std::move(of)) {}
  client_entry(client_entry&&) noexcept = default;
  client_entry& operator=(client_entry&&) = delete;
  ~client_entry() {
    if (client_) client_->leave();
  }
  [[nodiscard]] const reference<calling_client>& operator*() const noexcept { return client_; }

 private:
  reference<calling_client> client_{};
};

/// The state of a service, independent of the types of its methods. Thread-safe.
class service_core {
 public:
  using turn = hub_clients<client_entry>::turn;

  [[nodiscard]] static result<owned<service_core>> create(
      const protection_domain& domain, const service_options& options,
      std::vector<owned<method_handler>> handlers) noexcept;
  service_core(message_pool pool, hub_clients<client_entry> clients, const service_options& options,
               std::vector<owned<method_handler>> handlers) noexcept;
  service_core(const service_core&) = delete;
  service_core& operator=(const service_core&) = delete;
  ~service_core() = default;

  result<channel_id> add(channel&& link) noexcept;
  void remove(channel_id client) noexcept;
  [[nodiscard]] result<void> drain(const wait_limit& until);
  [[nodiscard]] result<void> serve(const wait_limit& until);
  [[nodiscard]] result<void> poll();
  [[nodiscard]] hub_clients<client_entry>& clients() noexcept { return clients_; }
  [[nodiscard]] service_statistics statistics() const noexcept;
  [[nodiscard]] service_statistics statistics(std::uint16_t method) const noexcept;
  /// The counters of a method; for unknown methods, the common counters.
  [[nodiscard]] service_statistics& counters_of(std::uint16_t method) noexcept {
    return entry_of(method).counted;
  }

 private:
  struct method_entry {
    std::uint16_t number = 0;
    const method_handler* handler = nullptr;
    service_statistics counted{};
  };

  /// \returns true if the client needs another turn immediately, because of awaited accesses
  [[nodiscard]] bool serve(turn client) { return execute(client); }
  /// Like `serve`, but does not end the turn, unless it removes the client.
  [[nodiscard]] bool execute(turn& client);
  /// True if `remove` was called for the client.
  [[nodiscard]] bool is_unwanted(channel_id client) const noexcept {
    return __atomic_load_n(&unwanted_.get()[client.index], __ATOMIC_RELAXED) == client.generation;
  }
  /// \returns false if the client has violated the protocol
  [[nodiscard]] bool take(const reference<calling_client>& client, channel& link,
                          channel_core& core, message&& arrived);
  /// Passes a call to its handler, answers a message of the library itself, or refuses the call.
  void dispatch(open_call& call, call_frame_kind kind, std::uint16_t method,
                const method_entry& entry, calling_client& client, channel& link);
  /// The entry of the method. For a method without a handler, this is the entry for all other
  /// messages.
  [[nodiscard]] VERBSPP_DATA_PATH method_entry& entry_of(std::uint16_t method) const noexcept {
    // A binary search, written out because it is on the data path: for one method,
    // std::ranges::lower_bound takes three times as many instructions.
    method_entry* first = methods_.get();
    for (std::size_t count = method_count_; count > 1;) {
      const std::size_t half = count / 2;
      if (first[half].number <= method) first += half;
      count -= half;
    }
    return first->number == method ? *first : other_messages();
  }
  [[nodiscard]] method_entry& other_messages() const noexcept {
    return methods_.get()[method_count_];
  }
  void compare(open_call& call, calling_client& client) const noexcept;
  void connect_lane(open_call& call, calling_client& client, channel& link) noexcept;
  /// Adds to the call the memory that it lends. \returns false if this failed, for instance because
  /// the description of the memory is malformed; the call is then refused
  [[nodiscard]] bool take_loan(open_call& call, calling_client& client,
                               const method_description& of) const noexcept;

  message_pool pool_;
  std::vector<owned<method_handler>> handlers_;
  service_options options_;
  std::size_t method_count_;
  /// One entry for each method, in the order of the methods' numbers. The last entry, which has no
  /// handler, is for all other messages.
  owned<method_entry[]> methods_;
  /// For each index of a client, the generation of the last client that `remove` was called for.
  owned<std::uint32_t[]> unwanted_;
  bool is_draining_ = false;           ///< new calls are refused
  hub_clients<client_entry> clients_;  ///< destroyed first, with the channels
};

}  // namespace verbspp::detail
