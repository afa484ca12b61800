// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "outcome.hpp"
#include "soak.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace verbspp::soak {

/// Injects random faults into softverbs. The constructor throws if softverbs is not loaded.
class fault_maker {
 public:
  explicit fault_maker(std::uint64_t seed) : random_(seed) {
    inject_ = reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_DEFAULT, "softverbs_inject"));
    reset_ = reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "softverbs_reset_faults"));
    if (inject_ == nullptr || reset_ == nullptr)
      throw wrong("--faults needs softverbs, which is not loaded");
  }
  ~fault_maker() { reset_(); }
  fault_maker(const fault_maker&) = delete;
  fault_maker& operator=(const fault_maker&) = delete;

  void set_one() {
    static constexpr std::array<const char*, 14> all{
        "packet:%u=lost",
        "packet:%u=lost",
        "packet:%u=lost",
        "completion:%u=3ms",
        "receive-completion:%u=1ms",
        "send-completion:%u=rem_access_err",
        "completion:%u=rem_op_err/0x89",
        "send-completion:%u=retry_exc_err",
        "receive-completion:%u=loc_len_err",
        "ibv_post_send:%u=ENOMEM",
        "ibv_post_recv:%u=ENOMEM",
        "ibv_modify_qp:%u=EIO",
        "ibv_poll_cq:%u=EIO",
        "ibv_poll_cq:%u=2ms",
    };
    std::array<char, 100> text{};
    std::snprintf(text.data(), text.size(), all[random_() % all.size()],
                  static_cast<unsigned>(random_() % 300 + 1));
    if (inject_(text.data()) != 0) throw wrong(std::string("softverbs rejects ") + text.data());
    ++set_;
  }
  [[nodiscard]] std::uint64_t count() const { return set_; }

 private:
  std::mt19937_64 random_;
  int (*inject_)(const char*) = nullptr;
  void (*reset_)() = nullptr;
  std::uint64_t set_ = 0;
};

}  // namespace verbspp::soak
