// SPDX-License-Identifier: Apache-2.0
#include "verbs/command_file.hpp"

#include "base/sealed_file.hpp"
#include "memory/protection_domain.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

namespace softverbs {
namespace {

/// The contents of the file, by which `is_command_file` recognizes it.
constexpr std::string_view mark = "commands of a soft device\n";

}  // namespace

void command_file::part(const ibv_context& closing) noexcept {
  ibv_context* const heir = contexts.front();
  const auto is_gone = [&closing](const ibv_pd* domain) { return domain->context == &closing; };
  const auto shared = [](protection_domain* domain) -> shared_domain& {
    while (domain->is_parent_domain()) domain = domain->below;
    return *domain->of;
  };
  for (const protection_domain* domain : domains) domain->of->heir = nullptr;
  for (protection_domain* domain : domains)
    if (!domain->is_parent_domain() && !is_gone(domain)) domain->of->heir = domain;
  for (protection_domain* domain : domains)
    if (!domain->is_parent_domain() && domain->of->heir == nullptr && !domain->of->destroyed)
      domain->of->heir = domain;
  // Moves regions to a remaining structure that refers to the same domain of the device.
  for (memory_region* region : regions)
    if (region->is_object() && is_gone(region->pd)) {
      auto* const from = static_cast<protection_domain*>(region->pd);
      protection_domain* const to = shared(from).heir;
      --from->children;
      ++to->children;
      region->pd = to;
    }
  // A parent domain belongs to a single context, and is a child of the domain below it.
  for (const protection_domain* domain : domains)
    if (is_gone(domain) && domain->is_parent_domain()) {
      --domain->below->children;
      --domains_alive;
    }
  std::erase_if(domains, [&](protection_domain* domain) {
    if (!is_gone(domain)) return false;
    if (domain->of->heir == domain) {
      domain->context = heir;
      domain->unimported = true;
      return false;
    }
    delete domain;
    return true;
  });
  regions.part(&closing, heir);
  memories.part(&closing, heir);
}

void command_file::clear() noexcept {
  regions.clear();
  memories.clear();
  for (const protection_domain* domain : domains) delete domain;
  domains.clear();
  domains_alive = 0;
}

int identify(int descriptor, command_file& file) noexcept {
  struct stat found{};
  if (::fstat(descriptor, &found) != 0) return errno;
  file.system = found.st_dev;
  file.number = found.st_ino;
  return 0;
}

int open_command_file() noexcept {
  const int descriptor = open_sealed_file(mark);
  // A program that reads from the descriptor sees the end of the file immediately.
  if (descriptor >= 0) ::lseek(descriptor, 0, SEEK_END);
  return descriptor;
}

bool is_command_file(int descriptor) noexcept {
  std::array<char, mark.size() + 1> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  return size == static_cast<ssize_t>(mark.size()) &&
         std::string_view(text.data(), mark.size()) == mark &&
         (::fcntl(descriptor, F_GET_SEALS) & F_SEAL_WRITE) != 0;
}

}  // namespace softverbs
