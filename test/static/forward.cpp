// SPDX-License-Identifier: Apache-2.0

// The forward declarations match the definitions. They suffice for a header that only names the
// types.

#include <verbspp/fwd.hpp>

namespace {

using namespace verbspp;

struct mentions {
  context* device;
  const error* failure;
  completion_queue (*make)(const context&);
  queue_pair<transport{2}, queue_pair_state{3}, receive_queue_kind{0}, posting_interface{0}>* pair;
  remote_memory<access_flags::from_bits(2)> (*remote)();
  void (*post)(const send_operation&, work_tag);
};

}  // namespace

#include <verbspp/fwd.hpp>
#include <verbspp/verbspp.hpp>

#include <type_traits>

namespace {

static_assert(std::is_same_v<decltype(mentions::pair), connected_queue_pair<transport::rc>*>);
static_assert(
    std::is_same_v<decltype(mentions::remote), remote_memory<access::remote_write> (*)()>);

}  // namespace
