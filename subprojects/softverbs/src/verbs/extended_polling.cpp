// SPDX-License-Identifier: Apache-2.0
#include "verbs/extended_polling.hpp"

#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "verbs/device_context.hpp"
#include "verbs/nesting.hpp"

#include <cerrno>

namespace softverbs {
namespace {

completion_queue& behind(ibv_cq_ex* queue) noexcept {
  return static_cast<completion_queue&>(*ibv_cq_ex_to_cq(queue));
}

const completion& current(ibv_cq_ex* queue) noexcept { return behind(queue).current(); }

int advance(completion_queue& queue) {
  if (!queue.usable()) return EIO;
  if (queue.empty()) queue.engine().drive();
  if (queue.empty() && !queue.is_broken()) return ENOENT;
  return queue.advance();
}

int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr* attributes) {
  SOFTVERBS_FAULT(ibv_start_poll, queue->context);
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  completion_queue& ours = behind(queue);
  if (!ours.reading_one_by_one().begin()) return refuse_nested_poll();
  const int error = advance(ours);
  if (error != 0) ours.reading_one_by_one().end();
  return error;
}

int next_poll(ibv_cq_ex* queue) {
  SOFTVERBS_FAULT(ibv_next_poll, queue->context);
  return advance(behind(queue));
}

void end_poll(ibv_cq_ex* queue) { behind(queue).reading_one_by_one().end(); }

}  // namespace

void make_readable_one_by_one(completion_queue& queue, std::uint64_t fields) noexcept {
  ibv_cq_ex& verbs = *queue.extended();
  verbs.start_poll = start_poll;
  verbs.next_poll = next_poll;
  verbs.end_poll = end_poll;
  verbs.read_opcode = [](ibv_cq_ex* from) { return current(from).wc.opcode; };
  verbs.read_vendor_err = [](ibv_cq_ex* from) { return current(from).wc.vendor_err; };
  verbs.read_wc_flags = [](ibv_cq_ex* from) { return current(from).wc.wc_flags; };

  const auto offer = [&](std::uint64_t field, auto& place, auto function) {
    if ((fields & field) != 0) place = function;
  };
  offer(IBV_WC_EX_WITH_BYTE_LEN, verbs.read_byte_len,
        [](ibv_cq_ex* from) { return current(from).wc.byte_len; });
  // If the completion has an invalidated rkey, this field contains it.
  offer(IBV_WC_EX_WITH_IMM, verbs.read_imm_data,
        [](ibv_cq_ex* from) { return current(from).wc.imm_data; });
  offer(IBV_WC_EX_WITH_QP_NUM, verbs.read_qp_num,
        [](ibv_cq_ex* from) { return current(from).wc.qp_num; });
  offer(IBV_WC_EX_WITH_SRC_QP, verbs.read_src_qp,
        [](ibv_cq_ex* from) { return current(from).wc.src_qp; });
  offer(IBV_WC_EX_WITH_SLID, verbs.read_slid,
        [](ibv_cq_ex* from) { return std::uint32_t{current(from).wc.slid}; });
  offer(IBV_WC_EX_WITH_SL, verbs.read_sl, [](ibv_cq_ex* from) { return current(from).wc.sl; });
  offer(IBV_WC_EX_WITH_DLID_PATH_BITS, verbs.read_dlid_path_bits,
        [](ibv_cq_ex* from) { return current(from).wc.dlid_path_bits; });
  offer(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, verbs.read_completion_ts,
        [](ibv_cq_ex* from) { return current(from).timestamp; });
  offer(IBV_WC_EX_WITH_FLOW_TAG, verbs.read_flow_tag,
        [](ibv_cq_ex* from) { return current(from).flow_tag; });
  offer(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, verbs.read_completion_wallclock_ns,
        [](ibv_cq_ex* from) { return current(from).wallclock; });
}

}  // namespace softverbs
