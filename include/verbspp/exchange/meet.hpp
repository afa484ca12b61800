// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/exchange/acceptor.hpp>
#include <verbspp/exchange/detail/find_peer.hpp>
#include <verbspp/exchange/exchange.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <string_view>
#include <utility>

namespace verbspp {

/// An exchange between two that are equals: both listen, both connect to the other, at the same
/// time or not, and exactly one connection comes of it.
///
///     VERBSPP_TRY(listener, tcp_listener::open("4711"));
///     VERBSPP_TRY(peer, meet<Theirs>(listener, "other-host", "4711", std::move(prepared), mine,
///     30s)); peer.socket, peer.met.channel, peer.met.theirs
///
/// Each side has a random number, and that of the greater one chooses: the first connection on
/// which both have said what they are. The other waits until it learns of the choice. Where only
/// one can reach the other, that one's connection is it. Nobody need be there first: what is
/// refused is tried again, twenty times a second, until the limit.
///
/// The listener is for this peer alone as long as this waits; strangers that connect are refused,
/// and change nothing. Connections that were not chosen may be left in its queue: they are closed,
/// and the next meeting passes over them.
/// \errors as `exchange`; `mismatch` and `permission` at once if the peer at that host does not
/// fit; `timed_out` and `cancelled` at the limit, with the last failure in words
template <class Theirs, class End, class Mine>
  requires ExchangeEnd<End>
[[nodiscard]] auto meet(const tcp_listener& listener, std::string_view host, std::string_view port,
                        End prepared, const Mine& mine, const wait_limit& limit,
                        const exchange_options& options = {}) noexcept
    -> result<accepted_exchange<typename exchange_session<Theirs, End>::outcome>> {
  using session = exchange_session<Theirs, End>;
  struct offer final : detail::peer_offer {
    offer(const End& of, const Mine& with) noexcept : prepared_(of), values_(with) {}
    void operator()(detail::exchange_core& core) const noexcept override {
      session::write_offer(core, prepared_, values_);
    }

   private:
    const End& prepared_;
    const Mine& values_;
  };
  VERBSPP_TRY(found,
              detail::find_peer(listener, host, port, session::template setup_of<Mine>(-1, options),
                                offer(prepared, mine), limit));
  session begun = session::continued(std::move(found.core), std::move(prepared));
  VERBSPP_TRY(met, std::move(begun).run());
  return accepted_exchange<typename session::outcome>{std::move(found.socket), std::move(met)};
}

}  // namespace verbspp
