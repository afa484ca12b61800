// SPDX-License-Identifier: Apache-2.0
#include "files/device_files.hpp"

#include "device/device.hpp"
#include "faults/faults.hpp"
#include "machine/port_traffic.hpp"

#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>

namespace softverbs {
namespace {

/// The names of devices in sysfs and of their command files, without the numbers.
constexpr std::string_view in_sysfs = "soft";
constexpr std::string_view of_commands = "softverbs";

constexpr unsigned bits_in_word = 32;

/// Collects the text of a file, and cuts it off at the maximum size of a file.
class page {
 public:
  explicit page(file_text& text) noexcept : text_(text) {}

  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) noexcept {
    std::va_list values;
    va_start(values, format);
    const int more = std::vsnprintf(text_.data() + size_, text_.size() - size_, format, values);
    va_end(values);
    if (more > 0) size_ = std::min(size_ + static_cast<std::size_t>(more), text_.size() - 1);
  }
  std::size_t size() const noexcept { return size_; }

 private:
  file_text& text_;
  std::size_t size_ = 0;
};

/// The rest of a path; names are removed from its start.
class rest_of_path {
 public:
  explicit rest_of_path(std::string_view path) noexcept : left_(path) {}

  bool empty() const noexcept { return left_.empty(); }
  std::string_view text() const noexcept { return left_; }
  /// Removes a name and the slash before it. Returns false if the path begins with a different
  /// name.
  bool take(std::string_view name) noexcept {
    std::string_view left = left_;
    if (!left.starts_with('/') || !left.substr(1).starts_with(name)) return false;
    left.remove_prefix(1 + name.size());
    if (!left.empty() && left.front() != '/') return false;
    left_ = left;
    return true;
  }
  /// Removes and returns the number at the start, without a slash before it. Returns nothing if
  /// there is no number in the kernel's format, or if it has more than four digits.
  std::optional<unsigned> take_number() noexcept {
    constexpr std::size_t most_digits = 4;
    const std::size_t digits = std::min(left_.find_first_not_of("0123456789"), left_.size());
    if (digits == 0 || digits > most_digits || (left_.front() == '0' && digits > 1))
      return std::nullopt;
    if (digits < left_.size() && left_[digits] != '/') return std::nullopt;
    unsigned number = 0;
    std::from_chars(left_.data(), left_.data() + digits, number);
    left_.remove_prefix(digits);
    return number;
  }
  /// Removes a slash, `name`, and the number that follows it. Returns the number, or nothing.
  std::optional<unsigned> take_named(std::string_view name) noexcept {
    if (!left_.starts_with('/') || !left_.substr(1).starts_with(name)) return std::nullopt;
    left_.remove_prefix(1 + name.size());
    return take_number();
  }
  /// Removes a slash and the number that follows it. Returns the number, or nothing.
  std::optional<unsigned> take_numbered() noexcept { return take_named(""); }

 private:
  std::string_view left_;
};

void print_guid(page& to, std::uint64_t guid) noexcept {
  const auto part = [guid](unsigned at) { return static_cast<unsigned>(guid >> at & 0xffff); };
  to.print("%04x:%04x:%04x:%04x", part(48), part(32), part(16), part(0));
}

/// Prints a mask with all processors, in hexadecimal words of 32 bits, the highest first.
void print_all_processors(page& to) noexcept {
  const long configured = ::sysconf(_SC_NPROCESSORS_CONF);
  const unsigned count = configured < 1 ? 1U : static_cast<unsigned>(configured);
  for (unsigned word = (count - 1) / bits_in_word + 1; word-- > 0;) {
    const unsigned left = count - word * bits_in_word;
    const std::uint32_t mask = left >= bits_in_word ? ~std::uint32_t{0} : (1U << left) - 1;
    to.print("%08x%s", mask, word == 0 ? "\n" : ",");
  }
}

/// Prints the processors of a node as the kernel does. Returns false if this host doesn't have the
/// node.
bool print_processors(unsigned node, page& to) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpumap", node);
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  char text[file_bytes];
  const ssize_t size = ::read(descriptor, text, sizeof(text) - 1);
  ::close(descriptor);
  if (size <= 0) return false;
  text[size] = '\0';
  to.print("%s", text);
  return true;
}

struct device_file {
  std::string_view name;
  void (*print)(const soft_device& device, page& to);
};

constexpr device_file of_device[] = {
    {"board_id", [](const soft_device&, page& to) { to.print("softverbs\n"); }},
    {"fw_ver", [](const soft_device&, page& to) { to.print("%s\n", SOFTVERBS_VERSION); }},
    {"hca_type", [](const soft_device&, page& to) { to.print("softverbs\n"); }},
    {"hw_rev", [](const soft_device&, page& to) { to.print("0\n"); }},
    {"node_desc", [](const soft_device& device, page& to) { to.print("%s\n", device.verbs.name); }},
    {"node_guid",
     [](const soft_device& device, page& to) {
       print_guid(to, device.guid());
       to.print("\n");
     }},
    {"node_type", [](const soft_device& device,
                     page& to) { to.print("%d: CA\n", static_cast<int>(device.verbs.node_type)); }},
    {"sys_image_guid",
     [](const soft_device& device, page& to) {
       print_guid(to, device.guid());
       to.print("\n");
     }},
    // A soft device is on no bus, so the folder `device` lacks the files about a bus, such as the
    // file with the PCI vendor's ID.
    {"device/local_cpus",
     [](const soft_device& device, page& to) {
       if (const auto node = device.description().numa_node; !node || !print_processors(*node, to))
         print_all_processors(to);
     }},
    {"device/numa_node",
     [](const soft_device& device, page& to) {
       if (const auto node = device.description().numa_node)
         to.print("%u\n", *node);
       else
         to.print("-1\n");
     }},
};

struct port_of_device {
  const soft_device& device;
  unsigned number;

  bool is_down() const noexcept { return faults::port_is_down(station_of(device.number, number)); }
  const port_traffic& traffic() const noexcept {
    return port_traffic::of(station_of(device.number, number));
  }
  ibv_port_attr attributes() const noexcept {
    ibv_port_attr result;
    describe_port(device, number, result);
    return result;
  }
};

void print_number(page& to, std::uint64_t number) noexcept {
  to.print("%llu\n", static_cast<unsigned long long>(number));
}
/// Prints an amount of data in words of four bytes, the unit of the kernel's counters.
void print_words(page& to, std::uint64_t bytes) noexcept { print_number(to, bytes / 4); }
/// Prints 0, for events that don't occur on a soft device or are not counted.
void print_none(const port_of_device& /*port*/, page& to) noexcept { print_number(to, 0); }

struct port_file {
  std::string_view name;
  void (*print)(const port_of_device& port, page& to);
};

constexpr port_file of_port[] = {
    {"cap_mask", [](const port_of_device& port,
                    page& to) { to.print("0x%08x\n", port.attributes().port_cap_flags); }},
    {"counters/VL15_dropped", print_none},
    {"counters/excessive_buffer_overrun_errors", print_none},
    {"counters/link_downed",
     [](const port_of_device& port, page& to) { print_number(to, port.traffic().failures); }},
    {"counters/link_error_recovery", print_none},
    {"counters/local_link_integrity_errors", print_none},
    {"counters/port_rcv_constraint_errors", print_none},
    {"counters/port_rcv_data",
     [](const port_of_device& port, page& to) {
       print_words(to, port.traffic().read(port_traffic::way::received).bytes);
     }},
    {"counters/port_rcv_errors", print_none},
    {"counters/port_rcv_packets",
     [](const port_of_device& port, page& to) {
       print_number(to, port.traffic().read(port_traffic::way::received).packets);
     }},
    {"counters/port_rcv_remote_physical_errors", print_none},
    {"counters/port_rcv_switch_relay_errors", print_none},
    {"counters/port_xmit_constraint_errors", print_none},
    {"counters/port_xmit_data",
     [](const port_of_device& port, page& to) {
       print_words(to, port.traffic().read(port_traffic::way::sent).bytes);
     }},
    {"counters/port_xmit_discards", print_none},
    {"counters/port_xmit_packets",
     [](const port_of_device& port, page& to) {
       print_number(to, port.traffic().read(port_traffic::way::sent).packets);
     }},
    {"counters/port_xmit_wait", print_none},
    {"counters/symbol_error", print_none},
    {"hw_counters/rcvd_rnr_err",
     [](const port_of_device& port, page& to) {
       print_number(to, port.traffic().refusals_received);
     }},
    {"hw_counters/send_rnr_err",
     [](const port_of_device& port, page& to) { print_number(to, port.traffic().refusals_sent); }},
    {"lid",
     [](const port_of_device& port, page& to) { to.print("0x%x\n", port.attributes().lid); }},
    {"lid_mask_count", [](const port_of_device&, page& to) { to.print("0\n"); }},
    {"link_layer",
     [](const port_of_device& port, page& to) {
       to.print("%s\n", port.device.is_ethernet(port.number) ? "Ethernet" : "InfiniBand");
     }},
    {"phys_state",
     [](const port_of_device& port, page& to) {
       to.print("%s\n", port.is_down() ? "3: Disabled" : "5: LinkUp");
     }},
    // Four lanes of 25 Gb/s each.
    {"rate", [](const port_of_device&, page& to) { to.print("100 Gb/sec (4X EDR)\n"); }},
    {"sm_lid",
     [](const port_of_device& port, page& to) { to.print("0x%x\n", port.attributes().sm_lid); }},
    {"sm_sl", [](const port_of_device&, page& to) { to.print("0\n"); }},
    {"state", [](const port_of_device& port,
                 page& to) { to.print("%s\n", port.is_down() ? "1: DOWN" : "4: ACTIVE"); }},
};

/// A folder of a port, with a file for each index of a table. If `print` writes nothing for an
/// index, the file with that index doesn't exist.
struct entry_file {
  std::string_view folder;
  unsigned count;
  void (*print)(const port_of_device& port, unsigned index, page& to);
};

constexpr entry_file of_entry[] = {
    {"gids", limits::gid_entries,
     [](const port_of_device& port, unsigned index, page& to) {
       // An empty entry consists of zeros.
       const auto entry = gid_at(port.device.number, port.number, index);
       const ibv_gid gid = entry ? entry->gid : ibv_gid{};
       print_guid(to, be64toh(gid.global.subnet_prefix));
       to.print(":");
       print_guid(to, be64toh(gid.global.interface_id));
       to.print("\n");
     }},
    {"gid_attrs/types", limits::gid_entries,
     [](const port_of_device& port, unsigned index, page& to) {
       const auto entry = gid_at(port.device.number, port.number, index);
       if (!entry) return;
       to.print("%s\n", entry->type == network::roce_v2 ? "RoCE v2" : "IB/RoCE v1");
     }},
    {"gid_attrs/ndevs", limits::gid_entries,
     [](const port_of_device& port, unsigned index, page& to) {
       const auto entry = gid_at(port.device.number, port.number, index);
       char name[IF_NAMESIZE];
       if (entry && entry->interface != 0 && ::if_indextoname(entry->interface, name) != nullptr)
         to.print("%s\n", name);
     }},
    {"pkeys", 1,
     [](const port_of_device&, unsigned, page& to) {
       to.print("0x%04x\n", unsigned{default_pkey});
     }},
};

/// True if `name` is below the folder.
bool is_below(std::string_view name, rest_of_path folder) noexcept {
  // The rest of a path begins with a slash, but the names in the tables don't.
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
       slash = name.find('/', slash + 1)) {
    rest_of_path left = folder;
    if (left.take(name.substr(0, slash)) && left.empty()) return true;
  }
  return false;
}

file_kind find_of_port(const port_of_device& port, rest_of_path path, page& to) noexcept {
  if (path.empty()) return file_kind::directory;
  for (const port_file& each : of_port) {
    if (is_below(each.name, path)) return file_kind::directory;
    rest_of_path left = path;
    if (!left.take(each.name)) continue;
    if (!left.empty()) return file_kind::none;
    each.print(port, to);
    return file_kind::text;
  }
  for (const entry_file& each : of_entry) {
    if (is_below(each.folder, path)) return file_kind::directory;
    rest_of_path left = path;
    if (!left.take(each.folder)) continue;
    if (left.empty()) return file_kind::directory;
    const auto index = left.take_numbered();
    if (!index || *index >= each.count || !left.empty()) return file_kind::none;
    each.print(port, *index, to);
    return to.size() == 0 ? file_kind::none : file_kind::text;
  }
  return file_kind::none;
}

/// Calls `see` with the name of each network interface that an address of the device belongs to.
template <typename See>
void for_each_interface(const soft_device& device, See see) {
  for (unsigned port = 1; device.has_port(port); ++port)
    for (unsigned index = 0; index < limits::gid_entries; ++index) {
      const auto entry = gid_at(device.number, port, index);
      char name[IF_NAMESIZE];
      if (entry && entry->interface != 0 && ::if_indextoname(entry->interface, name) != nullptr)
        see(std::string_view(name));
    }
}

/// Finds the folder of all interfaces, or the folder of one interface. The folder of one interface
/// is empty here, because programs read the interface's files in /sys/class/net.
file_kind find_interface(const soft_device& device, rest_of_path path) noexcept {
  file_kind found = file_kind::none;
  for_each_interface(device, [&](std::string_view name) {
    rest_of_path left = path;
    if (left.empty() || (left.take(name) && left.empty())) found = file_kind::directory;
  });
  return found;
}

constexpr std::string_view interfaces = "device/net";

file_kind find_of_device(const soft_device& device, rest_of_path path, page& to) noexcept {
  if (path.empty()) return file_kind::directory;
  for (const device_file& each : of_device) {
    if (is_below(each.name, path)) return file_kind::directory;
    rest_of_path left = path;
    if (!left.take(each.name)) continue;
    if (!left.empty()) return file_kind::none;
    each.print(device, to);
    return file_kind::text;
  }
  if (rest_of_path left = path; left.take(interfaces)) return find_interface(device, left);
  if (!path.take("ports")) return file_kind::none;
  if (path.empty()) return file_kind::directory;
  const auto number = path.take_numbered();
  if (!number || !device.has_port(*number)) return file_kind::none;
  return find_of_port({device, *number}, path, to);
}

/// Calls `see` with the path of each file of a device, relative to the device's folder.
template <typename See>
void for_each_file(const soft_device& device, See see) {
  for (const device_file& each : of_device) see(std::string(each.name));
  for_each_interface(device, [&](std::string_view name) {
    see(std::string(interfaces) + '/' + std::string(name));
  });
  for (unsigned number = 1; device.has_port(number); ++number) {
    const std::string port = "ports/" + std::to_string(number) + '/';
    for (const port_file& each : of_port) see(port + std::string(each.name));
    for (const entry_file& each : of_entry)
      for (unsigned index = 0; index < each.count; ++index) {
        file_text text;
        page to(text);
        each.print({device, number}, index, to);
        // If the index has no file, `see` is called with the path of the folder, which exists
        // anyway.
        see(port + std::string(each.folder) + '/' + (to.size() == 0 ? "" : std::to_string(index)));
      }
  }
}

}  // namespace

std::vector<std::string> list_device_folder(const char* path) {
  file_text text;
  std::size_t size = 0;
  std::set<std::string> names{".", ".."};
  const std::string_view whole = without_slashes(path);
  switch (find_device_file(path, text, size)) {
    case file_kind::folder_of_devices:
      for (unsigned number = 0; number < device_count(); ++number)
        names.insert(std::string(whole == detail::sysfs_folder ? in_sysfs : of_commands) +
                     std::to_string(number));
      break;
    case file_kind::directory: {
      rest_of_path left(whole.substr(detail::sysfs_folder.size()));
      const auto number = left.take_named(in_sysfs);
      std::string before(left.text());
      if (!before.empty()) before = before.substr(1) + '/';
      for_each_file(device_at(number.value_or(0)), [&](const std::string& file) {
        if (!file.starts_with(before)) return;
        const std::string name =
            file.substr(before.size(), file.find('/', before.size()) - before.size());
        if (!name.empty()) names.insert(name);
      });
      break;
    }
    default:
      return {};
  }
  return {names.begin(), names.end()};
}

file_kind find_device_file(const char* path, file_text& text, std::size_t& size) noexcept {
  const std::string_view whole = without_slashes(path);
  const bool has_slashes = path[whole.size()] != '\0';
  const bool is_sysfs = whole.starts_with(detail::sysfs_folder);
  const std::string_view folder = is_sysfs ? detail::sysfs_folder : detail::command_folder;
  if (!whole.starts_with(folder)) return file_kind::none;
  rest_of_path left(whole.substr(folder.size()));
  const bool is_whole = left.empty();
  const auto number = left.take_named(is_sysfs ? in_sysfs : of_commands);
  if (!is_whole && !number) return file_kind::none;
  if (!faults::read_environment()) return file_kind::none;
  if (is_whole) return device_count() != 0 ? file_kind::folder_of_devices : file_kind::none;
  if (*number >= device_count()) return file_kind::none;
  file_kind found = file_kind::none;
  if (is_sysfs) {
    page to(text);
    found = find_of_device(device_at(*number), left, to);
    size = to.size();
  } else if (left.empty()) {
    found = file_kind::command_device;
  }
  return has_slashes && found != file_kind::directory ? file_kind::none : found;
}

}  // namespace softverbs
