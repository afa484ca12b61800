// SPDX-License-Identifier: Apache-2.0
/// \file
/// Simulates pairs of hosts with softverbs devices. Checks at which addresses the two hosts in a
/// pair connect, or that both report why they can't.
///
/// softverbs reads the GID tables, including the numbers of the interfaces, from a file. This
/// program simulates the interfaces themselves, with their subnets and VLANs, by replacing
/// functions of the C library. The tests therefore need neither privileges nor a network.

#include "../catch.hpp"
#include "../device/device.hpp"
#include "host.hpp"
#include <verbspp/verbspp.hpp>

#include <dlfcn.h>
#include <ifaddrs.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// An entry that getifaddrs returns, together with the data to which the entry points.
struct interface_entry {
  std::string name;
  sockaddr_in6 address{};
  sockaddr_in6 mask{};
  ifaddrs native{};
};

/// The interface addresses of both simulated hosts. Interfaces on different hosts have different
/// numbers.
std::vector<interface_address> interfaces;
int errnum_of_interfaces = 0;         ///< if not 0, getifaddrs fails with this errno
std::optional<gid_index> picked_gid;  ///< the GID that both ends select by hand, if any

bool is_ours(const char* name) { return std::strncmp(name, "host", 4) == 0; }

const interface_address* find_interface(const char* name) {
  const auto index = static_cast<std::uint32_t>(std::atoi(name + 4));
  for (const interface_address& each : interfaces)
    if (each.interface_index == index) return &each;
  return nullptr;
}

sockaddr_in6 native_address(const gid& address) {
  sockaddr_in6 made{};
  if (address.is_ipv4_mapped()) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    std::memcpy(&ipv4.sin_addr, address.bytes.data() + 12, 4);
    std::memcpy(&made, &ipv4, sizeof ipv4);
    return made;
  }
  made.sin6_family = AF_INET6;
  std::memcpy(&made.sin6_addr, address.bytes.data(), 16);
  return made;
}

gid mask_of(unsigned bits) {
  gid mask;
  for (unsigned i = 0; i < bits; ++i) mask.bytes[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
  return mask;
}

}  // namespace

// These functions replace those of the C library.
extern "C" int getifaddrs(ifaddrs** list) {
  if (errnum_of_interfaces != 0) return errno = errnum_of_interfaces, -1;
  auto entries = std::make_unique<std::vector<interface_entry>>(interfaces.size());
  for (std::size_t i = 0; i < interfaces.size(); ++i) {
    const interface_address& from = interfaces[i];
    interface_entry& entry = (*entries)[i];
    entry.name = "host" + std::to_string(from.interface_index);
    entry.address = native_address(from.address);
    entry.mask = native_address(mask_of(from.prefix_length));
    entry.mask.sin6_family = entry.address.sin6_family;
    if (from.address.is_ipv4_mapped()) {
      sockaddr_in ipv4{};
      ipv4.sin_family = AF_INET;
      std::memcpy(&ipv4.sin_addr, mask_of(from.prefix_length).bytes.data() + 12, 4);
      std::memcpy(&entry.mask, &ipv4, sizeof ipv4);
    }
    entry.native.ifa_name = entry.name.data();
    entry.native.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
    entry.native.ifa_netmask = reinterpret_cast<sockaddr*>(&entry.mask);
    if (from.is_up) entry.native.ifa_flags |= IFF_UP | IFF_RUNNING;
    if (from.is_loopback) entry.native.ifa_flags |= IFF_LOOPBACK;
    if (i > 0) (*entries)[i - 1].native.ifa_next = &entry.native;
  }
  *list = nullptr;
  if (entries->empty()) return 0;
  *list = &entries->front().native;
  // `freeifaddrs`, which is defined below, deletes the entries through this pointer.
  entries->front().native.ifa_data = entries.get();
  static_cast<void>(entries.release());
  return 0;
}

extern "C" void freeifaddrs(ifaddrs* list) {
  if (list != nullptr) delete static_cast<std::vector<interface_entry>*>(list->ifa_data);
}

extern "C" unsigned if_nametoindex(const char* name) {
  return is_ours(name) ? static_cast<unsigned>(std::atoi(name + 4)) : 0;
}

extern "C" int ioctl(int descriptor, unsigned long request, ...) {
  std::va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  static auto* const real =
      reinterpret_cast<int (*)(int, unsigned long, void*)>(::dlsym(RTLD_NEXT, "ioctl"));
  if (request != SIOCGIFVLAN) return real(descriptor, request, argument);
  auto& asked = *static_cast<vlan_ioctl_args*>(argument);
  const interface_address* const found =
      is_ours(asked.device1) ? find_interface(asked.device1) : nullptr;
  if (found == nullptr || found->vlan == interface_address::untagged) return errno = EINVAL, -1;
  asked.u.VID = found->vlan;
  return 0;
}

namespace {

/// The result of an attempt to connect two hosts. Each result comes from a separate process,
/// because a process reads the file of devices only once.
struct seen {
  std::string left;  ///< the address that the left end uses; empty if the hosts did not connect
  std::string right;
  std::string type;
  std::string words;  ///< the messages of the failures
  bool is_connected = false;
  bool is_routed = false;  ///< true if the route has a GID, which it always has on Ethernet
  bool is_received = false;
};

std::string section(const std::string& name, const host& of, std::uint32_t first_interface) {
  std::ostringstream text;
  text << '[' << name << "]\nlink-layer = ethernet\n";
  for (const gid_entry& each : of.table()) {
    text << "gid " << unsigned{each.index.value()} << " = " << each.address
         << (each.type == gid_type::roce_v1 ? " v1" : " v2");
    if (each.interface_index != 0) text << " interface " << first_interface + each.interface_index;
    text << '\n';
  }
  return text.str();
}

void add_interfaces(const host& of, std::uint32_t first_interface) {
  for (interface_address each : of.interfaces()) {
    each.interface_index += first_interface;
    interfaces.push_back(each);
  }
}

/// All objects that one end requires to build a queue pair on the named device.
struct end {
  explicit end(const char* name)
      : context(must(open_device(name))),
        domain(must(protection_domain::allocate(context))),
        queue(must(completion_queue::create(context, 16))) {}
  [[nodiscard]] auto builder() const {
    return build_queue_pair<transport::rc>()
        .protection_domain(domain)
        .completion_queue(queue)
        .gid_index(picked_gid)
        .access(all_rights);
  }
  verbspp::context context;
  protection_domain domain;
  completion_queue queue;
};

void exchange_message(const end& from, const end& to, connected& sender, connected& receiver) {
  buffer<> outbox(from.domain, pattern(64, 1));
  buffer<> inbox(to.domain, 64);
  must(receiver.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  must(sender.post_send({.elements = outbox.gather()}, {.id = 2}));
  take_success(from.queue, 2);
  take_success(to.queue, 1);
  if (inbox.bytes() != outbox.bytes()) throw failure(__FILE__, __LINE__, "wrong data arrived");
}

seen connect_devices(std::uint8_t left_port) {
  const end left("soft0");
  const end right("soft1");
  prepared one = must(left.builder().port(must(port_number::from(left_port))).build());
  prepared other = must(right.builder().build());
  // Encode and decode the endpoints, as if they had been sent over a network.
  const endpoint one_end = must(endpoint::decode(one.endpoint().encode()));
  const endpoint other_end = must(endpoint::decode(other.endpoint().encode()));
  auto met = std::move(one).handshake(other_end);
  auto answered = std::move(other).handshake(one_end);
  seen outcome;
  outcome.words = (met.has_value() ? "" : met.error().message()) + "|" +
                  (answered.has_value() ? "" : answered.error().message());
  if (!met.has_value() || !answered.has_value()) return outcome;
  outcome.is_connected = true;
  outcome.left = to_string(met.value().endpoint().address);
  outcome.right = to_string(answered.value().endpoint().address);
  outcome.type = to_string(met.value().endpoint().gid_type);
  const ibv_ah_attr told = query(met.value().native_handle()).attributes.ah_attr;
  outcome.is_routed = told.is_global != 0;
  if (outcome.is_routed && gid::from_native(told.grh.dgid) != answered.value().endpoint().address)
    throw failure(__FILE__, __LINE__, "the two ends do not use the same pair of addresses");
  exchange_message(left, right, met.value(), answered.value());
  exchange_message(right, left, answered.value(), met.value());
  outcome.is_received = true;
  return outcome;
}

std::string lines_of(const seen& outcome) {
  const auto flag = [](bool is_set) { return is_set ? "yes\n" : "no\n"; };
  return outcome.left + '\n' + outcome.right + '\n' + outcome.type + '\n' + outcome.words + '\n' +
         flag(outcome.is_connected) + flag(outcome.is_routed) + flag(outcome.is_received);
}

seen parsed(const std::string& lines) {
  std::istringstream in(lines);
  seen outcome;
  for (std::string* each : {&outcome.left, &outcome.right, &outcome.type, &outcome.words})
    std::getline(in, *each);
  for (bool* each : {&outcome.is_connected, &outcome.is_routed, &outcome.is_received}) {
    std::string line;
    std::getline(in, line);
    *each = line == "yes";
  }
  return outcome;
}

/// Determines the result in a child process, writes it to `output`, and exits.
[[noreturn]] void report(int output, const std::string& devices, std::uint8_t left_port) {
  const char* const folder = std::getenv("TMPDIR");
  // steady: the name is unique, because it contains the process ID
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/verbspp-hosts-" +
                           std::to_string(::getpid()) + ".conf";
  std::string text;
  try {
    std::ofstream(path) << devices;
    ::setenv("SOFTVERBS_CONFIG", path.c_str(), 1);
    text = lines_of(connect_devices(left_port));
  } catch (const std::exception& problem) {
    text = std::string("\n\n\nproblem: ") + problem.what() + '\n';
  }
  ::unlink(path.c_str());
  const bool is_written = ::write(output, text.data(), text.size()) == std::ssize(text);
  ::_exit(is_written ? 0 : 1);
}

seen with_devices(const std::string& devices, std::uint8_t left_port = 1) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) report(pipe[1], devices, left_port);
  ::close(pipe[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = ::read(pipe[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(size));
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return parsed(text);
}

seen as_devices(const host& left, const host& right) {
  constexpr std::uint32_t of_left = 1000;
  constexpr std::uint32_t of_right = 2000;
  interfaces.clear();
  add_interfaces(left, of_left);
  add_interfaces(right, of_right);
  return with_devices(section("soft0", left, of_left) + section("soft1", right, of_right));
}

void need_softverbs() {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  if (preloaded == nullptr || std::strstr(preloaded, "softverbs") == nullptr)
    SKIP("the simulated hosts need softverbs");
}

}  // namespace

TEST_CASE("two simulated hosts connect at the expected addresses or both report the reason") {
  need_softverbs();
  for (const host_pair& pair : host_pairs()) {
    INFO("hosts " << pair.name);
    const meeting& wanted = pair.wanted;
    const seen outcome = as_devices(pair.left, pair.right);
    INFO(outcome.words);
    if (!wanted.refusal.empty()) {
      CHECK_FALSE(outcome.is_connected);
      const std::size_t half = outcome.words.find('|');
      REQUIRE(half != std::string::npos);
      CHECK_THAT(outcome.words.substr(0, half), Catch::Contains(wanted.refusal));
      CHECK_THAT(outcome.words.substr(half), Catch::Contains(wanted.refusal));
      continue;
    }
    CHECK(outcome.left == to_string(address_of(wanted.left)));
    CHECK(outcome.right == to_string(address_of(wanted.right)));
    CHECK(outcome.type == to_string(wanted.type));
    CHECK(outcome.is_received);
  }
}

TEST_CASE("the interfaces of GIDs are needed unless a GID was selected by hand") {
  need_softverbs();
  const auto all = host_pairs();
  const auto pair = std::ranges::find_if(all, [](const host_pair& each) {
    return each.wanted.refusal.empty() && each.left.table().front().interface_index != 0 &&
           each.right.table().front().interface_index != 0;
  });
  REQUIRE(pair != all.end());
  struct restored {
    ~restored() {
      errnum_of_interfaces = 0;
      picked_gid.reset();
    }
  };
  const restored at_end;
  errnum_of_interfaces = EMFILE;
  const seen outcome = as_devices(pair->left, pair->right);
  picked_gid = gid_index(0);
  const seen by_hand = as_devices(pair->left, pair->right);
  CHECK_THAT(outcome.words, Catch::Contains("getifaddrs: Too many open files"));
  CHECK_THAT(by_hand.words, !Catch::Contains("problem"));
}

TEST_CASE("an InfiniBand port needs a router only for a peer of another subnet") {
  need_softverbs();
  const std::string two_subnets =
      "[soft0]\nlink-layer = infiniband\ngid 0 = fe80::1 infiniband\n"
      "[soft0 port 2]\nlink-layer = infiniband\ngid 0 = fec0:0:0:2::1 infiniband\n"
      "[soft1]\nlink-layer = infiniband\ngid 0 = fec0:0:0:2::2 infiniband\n";
  for (const std::uint8_t port : {std::uint8_t{1}, std::uint8_t{2}}) {
    CAPTURE(port);
    const seen outcome = with_devices(two_subnets, port);
    INFO(outcome.words);
    CHECK(outcome.left == (port == 1 ? "fe80::1" : "fec0:0:0:2::1"));
    CHECK(outcome.right == "fec0:0:0:2::2");
    CHECK(outcome.type == to_string(gid_type::infiniband));
    CHECK(outcome.is_routed == (port == 1));
    CHECK(outcome.is_received);
  }
}
