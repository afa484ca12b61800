// SPDX-License-Identifier: Apache-2.0
#include "ranks/barrier_state.hpp"
#include "ranks/first_contact.hpp"
#include "ranks/signals.hpp"
#include "ranks/step.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/exchange/bounded_text.hpp>
#include <verbspp/ranks/world.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <new>
#include <ostream>

namespace verbspp {

namespace {

constexpr const char* joining = "join a world";
using rank_name = bounded_text<96>;

error moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this world was moved from"};
}

/// The key of a value. It consists of the value's kind, the number of the exchange or repair that
/// the value belongs to (0: joining), and the rank that reads it, or 0 for a value that every rank
/// reads.
class key {
 public:
  key(const char* what, std::uint64_t turn, std::uint32_t whose) noexcept {
    size_ = static_cast<std::size_t>(std::snprintf(text_.data(), text_.size(), "verbspp.%s.%llu.%u",
                                                   what, static_cast<unsigned long long>(turn),
                                                   static_cast<unsigned>(whose)));
  }
  operator std::string_view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 64> text_{};
  std::size_t size_;
};

[[nodiscard]] rank_name own_name() noexcept {
  std::array<char, 64> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%s, process %ld", host.data(),
                static_cast<long>(::getpid()));
  return rank_name::from(std::string_view(text.data())).value();
}

/// The introduction that each rank publishes to all others. It contains the handle to the rank's
/// memory, an endpoint (of a channel, or for the datagrams of first contact), and the rank's name.
constexpr std::size_t place_size = detail::signals::place::encoded_size;
constexpr std::size_t name_begins = place_size + endpoint::encoded_size;
using encoded_endpoint = std::array<std::byte, endpoint::encoded_size>;
using introduction = std::array<std::byte, name_begins + 96>;

// If all ranks connect when they join, each publishes one endpoint for each rank. These endpoints
// differ in only a few numbers, so each endpoint is published as its difference from the one in the
// introduction: as runs of bytes, where each run follows two bytes for its offset and one byte for
// its length.
constexpr std::size_t run_header = 3;
constexpr std::size_t longest_run = 255;
constexpr std::size_t longest_difference = 2 * endpoint::encoded_size;

std::size_t write_difference(const encoded_endpoint& from, const encoded_endpoint& to,
                             std::span<std::byte, longest_difference> into) noexcept {
  std::size_t written = 0;
  for (std::size_t at = 0; at < to.size();) {
    if (from[at] == to[at]) {
      ++at;
      continue;
    }
    // If a gap of equal bytes is shorter than another header would be, the run includes the gap.
    std::size_t end = at + 1;
    for (std::size_t next = end; next < to.size() && next - end < run_header; ++next)
      if (from[next] != to[next]) end = next + 1;
    end = std::min(end, at + longest_run);
    into[written++] = static_cast<std::byte>(at >> 8U);
    into[written++] = static_cast<std::byte>(at & 0xffU);
    into[written++] = static_cast<std::byte>(end - at);
    for (; at < end; ++at) into[written++] = to[at];
  }
  return written;
}
/// \returns true if the bytes are a valid difference between endpoints
[[nodiscard]] bool apply_difference(encoded_endpoint& to,
                                    std::span<const std::byte> difference) noexcept {
  while (difference.size() > run_header) {
    const std::size_t at = std::to_integer<std::size_t>(difference[0]) << 8U |
                           std::to_integer<std::size_t>(difference[1]);
    const auto length = std::to_integer<std::size_t>(difference[2]);
    difference = difference.subspan(run_header);
    if (length > difference.size() || at + length > to.size()) return false;
    std::ranges::copy(difference.first(length), to.begin() + static_cast<std::ptrdiff_t>(at));
    difference = difference.subspan(length);
  }
  return difference.empty();
}

/// The state of one rank's connection to another rank.
enum class connection_state : std::uint64_t { connected, broken, untouched };
struct state_of_pair {
  connection_state state;
  detail::signal_counts::encoded counts;
};

/// Adds the rank to an error.
[[nodiscard]] group_error with_rank(std::uint32_t rank, const error& cause) noexcept {
  return {rank, cause, 1};
}

}  // namespace

class [[gnu::visibility("hidden")]] world::state final
    : public detail::first_contact::surroundings {
 public:
  explicit state(any_bootstrap launched) noexcept : bootstrap(std::move(launched)) {
    rank = bootstrap.rank();
    size = bootstrap.size();
  }
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (in_progress != nullptr) in_progress->end_with_world();
  }

  /// Creates the state that every world has, however its ranks are connected.
  [[nodiscard]] result<void> open(const protection_domain& domain, wait_mode waiting) noexcept {
    names = detail::owned<rank_name[]>(new (std::nothrow) rank_name[size]);
    if (!names) return error::from_errno(ENOMEM, joining);
    return signals.open(domain, rank, size, waiting);
  }
  /// Publishes this rank's introduction, which contains the handle to its memory, an endpoint, and
  /// its name.
  [[nodiscard]] result<void> introduce(const endpoint& local) noexcept {
    VERBSPP_TRY(memory, signals.memory());
    own_endpoint = local.encode();
    const rank_name name = own_name();
    introduction told{};
    std::ranges::copy(memory.encode(), told.begin());
    std::ranges::copy(own_endpoint, told.begin() + place_size);
    std::ranges::copy(std::as_bytes(std::span(name.view())), told.begin() + name_begins);
    return bootstrap.put(key("rank", 0, 0), std::span(told).first(name_begins + name.size()));
  }
  /// Reads a rank's introduction, and stores the rank's memory handle and name.
  /// \returns the rank's encoded endpoint
  [[nodiscard]] result<encoded_endpoint> get_to_know(std::uint32_t other,
                                                     const wait_limit& limit) noexcept {
    introduction told{};
    VERBSPP_TRY(length, bootstrap.get(other, key("rank", 0, 0), told, limit));
    if (length < name_begins)
      return error(
          error_kind::invalid_input, joining,
          "the data that the bootstrap has returned for a rank is too short: run the "
          "same version of the library on all ranks; if you wrote the bootstrap, check it");
    VERBSPP_TRY(place, detail::signals::place::decode(std::span(told).first(place_size)));
    VERBSPP_TRY(mine, signals.memory());
    if (place.length() != mine.length())
      return error(error_kind::mismatch, joining,
                   "that rank runs a different version of the library, or its world has another "
                   "size: use the same version and size on all ranks");
    signals.set_memory_of(other, place);
    const std::span<const std::byte> name =
        std::span(told).subspan(name_begins, length - name_begins);
    VERBSPP_TRY(theirs, rank_name::from(std::string_view(reinterpret_cast<const char*>(name.data()),
                                                         name.size())));
    names.get()[other] = theirs;
    encoded_endpoint bytes{};
    std::ranges::copy(std::span(told).subspan(place_size, bytes.size()), bytes.begin());
    return bytes;
  }
  /// Publishes the endpoint that is meant for one rank, as the difference from the endpoint in this
  /// rank's introduction.
  [[nodiscard]] result<void> put_endpoint_for(std::uint32_t other, const endpoint& local) noexcept {
    std::array<std::byte, longest_difference> bytes{};
    const std::size_t length = write_difference(own_endpoint, local.encode(), bytes);
    return bootstrap.put(key("endpoint", 0, other), std::span(bytes).first(length));
  }
  [[nodiscard]] result<endpoint> meet_and_get_endpoint(std::uint32_t other,
                                                       const wait_limit& limit) noexcept {
    VERBSPP_TRY(theirs, get_to_know(other, limit));
    std::array<std::byte, longest_difference> bytes{};
    VERBSPP_TRY(length, bootstrap.get(other, key("endpoint", 0, rank), bytes, limit));
    if (!apply_difference(theirs, std::span(bytes).first(length)))
      return error(
          error_kind::invalid_input, joining,
          "the endpoint that the bootstrap has returned for a rank is invalid: run the "
          "same version of the library on all ranks; if you wrote the bootstrap, check it");
    return endpoint::decode(theirs);
  }
  void connect_later(detail::owned<detail::channel_source> channels) noexcept {
    source = std::move(channels);
    contact.emplace(*this, rank);
  }

  [[nodiscard]] result<endpoint> endpoint_from(std::uint32_t other, std::uint64_t turn,
                                               const wait_limit& limit) noexcept {
    std::array<std::byte, endpoint::encoded_size> bytes{};
    VERBSPP_TRY(length, bootstrap.get(other, key("endpoint", turn, rank), bytes, limit));
    return endpoint::decode(std::span(bytes).first(length));
  }

  /// The list of all ranks, if the world still has its group.
  /// \param own null if the world was moved from
  [[nodiscard]] static result<peer_list> all_for_barrier(state* own) noexcept {
    if (own == nullptr) return moved_from("barrier of a world");
    if (own->peers.size() < own->size)
      return error(error_kind::not_connected, detail::collective_step,
                   "the program has moved the group out of the world: move it back first");
    return own->signals.everybody();
  }

  [[nodiscard]] connection_state state_of(std::uint32_t other) noexcept {
    if (contact && contact->is_untouched(peers, other)) return connection_state::untouched;
    const bool is_ready = peers[other].is_connected() && !peers.is_due(other);
    return is_ready ? connection_state::connected : connection_state::broken;
  }

  encoded_endpoint own_endpoint{};
  any_bootstrap bootstrap;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t turns = 0;  ///< the number of exchanges and repairs so far
  detail::owned<rank_name[]> names{};
  detail::signals signals{};
  barrier_session::state* in_progress = nullptr;  ///< the barrier of a session
  detail::owned<detail::channel_source> source{};
  std::optional<detail::first_contact> contact{};  ///< exists if ranks are connected on first use
  group peers{};  // destroyed first, so that no write can reach the signals' memory any more

 private:
  [[nodiscard]] result<endpoint> meet(std::uint32_t other,
                                      const wait_limit& limit) noexcept override {
    VERBSPP_TRY(theirs, get_to_know(other, limit));
    return endpoint::decode(theirs);
  }
  [[nodiscard]] result<channel> build() noexcept override { return source->build(); }
  void note_connected(std::uint32_t other) noexcept override {
    if (other < peers.size()) signals.set_channel_to(other, peers[other]);
  }
  void tell_connected(std::uint32_t other, std::uint64_t mark) noexcept override {
    signals.tell_connected(peers, other, mark);
  }
  [[nodiscard]] bool has_told_connected(std::uint32_t other,
                                        std::uint64_t mark) const noexcept override {
    return signals.has_told_connected(other, mark);
  }
};

world::world(detail::owned<state> made) noexcept : state_(std::move(made)) {}
world::world(world&& other) noexcept = default;
world& world::operator=(world&& other) noexcept = default;
world::~world() = default;

result<void> world::check(any_bootstrap& launched, transport of_channels) noexcept {
  if (of_channels != transport::rc)
    return error(error_kind::not_supported, joining,
                 "a world needs a reliable transport, because a lost signal would make each later "
                 "step wait for it: build the channels with transport::rc");
  if (launched.size() == 0 || launched.size() > detail::most_ranks)
    return error::out_of_range(joining, "size", launched.size(),
                               launched.size() == 0
                                   ? "a world has 1 to 65,535 ranks: was the bootstrap moved from, "
                                     "or was memory exhausted?"
                                   : "a world has 1 to 65,535 ranks");
  if (launched.rank() >= launched.size())
    return error::above_limit(joining, "rank", launched.rank(), launched.size() - 1,
                              "a rank must be below the world's size");
  return success();
}

group_result<world> world::connect(any_bootstrap launched, prepared_group prepared,
                                   const protection_domain& domain, wait_mode waiting,
                                   const wait_limit& limit) noexcept {
  detail::owned<state> made(new (std::nothrow) state(std::move(launched)));
  if (!made) return error::from_errno(ENOMEM, joining);
  state& own = *made.get();
  VERBSPP_TRYV(own.open(domain, waiting));
  VERBSPP_TRYV(own.introduce(prepared.endpoint(own.rank)));
  for (std::uint32_t rank = 0; rank < own.size; ++rank)
    VERBSPP_TRYV(own.put_endpoint_for(rank, prepared.endpoint(rank)));
  VERBSPP_TRYV(own.bootstrap.fence(limit));

  own.peers = group(std::move(prepared));
  for (std::uint32_t rank = 0; rank < own.size; ++rank) {
    const auto connected = [&]() -> result<void> {
      VERBSPP_TRY(remote, own.meet_and_get_endpoint(rank, limit));
      VERBSPP_TRYV(own.peers[rank].handshake(remote));
      own.signals.set_channel_to(rank, own.peers[rank]);
      return success();
    }();
    if (!connected.has_value()) return with_rank(rank, connected.assume_error());
  }
  // No rank sends before all ranks are connected.
  VERBSPP_TRYV(own.bootstrap.fence(limit));
  return world(std::move(made));
}

group_result<world> world::connect_later(any_bootstrap launched, group peers,
                                         detail::owned<detail::channel_source> source,
                                         const protection_domain& domain,
                                         const detail::queue_pair_settings& like, wait_mode waiting,
                                         const wait_limit& limit) noexcept {
  detail::owned<state> made(new (std::nothrow) state(std::move(launched)));
  if (!made || !source) return error::from_errno(ENOMEM, joining);
  state& own = *made.get();
  VERBSPP_TRYV(own.open(domain, waiting));
  own.connect_later(std::move(source));
  VERBSPP_TRYV(own.contact->open(domain, like, own.size));
  VERBSPP_TRYV(own.introduce(own.contact->endpoint()));
  VERBSPP_TRYV(own.bootstrap.fence(limit));
  own.peers = std::move(peers);
  own.peers.connect_at_first_use(*own.contact, own.size);
  VERBSPP_TRY(itself, own.get_to_know(own.rank, limit));
  static_cast<void>(itself);
  VERBSPP_TRYV(own.contact->connect_self(own.peers));
  return world(std::move(made));
}

void world::serve() noexcept {
  if (state_) state_->peers.serve();
}

std::uint32_t world::rank() const noexcept { return state_ ? state_->rank : 0; }

std::uint32_t world::size() const noexcept { return state_ ? state_->size : 0; }

group& world::peers() noexcept { return state_->peers; }

std::string_view world::name(std::uint32_t rank) const noexcept {
  return rank < size() ? state_->names.get()[rank].view() : std::string_view();
}

group_result<void> world::exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                         std::span<std::size_t> sizes,
                                         const wait_limit& limit) noexcept {
  if (!state_) return moved_from("exchange of a world");
  const std::uint64_t turn = ++state_->turns;
  VERBSPP_TRYV(state_->bootstrap.put(key("value", turn, 0), mine));
  VERBSPP_TRYV(state_->bootstrap.fence(limit));
  const std::size_t largest = all.size() / state_->size;
  for (std::uint32_t rank = 0; rank < state_->size; ++rank) {
    const auto size = state_->bootstrap.get(rank, key("value", turn, 0),
                                            all.subspan(rank * largest, largest), limit);
    if (!size.has_value()) return with_rank(rank, size.assume_error());
    sizes[rank] = size.assume_value();
  }
  return success();
}

group_results world::barrier(const wait_limit& limit, barrier_kind kind) noexcept {
  const result<peer_list> all = state::all_for_barrier(state_.get());
  if (!all.has_value()) return all.assume_error();
  return barrier(all.assume_value(), limit, kind);
}

group_results world::barrier(const peer_list& ranks, const wait_limit& limit,
                             barrier_kind kind) noexcept {
  if (!state_) return moved_from("barrier of a world");
  return state_->signals.barrier(state_->peers, ranks, kind, limit);
}

group_results world::barrier(group_scope& behind, const wait_limit& limit,
                             barrier_kind kind) noexcept {
  const result<peer_list> all = state::all_for_barrier(state_.get());
  if (!all.has_value()) return all.assume_error();
  return barrier(behind, all.assume_value(), limit, kind);
}

group_results world::barrier(group_scope& behind, const peer_list& ranks, const wait_limit& limit,
                             barrier_kind kind) noexcept {
  if (!state_) return moved_from("barrier of a world");
  if (const auto objects = state_->signals.objection(ranks)) return *objects;
  if (const auto failed = behind.failure()) {
    static_cast<void>(
        state_->signals.barrier(state_->peers, ranks, kind, limit, static_cast<error>(*failed)));
    return detail::results_of(*failed);
  }
  return barrier(ranks, limit, kind);
}

result<barrier_session> world::start_barrier(const wait_limit& limit, barrier_kind kind) noexcept {
  VERBSPP_TRY(all, state::all_for_barrier(state_.get()));
  return start_barrier(all, limit, kind);
}

result<barrier_session> world::start_barrier(const peer_list& ranks, const wait_limit& limit,
                                             barrier_kind kind) noexcept {
  if (!state_) return moved_from("barrier of a world");
  VERBSPP_TRY(begun, barrier_session::state::begin(state_->signals, state_->peers,
                                                   state_->in_progress, ranks, kind, limit));
  return barrier_session(std::move(begun));
}

group_results world::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                      const wait_limit& limit) noexcept {
  if (!state_) return moved_from(detail::collective_step);
  return state_->signals.all_gather(state_->peers, mine, all, limit);
}

group_results world::gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                  std::uint32_t root, const wait_limit& limit) noexcept {
  if (!state_) return moved_from(detail::collective_step);
  return state_->signals.gather(state_->peers, mine, all, root, limit);
}

group_results world::broadcast_bytes(std::span<std::byte> value, std::uint32_t root,
                                     const wait_limit& limit) noexcept {
  if (!state_) return moved_from(detail::collective_step);
  return state_->signals.broadcast(state_->peers, value, root, limit);
}

group_results world::all_reduce_bytes(std::span<std::byte> value,
                                      void (*combine)(void* context, std::byte* into,
                                                      const std::byte* right),
                                      void* context, const wait_limit& limit) {
  if (!state_) return moved_from(detail::collective_step);
  return state_->signals.all_reduce(state_->peers, value, combine, context, limit);
}

group_result<void> world::mend(const wait_limit& limit) noexcept {
  if (!state_) return moved_from("mend a world");
  state& own = *state_.get();
  if (const auto objects = own.signals.objection()) return *objects;
  if (own.peers.size() < own.size)
    return error(error_kind::not_connected, "mend a world",
                 "the program has moved the group out of the world: move it back first");
  const std::uint64_t turn = ++own.turns;
  // If ranks connect on first use, this rank first answers the connection requests that have
  // arrived. A connection that is completed at both ends in this way need not be renewed below.
  own.peers.serve();
  // One end may notice a broken connection before the other does, so each rank provides what it
  // knows.
  for (std::uint32_t rank = 0; rank < own.size; ++rank) {
    const state_of_pair mine{own.state_of(rank), own.signals.counts_with(rank)};
    VERBSPP_TRYV(own.bootstrap.put(key("pair", turn, rank), std::as_bytes(std::span(&mine, 1))));
  }
  VERBSPP_TRYV(own.bootstrap.fence(limit));
  const detail::owned<bool[]> is_renewed(new (std::nothrow) bool[own.size]());
  if (!is_renewed) return error::from_errno(ENOMEM, "mend a world");
  for (std::uint32_t rank = 0; rank < own.size; ++rank) {
    const auto renewed = [&]() -> result<void> {
      state_of_pair theirs{};
      VERBSPP_TRY(size, own.bootstrap.get(rank, key("pair", turn, own.rank),
                                          std::as_writable_bytes(std::span(&theirs, 1)), limit));
      if (size != sizeof theirs)
        return error(
            error_kind::mismatch, "mend a world",
            "that rank runs a different version of the library: run the same version on all ranks");
      own.signals.agree(rank, theirs.counts);
      const connection_state mine = own.state_of(rank);
      if (mine == theirs.state && mine != connection_state::broken) return success();
      is_renewed.get()[rank] = true;
      VERBSPP_TRY(local, own.contact ? own.contact->renew(own.peers, rank, limit)
                                     : own.peers[rank].renew());
      return own.bootstrap.put(key("endpoint", turn, rank), local.encode());
    }();
    if (!renewed.has_value()) return with_rank(rank, renewed.assume_error());
  }
  VERBSPP_TRYV(own.bootstrap.fence(limit));
  for (std::uint32_t rank = 0; rank < own.size; ++rank) {
    if (!is_renewed.get()[rank]) continue;
    const auto connected = [&]() -> result<void> {
      VERBSPP_TRY(remote, own.endpoint_from(rank, turn, limit));
      if (!own.signals.knows_memory_of(rank)) VERBSPP_TRYV(own.get_to_know(rank, limit));
      VERBSPP_TRYV(own.peers[rank].handshake(remote));
      if (own.contact) own.contact->settle(rank, remote);
      own.signals.set_channel_to(rank, own.peers[rank]);
      return success();
    }();
    if (!connected.has_value()) return with_rank(rank, connected.assume_error());
  }
  VERBSPP_TRYV(own.bootstrap.fence(limit));
  return success();
}

const char* to_string(barrier_kind kind) noexcept {
  switch (kind) {
    case barrier_kind::by_size:
      return "by size";
    case barrier_kind::centralized:
      return "centralized";
    case barrier_kind::binary_tree:
      return "binary tree";
    case barrier_kind::dissemination:
      return "dissemination";
  }
  return "unknown barrier";
}

std::ostream& operator<<(std::ostream& out, const world& w) {
  if (!w.state_) return out << "world, empty";
  return out << "world, rank " << w.rank() << " of " << w.size() << " (" << w.name(w.rank())
             << "), " << w.state_->peers;
}

}  // namespace verbspp
