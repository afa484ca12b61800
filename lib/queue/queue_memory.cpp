// SPDX-License-Identifier: Apache-2.0
#include "queue/queue_memory.hpp"

#include <sys/resource.h>

#include <cerrno>

namespace verbspp::detail {

const char* advice_on_queue_memory(int errnum) noexcept {
  if (errnum != ENOMEM) return nullptr;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
    return "queues usually occupy locked memory: raise the limit (`ulimit -l`, "
           "/etc/security/limits.conf, LimitMEMLOCK= of systemd), or create fewer or shorter "
           "queues; if that does not help, the device, the machine or the cgroup of the process is "
           "out of memory, or has reached its limit of such objects (`rdma resource`)";
  return "RLIMIT_MEMLOCK is unlimited, so the device, the machine or the cgroup of the process is "
         "out of memory, or has reached its limit of such objects: `rdma resource` counts them";
}

}  // namespace verbspp::detail
