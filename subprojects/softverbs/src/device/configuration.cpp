// SPDX-License-Identifier: Apache-2.0
#include "device/configuration.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace softverbs {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t start = text.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(blanks) - start + 1);
}

/// Removes the text up to and including the first separator from `text`. Returns the removed text
/// without the separator, trimmed.
std::string_view take(std::string_view& text, std::string_view separators) noexcept {
  const std::size_t end = std::min(text.find_first_of(separators), text.size());
  const std::string_view result = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return result;
}

/// True if a line contains no control characters other than blanks. Control characters could end
/// the text early, or be invisible.
bool is_text(std::string_view line) noexcept {
  return std::all_of(line.begin(), line.end(), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return (byte >= ' ' && byte != 0x7f) || blanks.find(letter) != std::string_view::npos;
  });
}

/// Removes and returns the next word. Returns an empty one if no word is left.
std::string_view take_word(std::string_view& text) noexcept {
  text = trimmed(text);
  return take(text, blanks);
}

std::optional<std::uint32_t> number(std::string_view text) noexcept {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct limit {
  std::string_view name;
  std::uint32_t device_limits::* place;
};
constexpr std::array changeable{
    limit{"max-queue-pairs", &device_limits::queue_pairs},
    limit{"max-work-requests", &device_limits::work_requests},
    limit{"max-elements", &device_limits::gather_entries},
    limit{"max-shared-receive-queues", &device_limits::shared_receive_queues},
    limit{"max-receive-work-queues", &device_limits::receive_work_queues},
    limit{"max-indirection-tables", &device_limits::indirection_tables},
    limit{"max-completion-queues", &device_limits::completion_queues},
    limit{"max-completions", &device_limits::completion_entries},
    limit{"max-regions", &device_limits::memory_regions},
    limit{"max-domains", &device_limits::protection_domains},
    limit{"max-reads", &device_limits::outstanding_reads},
    limit{"max-address-handles", &device_limits::address_handles},
    limit{"max-device-memory", &device_limits::device_memory},
};

std::optional<ibv_mtu> mtu_of(std::uint32_t bytes) noexcept {
  for (const ibv_mtu each : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096})
    if (bytes == 128U << each) return each;
  return std::nullopt;
}

/// Reads an IP address. An IPv4 address is converted to an IPv4-mapped IPv6 address.
std::optional<ibv_gid> gid_of(std::string_view text) {
  const std::string address(text);
  ibv_gid gid{};
  if (::inet_pton(AF_INET6, address.c_str(), gid.raw) == 1) return gid;
  if (::inet_pton(AF_INET, address.c_str(), gid.raw + 12) != 1) return std::nullopt;
  gid.raw[10] = gid.raw[11] = 0xff;
  return gid;
}

bool is_zero(const ibv_gid& gid) noexcept {
  return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
}

link_layer layer_of(network type) noexcept {
  return type == network::infiniband ? link_layer::infiniband : link_layer::ethernet;
}

/// An FNV-1a hash.
class hash {
 public:
  void add(std::string_view text) noexcept {
    for (const char letter : text)
      value_ = (value_ ^ static_cast<unsigned char>(letter)) * 16777619U;
  }
  std::uint32_t value() const noexcept { return value_; }

 private:
  std::uint32_t value_ = 2166136261U;
};

class reader {
 public:
  reader(link_layer usual, configuration_problem& problem) : usual_(usual), problem_(problem) {}

  std::optional<configuration> read(std::string_view text) {
    hash all;
    all.add(usual_ == link_layer::ethernet ? "ethernet" : "infiniband");
    while (!text.empty()) {
      ++problem_.line;
      std::string_view line = take(text, "\n");
      if (!is_text(line)) {
        no("the line contains a control character");
        return std::nullopt;
      }
      line = take(line, "#");
      if (line.empty()) continue;
      all.add(line);
      all.add("\n");
      if (!(line.front() == '[' ? read_section(line) : read_setting(line))) return std::nullopt;
    }
    if (!finish()) return std::nullopt;
    result_.fingerprint = std::max(all.value(), 1U);
    return std::move(result_);
  }

 private:
  bool no(std::string why) {
    problem_.text = std::move(why);
    return false;
  }

  device_description& device() { return result_.devices.back(); }
  port_description& port() { return device().ports[port_]; }

  /// Reads [softN] or [softN port P].
  bool read_section(std::string_view line) {
    if (line.back() != ']')
      return no("there is no `]` at the end of the line (or before its comment)");
    std::string_view inside = line.substr(1, line.size() - 2);
    const std::string_view name = take_word(inside);
    const auto device_number =
        name.starts_with("soft") ? number(name.substr(4)) : std::optional<std::uint32_t>();
    if (!device_number || *device_number >= max_devices)
      return no("this is neither `[softN]` nor `[softN port P]`, with N from 0 to 63");
    if (trimmed(inside).empty()) {
      if (result_.devices.size() == max_devices)
        return no("each of the " + std::to_string(max_devices) + " devices has a section already");
      if (*device_number != result_.devices.size())
        return no("devices are numbered in order: the next device is soft" +
                  std::to_string(result_.devices.size()));
      result_.devices.emplace_back();
      port_ = 0;
    } else {
      const bool is_port = take_word(inside) == "port";
      const auto port_number = number(take_word(inside));
      if (!is_port || !port_number || !trimmed(inside).empty())
        return no("only `port 2` may follow the name of a device");
      if (*device_number + 1 != result_.devices.size())
        return no("the section of a port must follow that of its device, `[" + std::string(name) +
                  "]`");
      if (*port_number != device().port_count + 1 || *port_number > max_ports)
        return no(
            "a device has at most two ports: `[softN]` describes port 1, and a single section "
            "`[softN port 2]` describes port 2");
      port_ = device().port_count++;
    }
    port().layer = usual_;
    seen_.clear();
    return true;
  }

  bool read_setting(std::string_view line) {
    if (line.find('=') == std::string_view::npos || line.front() == '=')
      return no("this is neither `[section]` nor `name = value`");
    if (result_.devices.empty()) return no("settings must follow a section, such as `[soft0]`");
    std::string_view value = line;
    const std::string_view name = take(value, "=");
    value = trimmed(value);
    std::string_view index = name;
    if (take_word(index) == "gid") return read_gid(index, value);
    if (std::find(seen_.begin(), seen_.end(), name) != seen_.end())
      return no("`" + std::string(name) + "` has already been set");
    seen_.emplace_back(name);
    if (name == "link-layer") return read_layer(value);
    if (name == "mtu") return read_mtu(value);
    if (name == "state") return read_state(value);
    if (port_ == 0) {
      if (name == "without") return read_without(value);
      if (name == "numa-node") return read_node(value);
      if (name == "max-inline") return read_limit(value, 0, device().most.inline_data);
      for (const limit& each : changeable)
        if (name == each.name) return read_limit(value, 1, device().most.*each.place);
    }
    return no("a " + std::string(port_ == 0 ? "device" : "second port") + " has no setting `" +
              std::string(name) + "`");
  }

  bool read_layer(std::string_view value) {
    if (value != "ethernet" && value != "infiniband")
      return no("the link layer must be `ethernet` or `infiniband`");
    port().layer = value == "ethernet" ? link_layer::ethernet : link_layer::infiniband;
    return true;
  }

  bool read_mtu(std::string_view value) {
    const auto bytes = number(value);
    const auto mtu = bytes ? mtu_of(*bytes) : std::nullopt;
    if (!mtu) return no("the MTU must be 256, 512, 1024, 2048 or 4096");
    port().mtu = *mtu;
    return true;
  }

  bool read_state(std::string_view value) {
    if (value != "up" && value != "down") return no("the state must be `up` or `down`");
    port().starts_down = value == "down";
    return true;
  }

  /// Reads the index `where`, and ADDRESS v1|v2|infiniband [interface N].
  bool read_gid(std::string_view where, std::string_view value) {
    const auto index = number(trimmed(where));
    if (!index || *index >= limits::gid_entries)
      return no("a GID's index must be a number from 0 to " +
                std::to_string(limits::gid_entries - 1));
    if (!port().gids) port().gids.emplace();
    auto& slot = (*port().gids)[*index];
    if (slot) return no("`gid " + std::to_string(*index) + "` has already been set");
    const auto gid = gid_of(take_word(value));
    if (!gid || is_zero(*gid)) return no("a GID must be an IPv6 or IPv4 address other than zero");
    const std::string_view type = take_word(value);
    if (type != "v1" && type != "v2" && type != "infiniband")
      return no("the address of a GID must be followed by `v1`, `v2` or `infiniband`");
    gid_entry entry{*gid, type == "v1"   ? network::roce_v1
                          : type == "v2" ? network::roce_v2
                                         : network::infiniband};
    if (const std::string_view word = take_word(value); !word.empty()) {
      const auto interface = number(take_word(value));
      if (word != "interface" || !interface || !trimmed(value).empty())
        return no(
            "only `interface N`, with the index of an interface, may follow the type of a GID");
      entry.interface = *interface;
    }
    slot = entry;
    return gids_.push_back({result_.devices.size() - 1, port_, *index, problem_.line}), true;
  }

  bool read_without(std::string_view value) {
    if (value.empty()) return no("`without` must name at least one feature");
    while (!value.empty()) {
      const std::string_view what = take(value, ", \t");
      if (what.empty()) continue;
      if (what == "atomics")
        device().has_atomics = false;
      else if (what == "windows")
        device().has_windows = false;
      else if (what == "inline")
        device().most.inline_data = 0;
      else if (what == "extended")
        device().has_extended = false;
      else if (what == "device-memory")
        device().most.device_memory = 0;
      else
        return no(
            "`without` accepts only `atomics`, `windows`, `inline`, `extended` and "
            "`device-memory`, not `" +
            std::string(what) + "`");
    }
    return true;
  }

  bool read_node(std::string_view value) {
    const auto wanted = number(value);
    if (!wanted || *wanted >= limits::numa_nodes)
      return no("a NUMA node must be a number from 0 to " + std::to_string(limits::numa_nodes - 1));
    device().numa_node = *wanted;
    return true;
  }

  bool read_limit(std::string_view value, std::uint32_t least, std::uint32_t& limit) {
    // `limit` has the default value, which is the largest that can be configured, unless `without`
    // has set it to 0.
    const auto wanted = number(value);
    if (!wanted || *wanted < least || *wanted > limit)
      return no(limit == 0 ? "`without` has set this limit to 0: remove one of the two settings"
                           : "this limit must be a number from " + std::to_string(least) + " to " +
                                 std::to_string(limit));
    limit = *wanted;
    return true;
  }

  /// Makes the checks that require the whole file.
  bool finish() {
    if (result_.devices.empty())
      return no("no device is described: begin with the section `[soft0]`");
    for (const place& each : gids_) {
      problem_.line = each.line;
      const gid_entry& own = entry_at(each);
      if (layer_of(own.type) != result_.devices[each.device].ports[each.port].layer)
        return no("this type of GID does not match the port's link layer");
      for (const place& other : gids_) {
        const bool elsewhere = other.device != each.device || other.port != each.port;
        const gid_entry& entry = entry_at(other);
        if (elsewhere && other.line < each.line && layer_of(entry.type) == layer_of(own.type) &&
            std::memcmp(entry.gid.raw, own.gid.raw, sizeof(own.gid.raw)) == 0)
          return no("another port has this address (see line " + std::to_string(other.line) + ")");
      }
    }
    return true;
  }

  struct place {
    std::size_t device;
    unsigned port;
    std::uint32_t index;
    unsigned line;
  };
  const gid_entry& entry_at(const place& where) const {
    return *(*result_.devices[where.device].ports[where.port].gids)[where.index];
  }

  link_layer usual_;
  configuration_problem& problem_;
  configuration result_;
  unsigned port_ = 0;
  std::vector<std::string> seen_;
  std::vector<place> gids_;
};

}  // namespace

std::optional<configuration> read_configuration(std::string_view text, link_layer usual,
                                                configuration_problem& problem) {
  problem = {};
  return reader(usual, problem).read(text);
}

}  // namespace softverbs
