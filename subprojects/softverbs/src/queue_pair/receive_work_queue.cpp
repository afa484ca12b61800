// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/receive_work_queue.hpp"

#include "memory/protection_domain.hpp"
#include "queue_pair/receive_memory.hpp"
#include "wire/packet.hpp"

#include <cerrno>

namespace softverbs {

receive_work_queue::receive_work_queue(open_device& owner, protection_domain& domain,
                                       const ibv_wq_init_attr& attributes)
    : ibv_wq{}, owner_(owner), waiting_(attributes.max_wr, attributes.max_sge, &domain) {
  context = &owner.verbs();
  wq_context = attributes.wq_context;
  pd = &domain;
  cq = attributes.cq;
  wq_type = attributes.wq_type;
  state = IBV_WQS_RESET;
  // ibv_create_wq, an inline function of verbs.h, initializes these again.
  ::pthread_mutex_init(&mutex, nullptr);
  ::pthread_cond_init(&cond, nullptr);
}

receive_work_queue::~receive_work_queue() {
  ::pthread_cond_destroy(&cond);
  ::pthread_mutex_destroy(&mutex);
}

int receive_work_queue::enter_machine() {
  const int error = owner_.engine().add(*this);
  wq_num = handle = number();
  return error;
}

std::uint32_t receive_work_queue::domain() const noexcept { return number_of(pd); }

int receive_work_queue::post(ibv_recv_wr* request, ibv_recv_wr** bad) noexcept {
  int error = 0;
  bool flushes = false;
  {
    const std::lock_guard held(lock_);
    if (now_in_ == IBV_WQS_RESET) error = EINVAL;
    for (; request != nullptr; request = request->next) {
      if (error == 0) error = waiting_.post(*request);
      if (error == 0) continue;
      *bad = request;
      break;
    }
    flushes = now_in_ == IBV_WQS_ERR;
  }
  if (flushes) owner_.engine().ring(*this);
  return error;
}

int receive_work_queue::modify(const ibv_wq_attr& asked) {
  const std::lock_guard held(lock_);
  const auto given = [&](std::uint32_t attribute) { return (asked.attr_mask & attribute) != 0; };
  if (asked.attr_mask == 0 || asked.attr_mask >= IBV_WQ_ATTR_RESERVED) return EINVAL;
  const auto is_known = [](std::uint32_t wanted) { return wanted <= IBV_WQS_ERR; };
  if ((given(IBV_WQ_ATTR_STATE) && !is_known(asked.wq_state)) ||
      (given(IBV_WQ_ATTR_CURR_STATE) && !is_known(asked.curr_wq_state)))
    return EINVAL;
  // None of the flags that could be changed is supported.
  if (given(IBV_WQ_ATTR_FLAGS) && asked.flags_mask != 0) return EOPNOTSUPP;
  if (given(IBV_WQ_ATTR_CURR_STATE) && asked.curr_wq_state != now_in_) return EINVAL;
  if (!given(IBV_WQ_ATTR_STATE)) return 0;
  switch (asked.wq_state) {
    case IBV_WQS_RESET:
      // Polling a completion frees the space of its request. This must not happen after the reset,
      // so the remaining completions are removed first.
      forget_completions();
      waiting_.reset();
      now_in_ = IBV_WQS_RESET;
      break;
    case IBV_WQS_RDY:
      if (now_in_ == IBV_WQS_ERR) return EINVAL;
      now_in_ = IBV_WQS_RDY;
      break;
    case IBV_WQS_ERR:
      if (now_in_ == IBV_WQS_RESET) return EINVAL;
      enter_error();
      break;
    default:
      return EINVAL;
  }
  state = now_in_;
  return 0;
}

void receive_work_queue::take(const packet& frame) {
  const std::lock_guard held(lock_);
  if (now_in_ != IBV_WQS_RDY || waiting_.empty()) return;
  const std::uint32_t length = frame.header.payload;
  if (length > waiting_.front().length) return fail(IBV_WC_LOC_LEN_ERR);
  const receive_memory memory(owner_.machine().regions, pd, waiting_.front());
  if (!memory.fill(0, frame.payload, length)) return fail(IBV_WC_LOC_PROT_ERR);
  const faults::verdict fault = faults::judge(wq_num, true);
  if (fault.status != IBV_WC_SUCCESS) return fail(fault.status, fault);
  complete(IBV_WC_SUCCESS, &frame, fault);
}

void receive_work_queue::complete(ibv_wc_status status, const packet* frame,
                                  const faults::verdict& fault) {
  completion entry{};
  entry.wc.wr_id = waiting_.front().wr_id;
  entry.wc.status = status;
  entry.wc.opcode = IBV_WC_RECV;
  entry.wc.qp_num = wq_num;
  entry.wc.vendor_err = fault.vendor_code;
  if (frame != nullptr) {
    entry.wc.byte_len = frame->header.payload;
    entry.flow_tag = frame->header.key;
    entry.solicited = (frame->header.flags & packet_flag::solicited) != 0;
  }
  entry.delay = fault.delay;
  entry.overtakable = fault.overtakable;
  entry.owner = this;
  waiting_.pop(entry);
  if (!completions().push(entry)) completion_lost();
}

void receive_work_queue::fail(ibv_wc_status status, const faults::verdict& fault) {
  complete(status, nullptr, fault);
  enter_error();
}

void receive_work_queue::completion_lost() {
  if (now_in_ == IBV_WQS_ERR) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_WQ_FATAL;
  event.element.wq = this;
  owner_.async_events().push(event);
  enter_error();
}

void receive_work_queue::late_completion_lost() {
  const std::lock_guard held(lock_);
  completion_lost();
}

void receive_work_queue::enter_error() {
  now_in_ = IBV_WQS_ERR;
  owner_.engine().schedule(*this);
}

bool receive_work_queue::serve() {
  const std::lock_guard held(lock_);
  while (now_in_ == IBV_WQS_ERR && !waiting_.empty()) complete(IBV_WC_WR_FLUSH_ERR, nullptr);
  return false;
}

}  // namespace softverbs
