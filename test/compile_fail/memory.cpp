// SPDX-License-Identifier: Apache-2.0

// Memory that cannot be registered or filled, and objects that are not plain bytes.

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/remote_object.hpp>

#include <string>
#include <vector>

using namespace verbspp;

// case: buffer_of_more_than_bytes
// expect: its elements must be trivially copyable and trivially default constructible
using element = BAD(std::string) GOOD(int);
auto add(const protection_domain& pd) {
  return registered_buffer<access::local_write, element>::allocate(pd, 8);
}

// case: constant_buffer_to_be_filled
// expect: the device would write to a const buffer
auto fill(BAD(const) registered_buffer<access::local_write>& buffer) {
  return buffer.scatter(0, 8);
}

// case: constant_buffer_to_be_filled_wholly
// expect: the device would write to a const buffer
auto fill(BAD(const) registered_buffer<access::local_write>& buffer) { return buffer.scatter(); }

// case: register_more_than_bytes
// expect: the device copies bytes: only memory of trivially copyable objects can be registered
using object = BAD(std::string) GOOD(char);
auto add(const protection_domain& pd, std::vector<object>& memory) {
  return register_memory(pd, memory);
}

// case: register_temporary_memory
// expect: borrowed_range
auto add(const protection_domain& pd, std::vector<char> memory) {
  return register_memory(pd, BAD(std::move(memory)) GOOD(memory));
}

// case: register_volatile_memory
// expect: volatile memory cannot be registered
using memory = std::span<BAD(volatile) char>;
auto register_it(const protection_domain& domain, memory bytes) {
  return register_memory(domain, bytes);
}

// case: remote_object_of_more_than_bytes
// expect: only types with the same layout on both ends can be addressed remotely
using object = BAD(std::string) GOOD(int);
constexpr auto rights = access::remote_read;

auto view(const remote_memory<rights>& memory) { return remote_object<object, rights>::at(memory); }
