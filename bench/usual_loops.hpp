// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loop.hpp"
#include <verbspp/base/result.hpp>

#include <vector>

/// Returns the loops over the functions of usual.h and usual.hpp. The loops own the objects that
/// they use.
verbspp::result<std::vector<loop>> usual_loops();
