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

/// Connects two ranks when one of them uses the other for the first time.
///
/// Each rank has one queue pair for datagrams, whose endpoint the other ranks get from the
/// bootstrap. A rank that wants a connection creates a channel, and calls: it repeatedly sends its
/// endpoint, and the other end answers with its own. An end that has the other's endpoint performs
/// the handshake, and its datagrams then name the endpoint to which it is connected. An end is
/// ready when it knows that the other end is connected to it, and its datagrams then report that as
/// well. A ready end continues to call for up to 100 ms until the other end is ready as well,
/// because the other end may poll for datagrams only later. All of these datagrams may be lost, and
/// the ready end might not answer later ones. So an end that becomes ready through a datagram also
/// writes to the other end's memory over the connection, which retransmits what is lost.
///
/// So it does not matter which end begins, whether both do, or which datagrams are lost or late.
/// There is one channel at each end, repeated datagrams have no effect, and datagrams of an earlier
/// connection are not mistaken for those of this one. Calls are numbered, and each datagram names
/// the last call that was received, so refusals of earlier calls can be ignored.
///
/// Datagrams are processed while this rank connects, waits in a step, polls a session or the
/// group, waits on the group, or calls `mend` or `serve`. To answer a rank that calls for the first
/// time, this rank reads the caller's introduction from the bootstrap, which takes 200 ms at most.
/// After a failure, it does not try that again for one second.
class [[gnu::visibility("hidden")]] first_contact final : public member_connector {
 public:
  /// The functions of the world that this class needs.
  class surroundings {
   public:
    surroundings() noexcept = default;
    surroundings(const surroundings&) = delete;
    surroundings& operator=(const surroundings&) = delete;
    /// Gets a rank's introduction. \returns the rank's endpoint for datagrams
    [[nodiscard]] virtual result<endpoint> meet(std::uint32_t rank,
                                                const wait_limit& limit) noexcept = 0;
    /// Creates a prepared channel.
    [[nodiscard]] virtual result<channel> build() noexcept = 0;
    /// Called when that rank is connected at this end.
    virtual void note_connected(std::uint32_t rank) noexcept = 0;
    /// Tells `rank`, with a write over the connection, that this end is connected to the endpoint
    /// of `rank`, which `mark` identifies.
    virtual void tell_connected(std::uint32_t rank, std::uint64_t mark) noexcept = 0;
    /// True if `rank` has written, with its `tell_connected`, that it is connected to this end's
    /// endpoint, which `mark` identifies.
    [[nodiscard]] virtual bool has_told_connected(std::uint32_t rank,
                                                  std::uint64_t mark) const noexcept = 0;

   protected:
    ~surroundings() = default;
  };

  first_contact(surroundings& in, std::uint32_t rank) noexcept : in_(in), rank_(rank) {}
  ~first_contact() = default;

  /// Creates the queue pair for datagrams, with the port, GID index and pkey index of the settings
  /// `like`.
  [[nodiscard]] result<void> open(const protection_domain& domain, const queue_pair_settings& like,
                                  std::uint32_t size) noexcept;
  /// The endpoint to which other ranks send their datagrams for this rank. \pre the queue pair is
  /// open
  [[nodiscard]] struct endpoint endpoint() const noexcept { return queue_pair_->endpoint(); }
  /// Connects this rank to itself, without datagrams.
  [[nodiscard]] result<void> connect_self(group& members) noexcept;

  [[nodiscard]] bool is_due(const group& members, std::uint32_t peer) const noexcept override {
    if (peer >= size_) return false;
    const progress stage = contacts_.get()[peer].stage;
    return stage == progress::none ? is_vacant(members, peer) : stage < progress::ready;
  }
  [[nodiscard]] result<connecting_peers> begin(group& members, const peer_list& peers,
                                               const wait_limit& limit) noexcept override;
  [[nodiscard]] bool advance(group& members, connecting_peers& those,
                             const wait_limit& limit) noexcept override;
  void serve(group& members) noexcept override;

  /// True if this end has no channel to that rank, and has never created one.
  [[nodiscard]] bool is_untouched(const group& members, std::uint32_t peer) const noexcept {
    return contacts_.get()[peer].stage == progress::none && is_vacant(members, peer);
  }
  /// Creates a channel to that rank if `is_untouched`; otherwise renews the channel.
  [[nodiscard]] result<struct endpoint> renew(group& members, std::uint32_t peer,
                                              const wait_limit& limit) noexcept;
  /// Notes that the channel was connected to `remote` by other means.
  void settle(std::uint32_t peer, const struct endpoint& remote) noexcept;

 private:
  enum class progress : std::uint8_t {
    none,
    made,       ///< the channel is prepared
    connected,  ///< the channel is connected at this end
    /// Either the channel is connected at both ends, or it has failed, and reports that itself.
    ready,
  };
  /// The owner and the generation in an endpoint, which identify a connection of a channel.
  struct mark {
    std::uint32_t owner = 0;
    std::uint32_t generation = 0;
    friend bool operator==(const mark&, const mark&) = default;
    [[nodiscard]] std::uint64_t encode() const noexcept {
      return std::uint64_t{owner} << 32 | generation;
    }
  };
  struct contact {
    progress stage = progress::none;
    bool is_other_ready = false;   ///< the other end has reported that it is ready
    int trouble = 0;               ///< the errno of a failure here, sent to the other end
    std::optional<int> refusal{};  ///< the errno with which the other end has refused
    std::uint32_t call = 0;        ///< the number of this end's last call
    std::uint32_t heard_call = 0;  ///< the number of the other end's last call
    mark connected_to{};
    mark heard{};  ///< the connection of the last endpoint that the other end has sent
    queue_pair_number number{};
    queue_key key{};
    std::optional<address_handle> way{};
  };

  struct what_is_left {
    bool is_any_due = false;
    bool is_any_open = false;
  };
  /// Gets ready to call those peers that are to be connected: numbers the calls, and creates the
  /// channels that are missing. Sends no datagrams.
  void prepare(group& members, connecting_peers& those, const wait_limit& limit) noexcept;
  /// Calls the remaining peers in this round: those that are to be connected, and those that have
  /// not reported yet that they are ready.
  what_is_left call(group& members, connecting_peers& those, const wait_limit& limit,
                    bool is_late) noexcept;
  /// The reason to stop waiting for a peer that is to be connected; empty if there is none.
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
  /// Creates the channel with `make` for a rank that has called this one.
  [[nodiscard]] result<void> answer(group& members, std::uint32_t peer) noexcept;
  void take(group& members, queue_pair_number source, std::span<const std::byte> datagram) noexcept;
  /// Notes that the other end is connected, if it has reported this with a write over the
  /// connection.
  void look_at_memory(const group& members, std::uint32_t peer) noexcept;
  /// Performs the handshake with the endpoint that the other end has sent.
  void go_on(group& members, std::uint32_t peer, const struct endpoint& remote) noexcept;
  /// Returns the errno with which this end refuses a connection; empty if it does not refuse.
  [[nodiscard]] std::optional<int> refusal_for(const group& members,
                                               std::uint32_t peer) const noexcept;
  /// Sends a datagram to that rank. \returns false if no send buffer is free
  bool say(group& members, std::uint32_t to, bool wants_answer) noexcept;
  void expect(std::uint32_t place) noexcept;
  /// Notes that datagrams can no longer be sent or received.
  void note_trouble(const error& cause) noexcept;

  surroundings& in_;
  std::uint32_t rank_;
  std::uint32_t size_ = 0;
  std::uint32_t unsent_ = 0;  ///< one bit for each free send buffer
  std::chrono::steady_clock::time_point introduces_from_{};
  /// The failure of the queue pair for datagrams, if it has failed.
  std::optional<error> trouble_{};
  owned<contact[]> contacts_{};
  std::optional<registered_buffer<access::local_write>> memory_{};
  std::optional<completion_queue> queue_{};
  std::optional<connected_queue_pair<transport::ud>> queue_pair_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
