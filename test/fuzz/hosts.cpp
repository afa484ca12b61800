// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Every file must either be accepted as a list of hosts, or be refused
/// with an error that has a message.

#include <verbspp/ranks/host_list.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbspp;
  const auto read = host_list::parse({reinterpret_cast<const char*>(data), size});
  if (read.has_error()) {
    const error& why = read.error();
    require(why.message().size() > 10 && why.message().size() == why.format({}));
    return 0;
  }
  const host_list& hosts = read.value();
  require(hosts.size() > 0 && hosts.size() <= 65'535 && hosts.port() != 0);
  require(!hosts.host_of(hosts.size() - 1).empty() && hosts.host_of(hosts.size()).empty());
  require(hosts.first(hosts.size()).value() == hosts);
  if (hosts.world().empty()) require(host_list::from(hosts.hosts(), hosts.port()).value() == hosts);
  return 0;
}
