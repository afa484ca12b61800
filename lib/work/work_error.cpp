// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/work_error.hpp>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ostream>

namespace verbspp {

namespace {

struct status_description {
  work_status status;
  work_error_class error_class;
  const char* name;
  const char* hint;
};

// `transport` is left out, because it is also the name of a type.
using work_error_class::fatal;
using work_error_class::local_programming;
using work_error_class::local_resource;
using work_error_class::remote;
using work_error_class::timeout;
using work_error_class::unknown;

constexpr const char* only_reliable_datagrams =
    "the InfiniBand specification defines this status only for reliable datagrams, which verbspp "
    "does not support: see the vendor code";

constexpr std::array statuses{
    status_description{work_status::success, unknown, "success", "nothing failed"},
    status_description{work_status::local_length_error, local_programming, "local length error",
                       "the message is longer than the receive posted for it, or than the port "
                       "allows; post larger receives, or send shorter messages"},
    status_description{
        work_status::local_queue_pair_operation_error, local_programming,
        "local queue pair operation error",
        "usually the request itself is inconsistent: check its elements, opcode and flags, whether "
        "the queue pair's type and read depth permit the operation, and whether the address handle "
        "or the rkey to invalidate is valid in the queue pair's protection domain"},
    status_description{work_status::local_ee_context_operation_error, local_programming,
                       "local EE context operation error", only_reliable_datagrams},
    status_description{
        work_status::local_protection_error, local_programming, "local protection error",
        "a scatter-gather element is not covered by its lkey: usually the lkey is wrong, the "
        "region was deregistered, the range is out of bounds, the region belongs to another "
        "protection domain, or the region lacks local write for a receive, a read or an atomic "
        "operation"},
    status_description{
        work_status::flushed, work_error_class::flushed, "flushed",
        "the request was aborted, though it may have been executed: the queue pair is in an error "
        "state; the cause is the first completion that failed with another status, an asynchronous "
        "event, or a call that moved the queue pair to ERR, such as to_error() or close()"},
    status_description{
        work_status::memory_window_bind_error, local_programming, "memory window bind error",
        "a bind or an invalidation failed: check the rkey to invalidate or, for a bind, that the "
        "window, the queue pair and the region, which needs access::window_bind, belong to the "
        "same protection domain, and that a window of type 2 has been invalidated since its last "
        "bind; after a failed bind, replace the window, because its rkey is unknown"},
    status_description{work_status::bad_response_error, work_error_class::transport,
                       "bad response error",
                       "the peer responded with an unexpected packet: check that both ends are "
                       "connected to each other, with matching PSNs"},
    status_description{
        work_status::local_access_error, local_programming, "local access error",
        "usually the peer's RDMA write with immediate data violated the protection of this side's "
        "memory: check the address and length of the write, and the rights granted to the peer"},
    status_description{work_status::remote_invalid_request_error, remote,
                       "remote invalid request error",
                       "the peer could not accept the request or, for a receive, this side could "
                       "not accept the peer's: usually the receive is too short, the queue pair "
                       "does not allow the operation, or there are more reads and atomic "
                       "operations at once than it allows"},
    status_description{work_status::remote_access_error, remote, "remote access error",
                       "the peer denied the access or, for a receive, this side denied the peer's: "
                       "usually the rkey is stale or wrong, the range is out of bounds, the memory "
                       "or the queue pair does not grant the right, or the two are in different "
                       "protection domains"},
    status_description{work_status::remote_operation_error, remote, "remote operation error",
                       "the peer failed while it executed the request, usually because of a bad "
                       "receive buffer at its end; check the peer's completions"},
    status_description{work_status::retry_exceeded, timeout, "transport retry exceeded",
                       "the peer did not respond: usually it no longer exists, is not connected to "
                       "this queue pair, or is unreachable (address, GID type, MTU or PSN differ, "
                       "or the path does not carry packets of this MTU), or each attempt was lost; "
                       "the device waits at least ACK timeout x (retry count + 1) for a response"},
    status_description{work_status::receiver_not_ready_retry_exceeded, timeout,
                       "receiver not ready, retry exceeded",
                       "the peer had no receive posted in time: post receives at the peer before "
                       "its handshake, post more of them there, or raise the RNR retry count here"},
    status_description{work_status::local_rdd_violation_error, local_programming,
                       "local RDD violation error", only_reliable_datagrams},
    status_description{work_status::remote_invalid_rd_request, remote, "remote invalid RD request",
                       only_reliable_datagrams},
    status_description{work_status::remote_aborted, remote, "remote aborted",
                       "the peer aborted the operation"},
    status_description{work_status::invalid_ee_context_number, local_programming,
                       "invalid EE context number", only_reliable_datagrams},
    status_description{work_status::invalid_ee_context_state, local_programming,
                       "invalid EE context state", only_reliable_datagrams},
    status_description{work_status::fatal, fatal, "fatal error",
                       "the device or the queue pair failed: see the kernel's log"},
    status_description{
        work_status::response_timeout, timeout, "response timeout",
        "the peer did not respond to the request: check that it is still running, and check the "
        "path to it"},
    status_description{work_status::general_error, local_resource, "general error",
                       "a failure that has no status of its own: see the vendor code and the "
                       "kernel's log"},
    status_description{work_status::tag_matching_error, local_resource, "tag matching error",
                       "an operation on the list of tags failed, usually because a message had "
                       "already used the tag that was to be removed"},
    status_description{work_status::tag_matching_rendezvous_incomplete, local_resource,
                       "tag matching rendezvous incomplete", "software must finish the rendezvous"},
};

constexpr status_description unknown_status{work_status::general_error, unknown, "unknown status",
                                            "this library does not know the status; see "
                                            "ibv_wc_status of the installed libibverbs"};

const status_description& describe(work_status status) noexcept {
  for (const status_description& each : statuses)
    if (each.status == status) return each;
  return unknown_status;
}

}  // namespace

const char* to_string(work_operation operation) noexcept {
  switch (operation) {
    case work_operation::send:
      return "send";
    case work_operation::rdma_write:
      return "RDMA write";
    case work_operation::rdma_read:
      return "RDMA read";
    case work_operation::compare_and_swap:
      return "compare and swap";
    case work_operation::fetch_and_add:
      return "fetch and add";
    case work_operation::bind_memory_window:
      return "bind memory window";
    case work_operation::local_invalidate:
      return "local invalidate";
    case work_operation::flush:
      return "flush";
    case work_operation::atomic_write:
      return "atomic write";
    case work_operation::receive:
      return "receive";
    case work_operation::receive_of_rdma_write:
      return "receive of RDMA write";
  }
  return "unknown operation";
}

const char* to_string(work_status status) noexcept { return describe(status).name; }

const char* to_string(work_error_class kind) noexcept {
  switch (kind) {
    case local_programming:
      return "local programming error";
    case local_resource:
      return "local resource";
    case remote:
      return "remote";
    case work_error_class::transport:
      return "transport";
    case timeout:
      return "timeout";
    case work_error_class::flushed:
      return "flushed";
    case fatal:
      return "fatal";
    case unknown:
      return "unknown";
  }
  return "unknown";
}

work_error_class work_error::error_class() const noexcept { return describe(status_).error_class; }

const char* work_error::hint() const noexcept {
  return cause_ != nullptr ? cause_ : describe(status_).hint;
}

namespace {

/// The errno for a failed request.
int errno_of(work_error_class kind) noexcept {
  switch (kind) {
    case local_programming:
      return EINVAL;
    case local_resource:
    case fatal:
    case unknown:
      return EIO;
    case remote:
      return EREMOTEIO;
    case work_error_class::transport:
      return EPROTO;
    case timeout:
      return ETIMEDOUT;
    case work_error_class::flushed:
      return ECANCELED;
  }
  return EIO;
}

// The facts of an error are stored in three words: the wr_id; the status and the vendor code; the
// numbers of both queue pairs, of 24 bits each, and the operation. The operation is stored as its
// number plus 1, so that 0 means that it is unknown.
constexpr int peer_at = 24;
constexpr int operation_at = 48;
constexpr detail::error_source failed_work{
    [](const error& e, std::span<char> buffer) noexcept {
      return work_error::from(e)->format(buffer);
    },
    [](const error& e) noexcept { return errno_of(work_error::from(e)->error_class()); }};

constexpr std::uint64_t pair_of(std::uint64_t low, std::uint64_t high) noexcept {
  return low | high << 32;
}
constexpr std::uint32_t low(std::uint64_t pair) noexcept {
  return static_cast<std::uint32_t>(pair);
}
constexpr std::uint32_t high(std::uint64_t pair) noexcept { return low(pair >> 32); }

}  // namespace

work_error::operator error() const noexcept {
  const std::uint64_t operation =
      operation_ ? std::uint64_t{static_cast<std::uint32_t>(*operation_)} + 1 : 0;
  return detail::error_access::made(
      failed_work, operation_ ? to_string(*operation_) : "work request", hint(),
      {wr_id_, pair_of(static_cast<std::uint32_t>(status_), vendor_code_),
       queue_pair_number().value() | std::uint64_t{peer_} << peer_at | operation << operation_at});
}

std::optional<work_error> work_error::from(const error& e) noexcept {
  if (!detail::error_access::is_from(failed_work, e)) return std::nullopt;
  const auto facts = detail::error_access::facts(e);
  work_error result(static_cast<work_status>(low(facts[1])), high(facts[1]), facts[0],
                    low(facts[2]) & verbspp::queue_pair_number::maximum);
  result.peer_ = low(facts[2] >> peer_at) & verbspp::queue_pair_number::maximum;
  if (const std::uint32_t operation = low(facts[2] >> operation_at); operation != 0)
    result.operation_ = static_cast<work_operation>(operation - 1);
  if (e.hint() != result.hint()) result.cause_ = e.hint();
  return result;
}

std::size_t work_error::format(std::span<char> buffer) const noexcept {
  const status_description& description = describe(status_);
  std::array<char, 40> peer{};
  if (peer_ != 0)
    std::snprintf(peer.data(), peer.size(), ", peer's queue pair 0x%06" PRIx32, peer_);
  const int length = std::snprintf(
      buffer.data(), buffer.size(),
      "%s: %s (status %u, vendor code 0x%" PRIx32 ", wr_id %" PRIu64 ", queue pair 0x%06" PRIx32
      "%s); %s%s",
      operation_ ? to_string(*operation_) : "work request", description.name,
      static_cast<unsigned>(status_), vendor_code_, wr_id_, queue_pair_number_, peer.data(),
      cause_ != nullptr ? "the connection had already ended: " : "", hint());
  return length < 0 ? 0 : static_cast<std::size_t>(length);
}

std::string work_error::message() const {
  std::string text(format({}), '\0');
  format({text.data(), text.size() + 1});
  return text;
}

std::ostream& operator<<(std::ostream& out, const work_error& e) { return out << e.message(); }

work_exception::work_exception(const work_error& cause)
    : std::system_error(std::make_error_code(std::errc::io_error)), error_(cause) {
  error_.format(text_);
}

void work_error::raise() const {
#if defined(__cpp_exceptions)
  throw work_exception(*this);
#else
  std::array<char, 512> line{};
  format(line);
  std::fprintf(stderr,
               "verbspp: an error was raised (usually by value() of a failed result) in a build "
               "without exceptions, so the program aborts: %s\n",
               line.data());
  std::abort();
#endif
}

}  // namespace verbspp
