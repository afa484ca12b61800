// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/group/detail/member_connector.hpp>
#include <verbspp/group/group.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/address_handle.hpp>
#include <verbspp/work/datagram.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// Connects ranks where one uses the other for the first time.
///
/// Each has one queue pair for datagrams, whose endpoint all know. Who wants a connection makes a
/// channel, and calls: sends its endpoint, again and again, until the other end has answered with
/// its own. Whoever has the other's endpoint does the handshake, and says with each datagram
/// to which endpoint it has; who knows that of the other is ready, says that as well, and goes on
/// calling for a while until the other is, too, which may not look for datagrams soon. So it does
/// not matter who begins, nor whether both do, nor which datagrams get lost or come late: there is
/// one channel at each end, what comes once more changes nothing, and what was said of an earlier
/// connection is not taken for this one. Nor is a refusal of an earlier call taken for one of this
/// call: calls are numbered, and each datagram names the last one that was heard.
///
/// What has arrived is looked at while this rank connects, waits in a step, or asks for it. That
/// may take as long as the bootstrap needs to introduce a rank that calls for the first time: a
/// moment at most, and if that did not suffice, nobody is introduced for some more.
class [[gnu::visibility("hidden")]] first_contact final : public member_connector {
 public:
  /// What it takes of the world.
  class surroundings {
   public:
    surroundings() noexcept = default;
    surroundings(const surroundings&) = delete;
    surroundings& operator=(const surroundings&) = delete;
    /// Gets to know that rank. \returns where it takes datagrams
    [[nodiscard]] virtual result<endpoint> meet(std::uint32_t rank,
                                                const wait_limit& limit) noexcept = 0;
    /// A channel that is prepared.
    [[nodiscard]] virtual result<channel> build() noexcept = 0;
    /// That rank is connected at this end.
    virtual void note_connected(std::uint32_t rank) noexcept = 0;

   protected:
    ~surroundings() = default;
  };

  first_contact(surroundings& in, std::uint32_t rank) noexcept : in_(in), rank_(rank) {}
  ~first_contact() = default;

  /// With the port and addresses of those settings.
  [[nodiscard]] result<void> open(const protection_domain& domain, const queue_pair_settings& like,
                                  std::uint32_t size) noexcept;
  /// Where this rank takes datagrams. \pre it is open
  [[nodiscard]] struct endpoint endpoint() const noexcept { return queue_pair_->endpoint(); }
  /// To itself a rank needs no datagram.
  [[nodiscard]] result<void> connect_self(group& members) noexcept;

  [[nodiscard]] bool is_due(const group& members, std::uint32_t peer) const noexcept override {
    if (peer >= size_) return false;
    const progress stage = contacts_.get()[peer].stage;
    return stage == progress::none ? is_vacant(members, peer) : stage < progress::ready;
  }
  [[nodiscard]] group_results connect(group& members, const peer_list& peers,
                                      const wait_limit& limit) noexcept override;
  void serve(group& members) noexcept override;

  /// Whether nothing has been done for a connection to that rank yet.
  [[nodiscard]] bool is_untouched(const group& members, std::uint32_t peer) const noexcept {
    return contacts_.get()[peer].stage == progress::none && is_vacant(members, peer);
  }
  /// Makes a channel to that rank, if there is none, or a new one.
  [[nodiscard]] result<struct endpoint> renew(group& members, std::uint32_t peer,
                                              const wait_limit& limit) noexcept;
  /// The channel was connected to that endpoint by other means.
  void settle(std::uint32_t peer, const struct endpoint& remote) noexcept;

 private:
  enum class progress : std::uint8_t {
    none,
    made,       ///< there is a channel, which is prepared
    connected,  ///< it is connected at this end
    ready,      ///< and at the other, or it has failed, which it tells itself
  };
  /// Which of a channel's connections an endpoint is for.
  struct mark {
    std::uint32_t owner = 0;
    std::uint32_t generation = 0;
    friend bool operator==(const mark&, const mark&) = default;
  };
  struct contact {
    progress stage = progress::none;
    bool is_other_ready = false;   ///< it has said so
    int trouble = 0;               ///< the errno of what failed here, for the other end
    std::optional<int> refusal{};  ///< the other end can't: its errno
    std::uint32_t call = 0;        ///< the number of this end's last call
    std::uint32_t heard_call = 0;  ///< the number of the other end's last call
    mark connected_to{};
    mark heard{};  ///< which connection the other end has spoken of last
    queue_pair_number number{};
    queue_key key{};
    std::optional<address_handle> way{};
  };

  /// Those whom one `connect` is for, and how far it has come with them.
  struct calls {
    std::span<peer_result> results;
    std::span<bool> is_open;  ///< which of them are called still
    std::size_t said;         ///< how many have had their turn in this round of calls
  };
  struct what_is_left {
    bool is_any_due = false;
    bool is_any_open = false;
  };
  /// Makes channels to those that are due: they are to be called.
  void prepare(group& members, calls& those, const wait_limit& limit) noexcept;
  /// Calls those whose turn it is in this round, and are due or don't know that this end is
  /// connected.
  what_is_left call(group& members, calls& those, const wait_limit& limit, bool is_late) noexcept;
  /// Why there is nothing more to wait for, with one that is due; empty if there is.
  [[nodiscard]] std::optional<error> failure_of(const contact& due, const wait_limit& limit,
                                                bool is_late) const noexcept;

  [[nodiscard]] static bool is_vacant(const group& members, std::uint32_t peer) noexcept {
    return members[peer].state() == channel_state::empty;
  }
  [[nodiscard]] static mark mark_of(const struct endpoint& of) noexcept {
    return {of.owner, of.generation};
  }
  [[nodiscard]] result<void> make(group& members, std::uint32_t peer,
                                  const wait_limit& limit) noexcept;
  /// The same for one that calls.
  [[nodiscard]] result<void> answer(group& members, std::uint32_t peer) noexcept;
  void take(group& members, queue_pair_number source, std::span<const std::byte> datagram) noexcept;
  /// Does what the other end's endpoint allows.
  void go_on(group& members, std::uint32_t peer, const struct endpoint& remote) noexcept;
  /// Why this end can't be connected to that of the peer: an errno; empty if it can.
  [[nodiscard]] std::optional<int> refusal_for(const group& members,
                                               std::uint32_t peer) const noexcept;
  /// \returns false if there is no place to send from
  bool say(group& members, std::uint32_t to, bool wants_answer) noexcept;
  void expect(std::uint32_t place) noexcept;
  /// Datagrams neither come nor go any more.
  void note_trouble(const error& cause) noexcept;

  surroundings& in_;
  std::uint32_t rank_;
  std::uint32_t size_ = 0;
  std::uint32_t unsent_ = 0;  ///< a bit for each place from which nothing is being sent
  std::chrono::steady_clock::time_point introduces_from_{};
  std::optional<error> trouble_{};  ///< of the queue pair for datagrams
  owned<contact[]> contacts_{};
  std::optional<registered_buffer<access::local_write>> memory_{};
  std::optional<completion_queue> queue_{};
  std::optional<connected_queue_pair<transport::ud>> queue_pair_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
