// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/frame_spreading.hpp"

#include "queue_pair/receive_work_queue.hpp"
#include "wire/packet.hpp"

#include <utility>

namespace softverbs {

indirection_table::indirection_table(ibv_context& verbs,
                                     std::vector<receive_work_queue*> all) noexcept
    : ibv_rwq_ind_table{}, queues(std::move(all)) {
  context = &verbs;
}

void frame_spreading::spread(const packet& frame) const {
  const frame_headers headers = read_frame({frame.payload, frame.header.payload});
  table.queues[hash.of(headers) & (table.queues.size() - 1)]->take(frame);
}

}  // namespace softverbs
