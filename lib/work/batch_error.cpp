// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/batch_error.hpp>

#include <ostream>
#include <string>

namespace verbspp {

std::string batch_error::message() const { return error(*this).message(); }

std::ostream& operator<<(std::ostream& out, const batch_error& e) { return out << e.message(); }

void batch_error::raise() const { error(*this).raise(); }

}  // namespace verbspp
