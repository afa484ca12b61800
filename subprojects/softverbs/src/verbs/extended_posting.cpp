// SPDX-License-Identifier: Apache-2.0
// ibv_create_qp_ex, ibv_qp_to_qp_ex, and the functions that build requests, from ibv_wr_start to
// ibv_wr_complete.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "memory/protection_domain.hpp"
#include "queue_pair/operation.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/request_batch.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/nesting.hpp"
#include "verbs/next_library.hpp"
#include "verbs/receive_scaling.hpp"
#include "verbs/xrc.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// Must not be called for an XRC receive queue pair, which builds no requests.
queue_pair& behind(ibv_qp_ex* pair) noexcept { return *static_cast<queue_pair*>(&pair->qp_base); }

template <typename Step>
void build(ibv_qp_ex* pair, Step step) noexcept {
  request_batch& batch = *behind(pair).batch;
  if (batch.error == 0) try {
      step(batch);
    } catch (const std::bad_alloc&) {
      batch.error = ENOMEM;
    }
}

template <typename Fill>
void begin(ibv_qp_ex* pair, ibv_wr_opcode opcode, Fill fill) noexcept {
  build(pair, [&](request_batch& batch) {
    request_batch::built& next = batch.requests.emplace_back();
    next.first_entry = batch.entries.size();
    next.request.wr_id = pair->wr_id;
    next.request.opcode = opcode;
    // ibv_wr_set_inline_data sets inline data, so this flag is ignored.
    next.request.send_flags = pair->wr_flags & ~unsigned{IBV_SEND_INLINE};
    fill(next.request);
  });
}

template <typename Set>
void set(ibv_qp_ex* pair, Set change) noexcept {
  build(pair, [&](request_batch& batch) {
    if (batch.requests.empty())
      batch.error = EINVAL;
    else
      change(batch, batch.requests.back());
  });
}

void set_entries(ibv_qp_ex* pair, const ibv_sge* entries, std::size_t count) noexcept {
  set(pair, [&](request_batch& batch, request_batch::built& last) {
    last.first_entry = batch.entries.size();
    last.request.num_sge =
        static_cast<int>(std::min<std::size_t>(count, limits::gather_entries + 1));
    batch.entries.insert(batch.entries.end(), entries, entries + last.request.num_sge);
  });
}

void set_inline(ibv_qp_ex* pair, const ibv_data_buf* buffers, std::size_t count) noexcept {
  set(pair, [&](request_batch& batch, request_batch::built& last) {
    const std::size_t most = behind(pair).initial().cap.max_inline_data;
    const std::size_t start = batch.inline_data.size();
    for (std::size_t at = 0; at < count; ++at) {
      if (buffers[at].length > most - (batch.inline_data.size() - start)) {
        batch.error = EINVAL;
        return;
      }
      const auto* from = static_cast<const std::byte*>(buffers[at].addr);
      batch.inline_data.insert(batch.inline_data.end(), from, from + buffers[at].length);
    }
    last.first_entry = batch.entries.size();
    last.request.num_sge = 1;
    last.request.send_flags |= IBV_SEND_INLINE;
    batch.entries.push_back(
        {start, static_cast<std::uint32_t>(batch.inline_data.size() - start), 0});
  });
}

void wr_start(ibv_qp_ex* pair) {
  request_batch& batch = *behind(pair).batch;
  if (!batch.building.begin()) {
    // The remaining calls for the interrupted batch can't be distinguished from the calls for the
    // new one, so both batches fail.
    batch.error = refuse_nested_post();
    ++batch.begun_again;
    return;
  }
  batch.error = 0;
  batch.requests.clear();
  batch.entries.clear();
  batch.inline_data.clear();
}

/// Posts all requests of the batch, or none.
int post(queue_pair& pair, request_batch& batch, bool& waits) {
  if (!pair.usable()) return EIO;
  const std::lock_guard held(pair.lock());
  if (!pair.takes_sends()) return EINVAL;
  const std::uint32_t before = pair.requests.posted();
  for (auto& [request, first_entry] : batch.requests) {
    request.sg_list = batch.entries.data() + first_entry;
    if ((request.send_flags & IBV_SEND_INLINE) != 0)
      request.sg_list->addr += reinterpret_cast<std::uintptr_t>(batch.inline_data.data());
    if (const int error = pair.requests.post(request, posting::by_functions)) {
      pair.requests.take_back(before);
      return error;
    }
  }
  pair.requests.carry_out_directly();
  waits = pair.requests.is_busy();
  return 0;
}

/// The destructor ends the batch that the last ibv_wr_start began.
class last_of_batch {
 public:
  explicit last_of_batch(request_batch& batch) noexcept : batch_(batch) {}
  last_of_batch(const last_of_batch&) = delete;
  last_of_batch& operator=(const last_of_batch&) = delete;
  ~last_of_batch() {
    if (batch_.begun_again == 0)
      batch_.building.end();
    else
      --batch_.begun_again;
  }

 private:
  request_batch& batch_;
};

int wr_complete(ibv_qp_ex* pair) {
  queue_pair& ours = behind(pair);
  const last_of_batch end(*ours.batch);
  SOFTVERBS_FAULT(ibv_wr_complete, ours.context);
  if (ours.batch->error != 0) return ours.batch->error;
  bool waits = false;
  const int error = post(ours, *ours.batch, waits);
  if (waits) ours.engine().ring(ours);
  return error;
}

void wr_abort(ibv_qp_ex* pair) { const last_of_batch end(*behind(pair).batch); }

/// Sets the functions of the requested operations only, so that a program that uses another
/// operation crashes.
void make_buildable(queue_pair& pair, std::uint64_t asked) noexcept {
  ibv_qp_ex& verbs = *pair.extended();
  verbs.wr_start = wr_start;
  verbs.wr_complete = wr_complete;
  verbs.wr_abort = wr_abort;
  verbs.wr_set_sge = [](ibv_qp_ex* to, std::uint32_t lkey, std::uint64_t address,
                        std::uint32_t length) {
    const ibv_sge entry{address, length, lkey};
    set_entries(to, &entry, 1);
  };
  verbs.wr_set_sge_list = [](ibv_qp_ex* to, std::size_t count, const ibv_sge* entries) {
    set_entries(to, entries, count);
  };
  verbs.wr_set_inline_data = [](ibv_qp_ex* to, void* address, std::size_t length) {
    const ibv_data_buf buffer{address, length};
    set_inline(to, &buffer, 1);
  };
  verbs.wr_set_inline_data_list = [](ibv_qp_ex* to, std::size_t count,
                                     const ibv_data_buf* buffers) {
    set_inline(to, buffers, count);
  };
  if (pair.qp_type == IBV_QPT_XRC_SEND)
    verbs.wr_set_xrc_srqn = [](ibv_qp_ex* to, std::uint32_t shared_queue) {
      set(to, [&](request_batch&, request_batch::built& last) {
        last.request.qp_type.xrc.remote_srqn = shared_queue;
      });
    };
  if (pair.qp_type == IBV_QPT_UD)
    verbs.wr_set_ud_addr = [](ibv_qp_ex* to, ibv_ah* handle, std::uint32_t qpn,
                              std::uint32_t qkey) {
      set(to, [&](request_batch&, request_batch::built& last) {
        last.request.wr.ud = {handle, qpn, qkey};
      });
    };

  const auto offer = [asked](std::uint64_t operation, auto& place, auto function) {
    if ((asked & operation) != 0) place = function;
  };
  offer(IBV_QP_EX_WITH_SEND, verbs.wr_send,
        [](ibv_qp_ex* to) { begin(to, IBV_WR_SEND, [](ibv_send_wr&) {}); });
  offer(IBV_QP_EX_WITH_SEND_WITH_IMM, verbs.wr_send_imm, [](ibv_qp_ex* to, __be32 immediate) {
    begin(to, IBV_WR_SEND_WITH_IMM, [=](ibv_send_wr& request) { request.imm_data = immediate; });
  });
  offer(IBV_QP_EX_WITH_SEND_WITH_INV, verbs.wr_send_inv, [](ibv_qp_ex* to, std::uint32_t rkey) {
    begin(to, IBV_WR_SEND_WITH_INV, [=](ibv_send_wr& request) { request.invalidate_rkey = rkey; });
  });
  offer(IBV_QP_EX_WITH_LOCAL_INV, verbs.wr_local_inv, [](ibv_qp_ex* to, std::uint32_t rkey) {
    begin(to, IBV_WR_LOCAL_INV, [=](ibv_send_wr& request) { request.invalidate_rkey = rkey; });
  });
  offer(IBV_QP_EX_WITH_BIND_MW, verbs.wr_bind_mw,
        [](ibv_qp_ex* to, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info* info) {
          begin(to, IBV_WR_BIND_MW,
                [=](ibv_send_wr& request) { request.bind_mw = {window, rkey, *info}; });
        });
  offer(IBV_QP_EX_WITH_RDMA_WRITE, verbs.wr_rdma_write,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address) {
          begin(to, IBV_WR_RDMA_WRITE,
                [=](ibv_send_wr& request) { request.wr.rdma = {address, rkey}; });
        });
  offer(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, verbs.wr_rdma_write_imm,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
          begin(to, IBV_WR_RDMA_WRITE_WITH_IMM, [=](ibv_send_wr& request) {
            request.wr.rdma = {address, rkey};
            request.imm_data = immediate;
          });
        });
  offer(IBV_QP_EX_WITH_RDMA_READ, verbs.wr_rdma_read,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address) {
          begin(to, IBV_WR_RDMA_READ,
                [=](ibv_send_wr& request) { request.wr.rdma = {address, rkey}; });
        });
  offer(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, verbs.wr_atomic_cmp_swp,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
           std::uint64_t swap) {
          begin(to, IBV_WR_ATOMIC_CMP_AND_SWP,
                [=](ibv_send_wr& request) { request.wr.atomic = {address, compare, swap, rkey}; });
        });
  offer(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, verbs.wr_atomic_fetch_add,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
          begin(to, IBV_WR_ATOMIC_FETCH_AND_ADD,
                [=](ibv_send_wr& request) { request.wr.atomic = {address, add, 0, rkey}; });
        });
  newer::qp_functions& newest = newer::functions_of(verbs);
  offer(newer::qp_ex_with_atomic_write, newest.wr_atomic_write,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, const void* value) {
          std::uint64_t number = 0;
          std::memcpy(&number, value, sizeof(number));
          begin(to, newer::wr_atomic_write,
                [=](ibv_send_wr& request) { request.wr.atomic = {address, number, 0, rkey}; });
        });
  offer(newer::qp_ex_with_flush, newest.wr_flush,
        [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, std::size_t length,
           std::uint8_t placements, std::uint8_t level) {
          const std::uint64_t how = std::uint64_t{level} << 8 | placements;
          begin(to, newer::wr_flush,
                [=](ibv_send_wr& request) { request.wr.atomic = {address, how, length, rkey}; });
        });
}

int check_extended(const ibv_context* verbs, const ibv_qp_init_attr_ex& asked) noexcept {
  constexpr std::uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                  IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_IND_TABLE |
                                  IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto given = [&](std::uint32_t attribute) { return (asked.comp_mask & attribute) != 0; };
  if ((asked.comp_mask & ~known) != 0 ||
      (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && asked.create_flags != 0))
    return EOPNOTSUPP;
  const bool receives_for_xrc = asked.qp_type == IBV_QPT_XRC_RECV;
  if (!receives_for_xrc && (!given(IBV_QP_INIT_ATTR_PD) || asked.pd->context != verbs))
    return EINVAL;
  constexpr std::uint64_t atomics = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                    newer::qp_ex_with_atomic_write;
  if (given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (asked.send_ops_flags & atomics) != 0 &&
      !soft_device_of(verbs)->description().has_atomics)
    return EOPNOTSUPP;
  if (given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
      (asked.send_ops_flags & ~operations_known.send_ops_flags(service::of(asked.qp_type))) != 0)
    return EOPNOTSUPP;
  return 0;
}

}  // namespace

ibv_qp* inline_calls::create_qp_ex(ibv_context* verbs, ibv_qp_init_attr_ex* attributes) {
  SOFTVERBS_FAULT(ibv_create_qp_ex, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  if (const int error = check_extended(verbs, *attributes)) {
    errno = error;
    return nullptr;
  }
  if (asks_to_spread(*attributes)) {
    ibv_qp* pair = nullptr;
    if (const int error = create_spreading(device_context::of(verbs), *attributes, pair))
      errno = error;
    return pair;
  }
  if (attributes->qp_type == IBV_QPT_XRC_RECV) {
    ibv_qp* target = nullptr;
    if (const int error = create_target(device_context::of(verbs), *attributes, target))
      errno = error;
    return target;
  }
  std::unique_ptr<request_batch> batch;
  const bool builds = (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const auto* domain = static_cast<const protection_domain*>(attributes->pd);
  if (builds) batch.reset(new (std::nothrow) request_batch(domain->thread != nullptr));
  if (builds && !batch) {
    errno = ENOMEM;
    return nullptr;
  }
  // The extended structure begins with the members of the plain one; verbs.h relies on that, too.
  ibv_qp* created =
      inline_calls::create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr*>(attributes));
  if (created == nullptr || !builds) return created;
  auto& pair = *static_cast<queue_pair*>(created);
  pair.batch = std::move(batch);
  make_buildable(pair, attributes->send_ops_flags);
  return created;
}

SOFTVERBS_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) {
  if (!is_soft(pair)) return SOFTVERBS_NEXT(ibv_qp_to_qp_ex)(pair);
  SOFTVERBS_FAULT(ibv_qp_to_qp_ex, nullptr);
  queue_pair* const ours = &softverbs::behind(pair);
  return ours->batch ? ours->extended() : nullptr;
}
