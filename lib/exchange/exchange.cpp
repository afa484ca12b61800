// SPDX-License-Identifier: Apache-2.0
#include <verbspp/exchange/exchange.hpp>

#include <tuple>

namespace verbspp {

result<void> exchange(int file_descriptor, channel& renewed, const wait_limit& limit,
                      const exchange_options& options) noexcept {
  VERBSPP_TRYV(exchange<std::tuple<>>(file_descriptor, renewed, std::tuple<>(), limit, options));
  return success();
}

}  // namespace verbspp
