// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

#include <cerrno>
#include <memory>

namespace verbspp::test {

inline const error refused = error::from_errno(EACCES, "ibv_open_device", "ask for access");

inline result<std::unique_ptr<int>> boxed(int value) { return std::make_unique<int>(value); }

}  // namespace verbspp::test
