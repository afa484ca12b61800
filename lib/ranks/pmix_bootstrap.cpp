// SPDX-License-Identifier: Apache-2.0
#include "base/wait_notified.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/ranks/pmix_bootstrap.hpp>

#ifdef VERBSPP_HAS_PMIX
#include <pmix.h>
#endif

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace verbspp {

#ifdef VERBSPP_HAS_PMIX

namespace {

/// The error that reports a PMIx status, with its number.
[[nodiscard]] error failed(const char* operation, pmix_status_t status) noexcept {
  return detail::error_in_words_of(
      error_kind::driver, operation,
      "PMIx returned status %d (defined in pmix_common.h): see the launcher's output", status);
}

/// An answer that may arrive when no thread is waiting for it any more.
struct answer {
  std::mutex lock{};
  std::condition_variable came{};
  bool is_there = false;
  pmix_status_t status = PMIX_SUCCESS;
  std::vector<std::byte> bytes{};
};

/// Creates a reference to the answer, which the callback receives and deletes.
[[nodiscard]] void* share(const std::shared_ptr<answer>& of) {
  return new std::shared_ptr<answer>(of);
}
void tell(void* shared, pmix_status_t status, const pmix_value_t* value) noexcept {
  const std::unique_ptr<std::shared_ptr<answer>> mine(
      static_cast<std::shared_ptr<answer>*>(shared));
  answer& to = **mine;
  const std::lock_guard guard(to.lock);
  to.status = status;
  if (value != nullptr && value->type == PMIX_BYTE_OBJECT) {
    const auto* const first = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
    to.bytes.assign(first, first + value->data.bo.size);
  }
  to.is_there = true;
  to.came.notify_all();
}
/// \returns true if the answer has arrived
[[nodiscard]] bool wait_for(answer& what, const wait_limit& limit) {
  std::unique_lock guard(what.lock);
  return detail::wait_notified(what.came, guard, limit, [&]() noexcept { return what.is_there; });
}

}  // namespace

namespace detail {

/// The connection of this process to its launcher.
class [[gnu::visibility("hidden")]] pmix_session {
 public:
  pmix_session() noexcept = default;
  pmix_session(const pmix_session&) = delete;
  pmix_session& operator=(const pmix_session&) = delete;
  ~pmix_session() {
    if (is_open_) PMIx_Finalize(nullptr, 0);
  }

  [[nodiscard]] result<void> open() noexcept {
    const pmix_status_t status = PMIx_Init(&self_, nullptr, 0);
    if (status != PMIX_SUCCESS) return failed("PMIx_Init", status);
    is_open_ = true;
    pmix_proc_t all = self_;
    all.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* size = nullptr;
    const pmix_status_t got = PMIx_Get(&all, PMIX_JOB_SIZE, nullptr, 0, &size);
    if (got != PMIX_SUCCESS) return failed("PMIx_Get (size of the job)", got);
    size_ = size->data.uint32;
    PMIX_VALUE_RELEASE(size);
    return success();
  }

  [[nodiscard]] std::uint32_t rank() const noexcept { return self_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) {
    if (key.size() > PMIX_MAX_KEYLEN)
      return error::above_limit("PMIx_Put", "bytes of the key", key.size(), PMIX_MAX_KEYLEN);
    std::vector<std::byte> bytes(value.begin(), value.end());
    pmix_value_t given;
    PMIX_VALUE_CONSTRUCT(&given);
    given.type = PMIX_BYTE_OBJECT;
    given.data.bo.bytes = reinterpret_cast<char*>(bytes.data());
    given.data.bo.size = bytes.size();
    // PMIx copies the value.
    const pmix_status_t status = PMIx_Put(PMIX_GLOBAL, std::string(key).c_str(), &given);
    if (status != PMIX_SUCCESS) return failed("PMIx_Put", status);
    return success();
  }

  [[nodiscard]] group_result<void> fence(const wait_limit& limit) {
    const pmix_status_t committed = PMIx_Commit();
    if (committed != PMIX_SUCCESS) return failed("PMIx_Commit", committed);
    const auto told = std::make_shared<answer>();
    void* const shared = share(told);
    const pmix_status_t status = PMIx_Fence_nb(
        nullptr, 0, nullptr, 0,
        [](pmix_status_t came, void* to) noexcept { tell(to, came, nullptr); }, shared);
    // This status means that the fence is complete already, so PMIx does not call the callback.
    if (status == PMIX_OPERATION_SUCCEEDED) tell(shared, PMIX_SUCCESS, nullptr);
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
      delete static_cast<std::shared_ptr<answer>*>(shared);
      return failed("PMIx_Fence", status);
    }
    if (!wait_for(*told, limit))
      return limit.failure("PMIx_Fence",
                           "PMIx has not completed the fence, and does not report which ranks have "
                           "not reached it: see the output of the processes");
    if (told->status != PMIX_SUCCESS) return failed("PMIx_Fence", told->status);
    return success();
  }

  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into, const wait_limit& limit) {
    if (key.size() > PMIX_MAX_KEYLEN)
      return error::above_limit("PMIx_Get", "bytes of the key", key.size(), PMIX_MAX_KEYLEN);
    pmix_proc_t whose = self_;
    whose.rank = rank;
    const auto told = std::make_shared<answer>();
    void* const shared = share(told);
    const pmix_status_t status = PMIx_Get_nb(
        &whose, std::string(key).c_str(), nullptr, 0,
        [](pmix_status_t came, pmix_value_t* value, void* to) noexcept { tell(to, came, value); },
        shared);
    if (status != PMIX_SUCCESS) {
      delete static_cast<std::shared_ptr<answer>*>(shared);
      return failed("PMIx_Get", status);
    }
    if (!wait_for(*told, limit))
      return limit.failure("PMIx_Get",
                           "PMIx has not returned the value of that rank: see the output of its "
                           "process, and of the launcher");
    if (told->status == PMIX_ERR_NOT_FOUND)
      return error(error_kind::not_found, "PMIx_Get",
                   "that rank has put no value with this key, or the world has no such rank: a "
                   "rank must put its value before the fence, and others get it after the fence");
    if (told->status != PMIX_SUCCESS) return failed("PMIx_Get", told->status);
    return copy_value(told->bytes, into);
  }

 private:
  pmix_proc_t self_{};
  std::uint32_t size_ = 0;
  bool is_open_ = false;
};

}  // namespace detail

result<pmix_bootstrap> pmix_bootstrap::open() noexcept {
  if (!is_launched())
    return error(error_kind::not_found, "PMIx_Init",
                 "PMIX_RANK or PMIX_NAMESPACE is not set: start this process with a launcher that "
                 "supports PMIx, such as mpirun of Open MPI, prun, or srun --mpi=pmix");
  return detail::without_exceptions("PMIx_Init", [&]() -> result<pmix_bootstrap> {
    auto session = std::make_shared<detail::pmix_session>();
    VERBSPP_TRYV(session->open());
    return pmix_bootstrap(std::move(session));
  });
}

#else

namespace detail {

/// The session in a library without PMIx.
class [[gnu::visibility("hidden")]] pmix_session {
 public:
  [[nodiscard]] static error none() noexcept {
    return {error_kind::not_supported, "pmix_bootstrap",
            "verbspp-ranks was built without PMIx: build it with the Meson option pmix"};
  }
  [[nodiscard]] static std::uint32_t rank() noexcept { return 0; }
  [[nodiscard]] static std::uint32_t size() noexcept { return 0; }
  [[nodiscard]] static result<void> put(std::string_view /*key*/,
                                        std::span<const std::byte> /*value*/) noexcept {
    return none();
  }
  [[nodiscard]] static group_result<void> fence(const wait_limit& /*limit*/) noexcept {
    return none();
  }
  [[nodiscard]] static result<std::size_t> get(std::uint32_t /*rank*/, std::string_view /*key*/,
                                               std::span<std::byte> /*into*/,
                                               const wait_limit& /*limit*/) noexcept {
    return none();
  }
};

}  // namespace detail

result<pmix_bootstrap> pmix_bootstrap::open() noexcept { return detail::pmix_session::none(); }

#endif

pmix_bootstrap::pmix_bootstrap(std::shared_ptr<detail::pmix_session> session) noexcept
    : session_(std::move(session)) {}

bool pmix_bootstrap::is_launched() noexcept {
  return std::getenv("PMIX_RANK") != nullptr && std::getenv("PMIX_NAMESPACE") != nullptr;
}

std::uint32_t pmix_bootstrap::rank() const noexcept { return session_ ? session_->rank() : 0; }

std::uint32_t pmix_bootstrap::size() const noexcept { return session_ ? session_->size() : 0; }

result<void> pmix_bootstrap::put(std::string_view key, std::span<const std::byte> value) noexcept {
  if (!session_) return detail::moved_from_bootstrap("PMIx_Put");
  return detail::without_exceptions("PMIx_Put", [&] { return session_->put(key, value); });
}

group_result<void> pmix_bootstrap::fence(const wait_limit& limit) noexcept {
  if (!session_) return detail::moved_from_bootstrap("PMIx_Fence");
  return detail::without_exceptions("PMIx_Fence", [&] { return session_->fence(limit); });
}

result<std::size_t> pmix_bootstrap::get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept {
  if (!session_) return detail::moved_from_bootstrap("PMIx_Get");
  return detail::without_exceptions("PMIx_Get",
                                    [&] { return session_->get(rank, key, into, limit); });
}

}  // namespace verbspp
