// SPDX-License-Identifier: Apache-2.0
#include "device/async_events.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <array>
#include <cassert>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <ostream>
#include <string>
#include <utility>

namespace verbspp::detail {

namespace {

error moved_from(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this queue pair was moved from"};
}

}  // namespace

namespace {

/// Asserts that this thread's innermost batch is not for the queue pair. That batch is posted only
/// after it was built, so the queue pair must not be moved or destroyed until then.
void assert_not_posted_later([[maybe_unused]] const ibv_qp* queue_pair) noexcept {
  assert((queue_pair == nullptr || queue_pair_in_batch != queue_pair) &&
         "a queue pair was moved or destroyed in the function that its post_batch calls: do so "
         "only after post_batch has returned");
}

}  // namespace

queue_pair_owner::queue_pair_owner(queue_pair_owner&& other) noexcept
    : native_(std::exchange(other.native_, nullptr)),
      extended_(std::exchange(other.extended_, nullptr)),
      whose_(other.whose_),
      domain_(std::move(other.domain_)),
      send_queue_(std::move(other.send_queue_)),
      receive_queue_(std::move(other.receive_queue_)),
      receives_(std::move(other.receives_)),
      groups_(std::move(other.groups_)) {
  assert_not_posted_later(native_);
}

queue_pair_owner& queue_pair_owner::operator=(queue_pair_owner&& other) noexcept {
  // `other` is moved out first, so that self-assignment changes nothing. The destructor of `taken`
  // then destroys the previous queue pair.
  queue_pair_owner taken(std::move(other));
  std::swap(native_, taken.native_);
  std::swap(extended_, taken.extended_);
  std::swap(whose_, taken.whose_);
  std::swap(domain_, taken.domain_);
  std::swap(send_queue_, taken.send_queue_);
  std::swap(receive_queue_, taken.receive_queue_);
  std::swap(receives_, taken.receives_);
  std::swap(groups_, taken.groups_);
  return *this;
}

queue_pair_data::queue_pair_data(queue_pair_data&& other) noexcept
    : owner(std::move(other.owner)),
      local(std::exchange(other.local, {})),
      capacities(std::exchange(other.capacities, {})),
      parameters(std::exchange(other.parameters, {})) {}

queue_pair_data& queue_pair_data::operator=(queue_pair_data&& other) noexcept {
  owner = std::move(other.owner);
  local = std::exchange(other.local, {});
  capacities = std::exchange(other.capacities, {});
  parameters = std::exchange(other.parameters, {});
  return *this;
}

queue_pair_owner::~queue_pair_owner() {
  if (native_ == nullptr) return;
  assert_not_posted_later(native_);
  for (; groups_; groups_ = std::move(groups_->next)) {
    const ibv_gid address = groups_->address.native();
    report_release(errno_of(ibv_detach_mcast(native_, &address, groups_->multicast_lid.value())),
                   "ibv_detach_mcast");
  }
  if (whose_ != ownership::taken) return;
  const std::uint32_t number = native_->qp_num;
  report_destroy(native_, errno_of(ibv_destroy_qp(native_)), "ibv_destroy_qp");
  forget_async_events(domain_.context(), async_event_element::queue_pair, number);
}

ibv_qp* queue_pair_owner::release() noexcept {
  // Releases the references to the parents, and the memory for the multicast groups.
  queue_pair_owner rest(std::move(*this));
  return std::exchange(rest.native_, nullptr);
}

result<void> queue_pair_owner::join(const gid& group, lid multicast_lid) noexcept {
  constexpr const char* operation = "ibv_attach_mcast";
  if (native_ == nullptr) return moved_from(operation);
  if (!group.is_multicast())
    return error(
        error_kind::invalid_input, operation,
        "this is not the GID of a multicast group: such a GID begins with ff, or is a mapped IPv4 "
        "multicast address such as ::ffff:239.1.2.3");
  // The kernel ignores a second attachment to the same group, so the library refuses it here.
  for (const multicast_group* each = groups_.get(); each != nullptr; each = each->next.get())
    if (each->address == group && each->multicast_lid == multicast_lid)
      return error(error_kind::invalid_input, operation,
                   "the queue pair has already joined this group");
  owned<multicast_group> joined(new (std::nothrow) multicast_group{group, multicast_lid, {}});
  if (!joined) return error::from_errno(ENOMEM, operation);
  const ibv_gid address = group.native();
  const int errnum = errno_of(ibv_attach_mcast(native_, &address, multicast_lid.value()));
  if (errnum != 0)
    return error::from_errno(
        errnum, operation,
        errnum == EINVAL
            ? "the driver rejected the group; on InfiniBand, usually because the LID is not that "
              "of a multicast group (0xc000..0xfffe)"
            : nullptr);
  joined->next = std::move(groups_);
  groups_ = std::move(joined);
  return success();
}

result<void> queue_pair_owner::leave(const gid& group, lid multicast_lid) noexcept {
  constexpr const char* operation = "ibv_detach_mcast";
  if (native_ == nullptr) return moved_from(operation);
  owned<multicast_group>* link = &groups_;
  while (*link && ((*link)->address != group || (*link)->multicast_lid != multicast_lid))
    link = &(*link)->next;
  if (!*link)
    return error(error_kind::not_found, operation,
                 "the queue pair has not joined this group with this LID through join_multicast");
  const ibv_gid address = group.native();
  const int errnum = errno_of(ibv_detach_mcast(native_, &address, multicast_lid.value()));
  if (errnum != 0) return error::from_errno(errnum, operation);
  *link = std::move((*link)->next);
  return success();
}

result<queue_pair_status> query(ibv_qp* native) noexcept {
  if (native == nullptr) return moved_from("ibv_query_qp");
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  constexpr int everything =
      IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
      IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
      IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
      IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN;
  const int errnum = errno_of(ibv_query_qp(native, &attributes, everything, &initial));
  if (errnum != 0) return error::from_errno(errnum, "ibv_query_qp");
  return queue_pair_status(attributes, initial);
}

void print(std::ostream& out, const queue_pair_data& queue_pair, queue_pair_state state) {
  if (queue_pair.owner.native() == nullptr) {
    out << "queue pair that was moved from";
    return;
  }
  out << queue_pair.local << ", " << to_string(state) << ", device "
      << queue_pair.owner.domain().context().device_name();
}

}  // namespace verbspp::detail
