// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ways in which an end closes or breaks a connection on purpose.
#include "operations.hpp"

#include <chrono>
#include <stop_token>
#include <type_traits>

namespace verbspp::soak {

void end::give_up_at_random() {
  const auto tiny = std::chrono::microseconds(any(2000));
  const auto marked = limits_.mark();
  const auto now = clock::now();
  switch (any(kill_peer_ ? 12 : 8)) {
    case 0: {
      will_end("a short limit for a receive");
      if (receives_.empty()) return;
      awaited one = std::move(receives_.front());
      receives_.pop_front();
      std::visit(
          [&](auto& handle) {
            using type = std::remove_cvref_t<decltype(handle)>;
            if constexpr (std::is_same_v<type, std::monostate>) {
              return;
            } else if constexpr (std::is_same_v<type, pending<private_memory>>) {
              auto done = handle.wait(tiny);
              take_receive(one, done.result);
              give_owned(std::move(done.memory), one.where);
            } else {
              take_receive(one, handle.wait(tiny));
            }
          },
          one.handle);
      limits_.note(now + tiny, marked, "a receive");
      return;
    }
    case 1: {
      will_end("a stop request");
      std::stop_source source;
      source.request_stop();
      if (held_.empty()) return;
      held one = std::move(held_.back());
      held_.pop_back();
      std::visit(
          [&](auto& handle) {
            using type = std::remove_cvref_t<decltype(handle)>;
            auto done = handle.wait(source.get_token());
            if constexpr (std::is_same_v<type, pending<private_memory>>) {
              take_finished(one, done.result);
              give_owned(std::move(done.memory), one.job.where);
            } else if constexpr (std::is_same_v<type, pending<private_part>>) {
              take_finished(one, done.result);
              give_owned(std::move(done.memory).buffer(), one.job.where);
            } else {
              take_finished(one, done);
            }
          },
          one.handle);
      limits_.note(now, marked, "a wait whose stop was requested");
      return;
    }
    case 2:
      will_end("close");
      must(channel_.close(), "close");
      return;
    case 3:
      will_end("a channel destroyed");
      channel_ = channel();
      return;
    case 4: {
      will_end("ERR through the native handle");
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_ERR;
      if (channel_.native_handle() != nullptr)
        static_cast<void>(ibv_modify_qp(channel_.native_handle(), &attributes, IBV_QP_STATE));
      return;
    }
    case 5: {
      will_end("a short limit for a scope");
      std::vector<work> jobs;
      const auto ended = channel_.scope(
          [&](channel_scope& scope) -> result<void> {
            for (int i = 0; i < 12; ++i) {
              work job;
              if (!choose(job, true)) continue;
              const auto posted =
                  with_operation(job, [&](const auto& what) { return post(scope, what); });
              if (!posted.has_value()) {
                undo(job);
                return posted.error();
              }
              count_posted(job);
              jobs.push_back(job);
            }
            return success();
          },
          tiny / 8);
      limits_.note(now + tiny / 8, marked, "a scope");
      if (!ended.has_value()) {
        note_failure(ended.error(), "a scope with a short limit");
        check_refused(ended.error(), "a scope with a short limit");
      }
      return settle_all(jobs,
                        ended.has_value() || (!ended.error().work() && channel_.is_connected()));
    }
    case 6: {
      will_end("renewed while connected");
      const auto renewed = channel_.renew();
      if (renewed.has_value()) must(channel_.close(), "close");
      return;
    }
    case 7: {
      if (wants_uc_) return;  // the target of a failed UC write sends no response
      will_end("a wrong key");
      const peer_memory wrong_key(far_->address(), far_->length(),
                                  remote_key(far_->rkey().value() ^ 0x5a5a));
      const std::uint64_t value = 0;
      const auto done = channel_.write({.elements = inline_payload(value), .remote = wrong_key});
      claim(!done.has_value(), "a write with a wrong key succeeded");
      note_failure(done.error(), "a write with a wrong key");
      check_refused(done.error(), "a write with a wrong key");
      return;
    }
    default:
      will_end("the peer killed");
      kill_peer_();
      peer_was_killed_ = true;
      other_.ended = other_.broken = connection_;
      other_.lease = other_.using_lease = 0;
      other_.reached = connection_ * 8 + static_cast<std::uint64_t>(step::closed);
  }
}

}  // namespace verbspp::soak
