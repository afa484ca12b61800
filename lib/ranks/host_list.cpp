// SPDX-License-Identifier: Apache-2.0
#include "ranks/hosts_text.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/ranks/host_list.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <ostream>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

constexpr std::size_t largest_hosts_file = std::size_t{16} << 20;

std::size_t format_wrong_entry(const error& e, std::span<char> buffer) noexcept {
  const auto facts = error_access::facts(e);
  const auto line = static_cast<unsigned>(facts[0] >> 32);
  const auto other = static_cast<unsigned>(facts[0]);
  std::array<char, 17> name{};
  std::memcpy(name.data(), &facts[1], 8);
  std::memcpy(name.data() + 8, &facts[2], 8);
  std::array<char, 32> on_line{};
  if (line != 0) std::snprintf(on_line.data(), on_line.size(), ", line %u", line);
  std::array<char, 32> as_on{};
  if (other != 0) std::snprintf(as_on.data(), as_on.size(), " (see line %u)", other);
  const bool is_named = name[0] != 0;
  const int length = std::snprintf(buffer.data(), buffer.size(), "%s%s: %s%s%s%s%s", e.operation(),
                                   on_line.data(), is_named ? "\"" : "", name.data(),
                                   is_named ? "\": " : "", e.hint(), as_on.data());
  return length < 0 ? 0 : static_cast<std::size_t>(length);
}

constexpr error_source source_of_wrong_entry{
    [](const error& e, std::span<char> buffer) noexcept { return format_wrong_entry(e, buffer); },
    [](const error& /*e*/) noexcept { return EINVAL; }};

[[nodiscard]] const char* objection(const host_entry& host) noexcept {
  if (host.name.empty()) return "a host must have a name";
  if (host.name.size() > host_list::longest_name)
    return "a host's name must be at most 253 bytes long";
  if (std::ranges::any_of(host.name, [](char c) {
        const auto code = static_cast<unsigned char>(c);
        return code <= ' ' || code == 0x7f || c == '[' || c == ']';
      }))
    return "a host's name must not contain spaces, control characters or brackets";
  if (host.ranks == 0)
    return "each host must have at least one rank: leave out hosts without ranks";
  return nullptr;
}

}  // namespace

error wrong_entry(const char* hint, std::uint32_t line, std::string_view name,
                  std::uint32_t other) noexcept {
  error_access::words facts{std::uint64_t{line} << 32 | other, 0, 0};
  // Spaces, and characters outside of printable ASCII, are replaced.
  std::array<char, 16> kept{};
  for (std::size_t i = 0; i < std::min(name.size(), kept.size()); ++i)
    kept[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
  std::memcpy(&facts[1], kept.data(), 8);
  std::memcpy(&facts[2], kept.data() + 8, 8);
  return error_access::made(source_of_wrong_entry, listing, hint, facts, error_kind::invalid_input);
}

}  // namespace detail

result<host_list> host_list::parse(std::string_view text) noexcept {
  return detail::without_exceptions(detail::listing, [&]() -> result<host_list> {
    VERBSPP_TRY(read, detail::read_hosts(text));
    const std::vector<std::uint32_t>& lines = read.lines;
    if (read.port == 0 || read.port > 65'535)
      return detail::wrong_entry("the port must be a number from 1 to 65535", read.port_line,
                                 "port");
    if (read.world.size() > longest_world)
      return detail::wrong_entry("the name of a world must be at most 40 bytes long",
                                 read.world_line, "world");
    std::map<std::string_view, std::size_t> known;
    for (std::size_t i = 0; i < read.hosts.size(); ++i) {
      const host_entry& host = read.hosts[i];
      if (const char* const wrong = detail::objection(host))
        return detail::wrong_entry(wrong, lines[i], host.name);
      const auto [other, is_new] = known.emplace(host.name, i);
      if (!is_new)
        return detail::wrong_entry(
            read.hosts[other->second].ranks == host.ranks
                ? "this host is listed twice"
                : "this host is listed twice, with different numbers of ranks",
            lines[i], host.name, lines[other->second]);
    }
    VERBSPP_TRY(made, from(read.hosts, static_cast<std::uint16_t>(read.port)));
    made.world_ = std::move(read.world);
    if (!read.size) return made;
    if (*read.size == 0 || *read.size > made.size())
      return detail::wrong_entry(
          "the size must be at least 1, and at most the number of ranks of all hosts",
          read.size_line, "size");
    return made.first(*read.size);
  });
}

result<host_list> host_list::read(const char* path) noexcept {
  return detail::without_exceptions(detail::listing, [&]() -> result<host_list> {
    struct closes {
      void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    const std::unique_ptr<std::FILE, closes> file(std::fopen(path, "rbe"));
    if (!file)
      return error::from_errno(
          errno, "open the list of hosts",
          kind_of_errno(errno) == error_kind::resource_exhausted
              ? nullptr
              : "check the path that the program or VERBSPP_HOSTS specifies, and its permissions");
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
      errno = 0;
      const std::size_t got = std::fread(part.data(), 1, part.size(), file.get());
      text.append(part.data(), got);
      if (std::ferror(file.get()) != 0) return error::from_errno(errno, "read the list of hosts");
      if (got == 0) return parse(text);
      if (text.size() > detail::largest_hosts_file)
        return error::above_limit(detail::listing, "bytes", text.size(),
                                  detail::largest_hosts_file);
    }
  });
}

result<host_list> host_list::from(std::span<const host_entry> hosts, std::uint16_t port) noexcept {
  return detail::without_exceptions(detail::listing, [&]() -> result<host_list> {
    if (hosts.empty())
      return error(error_kind::invalid_input, detail::listing, "the list contains no hosts");
    if (port == 0)
      return detail::wrong_entry("the port must be a number from 1 to 65535", 0, "port");
    host_list made;
    made.port_ = port;
    std::uint64_t size = 0;
    std::map<std::string_view, int> known;
    for (const host_entry& host : hosts) {
      if (const char* const wrong = detail::objection(host))
        return detail::wrong_entry(wrong, 0, host.name);
      if (!known.emplace(host.name, 0).second)
        return detail::wrong_entry("this host is listed twice", 0, host.name);
      size += host.ranks;
    }
    if (size > detail::most_ranks)
      return error::above_limit(detail::listing, "ranks", size, detail::most_ranks);
    made.hosts_.assign(hosts.begin(), hosts.end());
    return made;
  });
}

result<host_list> host_list::first(std::uint32_t ranks) const noexcept {
  if (ranks == 0)
    return error::out_of_range(detail::listing, "ranks", ranks, "a world has at least one rank");
  if (ranks > size())
    return error::above_limit(detail::listing, "ranks", ranks, size(),
                              "a world cannot have more ranks than its list of hosts");
  return detail::without_exceptions(detail::listing, [&]() -> result<host_list> {
    host_list made = *this;
    std::uint32_t left = ranks;
    std::size_t used = 0;
    for (; left != 0; ++used) {
      host_entry& host = made.hosts_[used];
      host.ranks = std::min(host.ranks, left);
      left -= host.ranks;
    }
    made.hosts_.resize(used);
    return made;
  });
}

std::uint32_t host_list::size() const noexcept {
  std::uint32_t ranks = 0;
  for (const host_entry& host : hosts_) ranks += host.ranks;
  return ranks;
}

std::string_view host_list::host_of(std::uint32_t rank) const noexcept {
  for (const host_entry& host : hosts_) {
    if (rank < host.ranks) return host.name;
    rank -= host.ranks;
  }
  return {};
}

result<std::uint32_t> host_list::rank_on(std::string_view host) const noexcept {
  std::uint32_t first = 0;
  for (const host_entry& each : hosts_) {
    if (each.name == host) {
      if (each.ranks == 1) return first;
      return detail::wrong_entry(
          "several ranks run on this host: give each its number (VERBSPP_RANK, or "
          "hosts_bootstrap::join)",
          0, host);
    }
    first += each.ranks;
  }
  return error(
      error_kind::not_found, detail::listing,
      "this host is not in the list, or the size of the world leaves no rank for it: list each "
      "host under the name that `hostname` prints there, and check the size; or give each rank its "
      "number (VERBSPP_RANK, or hosts_bootstrap::join)");
}

std::ostream& operator<<(std::ostream& out, const host_list& list) {
  out << "ranks: " << list.size() << ", port: " << list.port_;
  for (const host_entry& host : list.hosts_) out << ", " << host.name << ": " << host.ranks;
  return out;
}

}  // namespace verbspp
