// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/outcome.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/work/operations.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// True if the function can be called with a peer's number, and returns one of the operations, or a
/// `result` that holds one.
template <class Function, class... Operations>
[[nodiscard]] consteval bool makes_one_of() noexcept {
  if constexpr (std::is_invocable_v<Function&, std::uint32_t>) {
    using returned = std::remove_cvref_t<std::invoke_result_t<Function&, std::uint32_t>>;
    return (std::same_as<value_within_t<returned>, Operations> || ...);
  } else {
    return false;
  }
}

template <class Function>
[[nodiscard]] consteval bool names_destination() noexcept {
  if constexpr (std::is_invocable_v<Function&, std::uint32_t>)
    return std::is_convertible_v<std::invoke_result_t<Function&, std::uint32_t>,
                                 remote_destination>;
  else
    return false;
}

}  // namespace detail

template <class Function>
concept ScatteredParts = detail::because(
    detail::makes_one_of<Function, send_operation, write_operation>(),
    "scatter sends or writes a part to each peer: its function must take a peer's number, and "
    "return a send_operation, a write_operation, or a verbspp::result of either");
template <class Function>
concept GatheredParts = detail::because(
    detail::makes_one_of<Function, receive_operation, read_operation>(),
    "gather receives or reads a part from each peer: its function must take a peer's number, and "
    "return a receive_operation, a read_operation, or a verbspp::result of either");
template <class Function>
concept NamesDestinations = detail::because(
    detail::names_destination<Function>(),
    "a multicast by write needs a function that takes a peer's number and returns remote memory of "
    "that peer with access::remote_write");

/// Functions that post requests to several peers.
///
///     peers.post_scatter(peers.all(), [&](std::uint32_t peer) -> result<send_operation> {
///       VERBSPP_TRY(part, buffer.gather(peer * block, block));
///       return send_operation{.elements = part};
///     });
///     peers.post_multicast({0, 2}, {.elements = news});
///
/// If posting to a peer fails, or the function returns an error for that peer, the other peers are
/// not affected. But a `group`, unlike a scope, posts nothing if one of the numbers is not below
/// its size. If a peer is listed twice, two requests are posted to it.
///
/// `Poster` is the derived class, whose `post_each(peers, function)` posts the requests.
template <class Poster>
class group_operations {
 public:
  /// Posts one request to each peer, which sends or writes a separate part.
  template <class Function>
    requires ScatteredParts<Function>
  [[nodiscard]] auto post_scatter(const peer_list& peers, Function part_for) {
    return poster().post_each(peers, part_for);
  }
  /// Posts one request to each peer, which receives or reads a separate part.
  template <class Function>
    requires GatheredParts<Function>
  [[nodiscard]] auto post_gather(const peer_list& peers, Function part_from) {
    return poster().post_each(peers, part_from);
  }
  /// Posts the same message to each peer.
  [[nodiscard]] auto post_multicast(const peer_list& peers,
                                    const send_operation& operation) noexcept {
    auto same = [&](std::uint32_t /*peer*/) noexcept { return operation; };
    return poster().post_each(peers, same);
  }
  /// Posts a write of the same bytes to each peer. `place_at` returns the remote memory of a peer.
  template <class Function>
    requires NamesDestinations<Function>
  [[nodiscard]] auto post_multicast(const peer_list& peers, const gather_list& elements,
                                    Function place_at) {
    auto same = [&](std::uint32_t peer) {
      return write_operation{.elements = elements, .remote = place_at(peer)};
    };
    return poster().post_each(peers, same);
  }

 protected:
  group_operations() noexcept = default;
  group_operations(group_operations&&) noexcept = default;
  group_operations& operator=(group_operations&&) noexcept = default;
  ~group_operations() = default;

 private:
  [[nodiscard]] Poster& poster() noexcept { return static_cast<Poster&>(*this); }
};

}  // namespace verbspp
