// SPDX-License-Identifier: Apache-2.0
// Files of a device that programs read in addition to using the verbs, and accesses to other files,
// which must not be affected.
#include "catch.hpp"
#include "support/descriptors.hpp"
#include "support/fabric.hpp"
#include <softverbs/softverbs.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace {

const std::string of_device = "/sys/class/infiniband/soft0/";
const std::string of_port = of_device + "ports/1/";
const std::string command_device = "/dev/infiniband/softverbs0";

/// Returns the content of a file, without the newline at the end.
std::optional<std::string> text_of(int descriptor) {
  if (descriptor < 0) return std::nullopt;
  std::array<char, 8192> bytes{};
  const ssize_t size = ::read(descriptor, bytes.data(), bytes.size());
  CHECK(::close(descriptor) == 0);
  if (size < 1) return std::nullopt;
  CHECK(bytes[static_cast<std::size_t>(size) - 1] == '\n');
  return std::string(bytes.data(), static_cast<std::size_t>(size) - 1);
}
std::optional<std::string> text_of(const std::string& path) {
  return text_of(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

bool is_missing(const std::string& path) {
  struct stat about{};
  errno = 0;
  const bool missing = ::open(path.c_str(), O_RDONLY) == -1 && errno == ENOENT;
  return missing && ::stat(path.c_str(), &about) == -1 && errno == ENOENT &&
         ::access(path.c_str(), F_OK) == -1 && errno == ENOENT;
}

using names = std::set<std::string>;

/// Returns the names in a folder, except for "." and "..", both of which must exist.
names names_in(const std::string& path) {
  names result;
  DIR* const folder = ::opendir(path.c_str());
  INFO(path);
  REQUIRE(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) result.insert(entry->d_name);
  CHECK(::closedir(folder) == 0);
  CHECK(result.erase(".") == 1);
  CHECK(result.erase("..") == 1);
  return result;
}

/// Looks up a function of libc by its name, because the headers do not declare all of these
/// functions.
template <typename Function>
Function* libc(const char* name) {
  auto* found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  INFO(name);
  REQUIRE(found != nullptr);
  return found;
}

}  // namespace

TEST_CASE("a device has the files of sysfs that programs read") {
  const open_context device;
  CHECK(text_of(of_device + "board_id") == "softverbs");
  CHECK(text_of(of_device + "hca_type") == "softverbs");
  CHECK(text_of(of_device + "fw_ver") == softverbs_version());
  CHECK(text_of(of_device + "node_type") == "1: CA");
  CHECK(text_of(of_device + "node_desc") == "soft0");
  CHECK(text_of(of_device + "node_guid") == "0053:56ff:fe00:0000");
  CHECK(text_of("/sys/class/infiniband/soft1/node_guid") == "0053:56ff:fe00:0001");
  CHECK(text_of(of_device + "device/numa_node") == "-1");
  CHECK(text_of(of_port + "link_layer") == (on_ethernet() ? "Ethernet" : "InfiniBand"));
  CHECK(text_of(of_port + "lid") == (on_ethernet() ? "0x0" : "0x10"));
  CHECK(text_of(of_port + "rate") == "100 Gb/sec (4X EDR)");
  CHECK(text_of(of_port + "pkeys/0") == "0xffff");
}

TEST_CASE("sysfs reports a device without a NUMA node as local to all processors") {
  const auto mask = text_of(of_device + "device/local_cpus");
  REQUIRE(mask);
  long processors = 0;
  for (const char digit : *mask)
    if (digit != ',')
      processors +=
          __builtin_popcount(static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16)));
  CHECK(processors == ::sysconf(_SC_NPROCESSORS_CONF));
}

TEST_CASE("the files of GIDs agree with the verbs") {
  const open_context device;
  for (std::uint32_t index = 0; index < 16; ++index) {
    ibv_gid gid{};
    REQUIRE(ibv_query_gid(device.verbs, 1, static_cast<int>(index), &gid) == 0);
    std::string expected;
    for (unsigned at = 0; at < 16; ++at) {
      char digits[4];
      std::snprintf(digits, sizeof(digits), "%02x", gid.raw[at]);
      expected += digits;
      if (at % 2 == 1 && at != 15) expected += ':';
    }
    CHECK(text_of(of_port + "gids/" + std::to_string(index)) == expected);
    ibv_gid_entry entry{};
    const std::string type = of_port + "gid_attrs/types/" + std::to_string(index);
    if (ibv_query_gid_ex(device.verbs, 1, index, &entry, 0) == 0)
      CHECK(text_of(type) == (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1"));
    else
      CHECK(is_missing(type));
    // This GID does not belong to a network interface.
    CHECK(is_missing(of_port + "gid_attrs/ndevs/" + std::to_string(index)));
  }
}

TEST_CASE("the files of a port show its current state") {
  CHECK(text_of(of_port + "state") == "4: ACTIVE");
  CHECK(text_of(of_port + "phys_state") == "5: LinkUp");
  const auto failures = [] { return std::stoi(text_of(of_port + "counters/link_downed").value()); };
  const int before = failures();
  REQUIRE(softverbs_inject("port-down@soft0/1") == 0);
  CHECK(text_of(of_port + "state") == "1: DOWN");
  CHECK(text_of(of_port + "phys_state") == "3: Disabled");
  CHECK(text_of("/sys/class/infiniband/soft1/ports/1/state") == "4: ACTIVE");
  CHECK(failures() == before + 1);
  softverbs_reset_faults();
  CHECK(text_of(of_port + "state") == "4: ACTIVE");
}

TEST_CASE("the counters of a port count messages that found no posted receive") {
  const auto value = [](const char* name) {
    return std::stoull(text_of(of_port + "hw_counters/" + name).value());
  };
  connection link;
  auto& [left, right] = link;
  const auto received = value("rcvd_rnr_err"), sent = value("send_rnr_err");
  REQUIRE(right.post_receive(1, {right.piece(0, 100)}) == 0);
  REQUIRE(left.send(2, {left.piece(0, 100)}) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(right.wait().status == IBV_WC_SUCCESS);
  CHECK(value("rcvd_rnr_err") == received);
  CHECK(value("send_rnr_err") == sent);
  REQUIRE(left.send(3, {left.piece(0, 100)}) == 0);
  CHECK(eventually([&] { return value("rcvd_rnr_err") > received; }));
  CHECK(value("send_rnr_err") > sent);
  REQUIRE(right.post_receive(4, {right.piece(0, 100)}) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(right.wait().status == IBV_WC_SUCCESS);
}

TEST_CASE("the counters of a port grow with the traffic of its queue pairs") {
  const auto value = [](const char* name) {
    return std::stoull(text_of(of_port + "counters/" + name).value_or("0"));
  };
  const std::array counted{"port_xmit_data", "port_xmit_packets", "port_rcv_data",
                           "port_rcv_packets"};
  std::array<unsigned long long, counted.size()> before{};
  const auto begin = [&] {
    for (std::size_t at = 0; at < counted.size(); ++at) before[at] = value(counted[at]);
  };
  // A counter may have grown by more than `by`, because requests may be retransmitted, and because
  // other packets are counted, too.
  const auto grew = [&](std::size_t at, unsigned long long by) {
    return value(counted[at]) - before[at] >= by;
  };
  connection link;
  auto& [left, right] = link;
  const address there = right.here();
  begin();
  REQUIRE(right.post_receive(1, {right.piece(0, 100000)}) == 0);
  REQUIRE(left.send(2, {left.piece(0, 100000)}) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(right.wait().status == IBV_WC_SUCCESS);
  // The data counters count units of four bytes. The packet counters count the packets that the
  // path MTU, which is at most 4096 bytes, would require.
  CHECK(grew(0, 25000));
  CHECK(grew(1, 25));
  CHECK(grew(2, 25000));
  CHECK(grew(3, 25));
  begin();
  REQUIRE(left.write(3, {left.piece(0, 40000)}, there) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(grew(0, 10000));
  CHECK(grew(1, 10));
  begin();
  REQUIRE(left.read(4, {left.piece(0, 40000)}, there) == 0);
  CHECK(left.wait().status == IBV_WC_SUCCESS);
  CHECK(grew(1, 1));
  CHECK(grew(2, 10000));
  CHECK(grew(3, 10));
  CHECK(value("symbol_error") == 0);
  CHECK(names_in(of_port + "counters").contains("port_rcv_errors"));
}

TEST_CASE("files that a device lacks don't exist") {
  for (const char* path : {"/sys/class/infiniband/soft",
                           "/sys/class/infiniband/softverbs0",
                           "/sys/class/infiniband/soft64",
                           "/sys/class/infiniband/soft2/node_type",
                           "/sys/class/infiniband/soft00/node_type",
                           "/sys/class/infiniband/soft-1/node_type",
                           "/sys/class/infiniband/soft0x/node_type",
                           "/sys/class/infiniband/soft0/node_typ",
                           "/sys/class/infiniband/soft0/node_types",
                           "/sys/class/infiniband/soft0/node_type/x",
                           "/sys/class/infiniband/soft0/device/vendor",
                           "/sys/class/infiniband/soft0/dev",
                           "/sys/class/infiniband/soft0/ports/0/state",
                           "/sys/class/infiniband/soft0/ports/2/state",
                           "/sys/class/infiniband/soft0/ports/1/gids/16",
                           "/sys/class/infiniband/soft0/ports/1/gids/x",
                           "/sys/class/infiniband/soft0/ports/1/gids/1/1",
                           "/sys/class/infiniband/soft0/ports/1/gid",
                           "/sys/class/infiniband/soft0/ports/1/pkeys/1",
                           "/sys/class/infiniband/soft99999999999999999999/node_type",
                           "/dev/infiniband/softverbs2",
                           "/dev/infiniband/softverbs",
                           "/dev/infiniband/softverbs0/",
                           "/dev/infiniband/softverbs0x"}) {
    INFO(path);
    CHECK(is_missing(path));
  }
}

TEST_CASE("folders of a device exist and report their attributes") {
  for (const char* path : {"", "device", "ports", "ports/1", "ports/1/gids", "ports/1/gid_attrs",
                           "ports/1/gid_attrs/types", "ports/1/pkeys"}) {
    std::string whole = of_device + path;
    if (whole.back() == '/') whole.pop_back();
    INFO(whole);
    struct stat about{};
    REQUIRE(::stat(whole.c_str(), &about) == 0);
    CHECK(S_ISDIR(about.st_mode));
    CHECK(::access(whole.c_str(), R_OK) == 0);
    CHECK(::stat((whole + "/").c_str(), &about) == 0);
    CHECK(::stat((whole + "/.").c_str(), &about) == 0);
    struct statx more{};
    CHECK(::statx(AT_FDCWD, whole.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &more) == 0);
    CHECK(S_ISDIR(more.stx_mode));
    for (const std::string& name : names_in(whole)) {
      INFO(name);
      CHECK(::stat((whole + "/" + name).c_str(), &about) == 0);
    }
    CHECK(::open(whole.c_str(), O_RDONLY | O_DIRECTORY) == -1);
  }
}

TEST_CASE("a device's folders list the names of its files") {
  CHECK(names_in(of_device) == names{"board_id", "device", "fw_ver", "hca_type", "hw_rev",
                                     "node_desc", "node_guid", "node_type", "ports",
                                     "sys_image_guid"});
  CHECK(names_in(of_device + "device/") == names{"local_cpus", "numa_node"});
  CHECK(names_in(of_device + "ports") == names{"1"});
  CHECK(names_in(of_port + "pkeys") == names{"0"});
  CHECK(names_in(of_port + "gids").size() == 16);
  CHECK(names_in(of_port + "gid_attrs/ndevs").empty());
  // The GIDs do not belong to network interfaces.
  CHECK(is_missing(of_device + "device/net"));
  for (const char* path : {"nothing", "fw_ver", "fw_ver/", "device/net"}) {
    INFO(path);
    errno = 0;
    CHECK(::opendir((of_device + path).c_str()) == nullptr);
    CHECK(errno == ENOENT);
  }
}

TEST_CASE("the folders above the devices exist and list them") {
  for (const std::string folder : {"/sys/class/infiniband", "/dev/infiniband"}) {
    const bool is_sysfs = folder == "/sys/class/infiniband";
    for (const char* behind : {"", "/", "/.", "//"}) {
      const std::string path = folder + behind;
      INFO(path);
      struct stat about{};
      REQUIRE(::stat(path.c_str(), &about) == 0);
      CHECK(S_ISDIR(about.st_mode));
      CHECK(::access(path.c_str(), R_OK | X_OK) == 0);
      const names listed = names_in(path);
      CHECK(listed.contains(is_sysfs ? "soft0" : "softverbs0"));
      CHECK(listed.contains(is_sysfs ? "soft1" : "softverbs1"));
      CHECK(listed.contains(is_sysfs ? "soft2" : "softverbs2") == false);
    }
    CHECK(is_missing(folder + "_of_nobody"));
    CHECK(is_missing(folder + "/nobody"));
    CHECK(is_missing(folder + "/soft"));
  }
}

TEST_CASE("a device's files have no links and no extended attributes") {
  for (const std::string& path :
       {of_device + "device", of_device + "node_guid", of_port + "gids", command_device}) {
    INFO(path);
    char room[PATH_MAX];
    CHECK(::realpath(path.c_str(), room) == std::string(path));
    char* const made = ::canonicalize_file_name(path.c_str());
    REQUIRE(made != nullptr);
    CHECK(std::string(made) == path);
    std::free(made);
    const auto refusal = [](ssize_t size) { return size == -1 ? errno : 0; };
    CHECK(refusal(::getxattr(path.c_str(), "user.none", room, sizeof(room))) != ENOENT);
    CHECK(refusal(::lgetxattr(path.c_str(), "user.none", room, sizeof(room))) != ENOENT);
    CHECK(refusal(::listxattr(path.c_str(), room, sizeof(room))) != ENOENT);
    CHECK(refusal(::llistxattr(path.c_str(), room, sizeof(room))) != ENOENT);
    CHECK(refusal(::readlink(path.c_str(), room, sizeof(room))) == EINVAL);
    CHECK(refusal(::readlinkat(AT_FDCWD, path.c_str(), room, sizeof(room))) == EINVAL);
  }
  char room[PATH_MAX];
  CHECK(::realpath((of_device + "ports/./").c_str(), room) == of_device + "ports");
  CHECK(::realpath((of_device + "nothing").c_str(), room) == nullptr);
  CHECK(errno == ENOENT);
  CHECK(::realpath("/sys/class/.", room) == std::string("/sys/class"));
}

TEST_CASE("a folder of a device can be rewound and positioned") {
  DIR* const folder = ::opendir((of_device + "device").c_str());
  REQUIRE(folder != nullptr);
  DIR* const other = ::opendir("/");
  REQUIRE(other != nullptr);
  const std::string first = ::readdir(folder)->d_name;
  const long place = ::telldir(folder);
  const std::string second = ::readdir64(folder)->d_name;
  ::rewinddir(folder);
  CHECK(::readdir(folder)->d_name == first);
  ::seekdir(folder, place);
  CHECK(::readdir(folder)->d_name == second);
  CHECK(::readdir(other) != nullptr);
  CHECK(::dirfd(other) >= 0);
  errno = 0;
  CHECK(::dirfd(folder) == -1);
  CHECK(errno == ENOTSUP);
  CHECK(::closedir(other) == 0);
  CHECK(::closedir(folder) == 0);
  // softverbs can keep only 64 folders open at the same time, so the loop succeeds only if closing
  // a folder makes room for another one.
  for (int round = 0; round < 100; ++round) CHECK(names_in(of_device).size() == 10);
}

TEST_CASE("a folder of a device can be scanned with a filter and an order") {
  const std::string path = of_device + "device";
  const auto scanned = [](int count, auto** found) {
    REQUIRE(count >= 0);
    std::vector<std::string> result;
    for (int at = 0; at < count; ++at) {
      result.emplace_back(found[at]->d_name);
      std::free(found[at]);
    }
    std::free(found);
    return result;
  };
  const auto backwards = [](const auto** left, const auto** right) {
    return std::strcmp((*right)->d_name, (*left)->d_name);
  };
  dirent** found = nullptr;
  int count = ::scandir(path.c_str(), &found, nullptr, &::alphasort);
  const std::vector<std::string> all = scanned(count, found);
  CHECK(std::ranges::is_sorted(all));
  names listed = names_in(path);
  listed.insert({".", ".."});
  CHECK(names(all.begin(), all.end()) == listed);
  dirent64** found64 = nullptr;
  count = ::scandir64(
      path.c_str(), &found64, [](const dirent64* each) { return int{each->d_name[0] != '.'}; },
      backwards);
  CHECK(scanned(count, found64) == std::vector<std::string>(all.rbegin(), all.rend() - 2));
  count = ::scandir(path.c_str(), &found, [](const dirent*) { return 0; }, nullptr);
  CHECK(scanned(count, found).empty());
  errno = 0;
  CHECK(::scandir((path + "/nothing").c_str(), &found, nullptr, nullptr) == -1);
  CHECK(errno == ENOENT);
  count = ::scandir("/", &found, nullptr, nullptr);
  CHECK(scanned(count, found).size() > 2);
}

TEST_CASE("files of sysfs are read-only") {
  const std::string path = of_device + "fw_ver";
  struct stat about{};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  CHECK(S_ISREG(about.st_mode));
  CHECK((about.st_mode & 0777) == 0444);
  CHECK(about.st_size > 0);
  struct stat link{};
  REQUIRE(::lstat(path.c_str(), &link) == 0);
  CHECK(S_ISREG(link.st_mode));
  CHECK(::access(path.c_str(), R_OK) == 0);
  CHECK(::access(path.c_str(), X_OK) == -1);
  // A privileged program can open the file for writing, but it cannot write to it.
  const int writable = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (writable >= 0) {
    CHECK(::write(writable, "x", 1) == -1);
    ::close(writable);
  }
  CHECK(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600) == -1);
  CHECK(errno == EEXIST);
  const int kept = ::open(path.c_str(), O_RDONLY);
  CHECK((::fcntl(kept, F_GETFD) & FD_CLOEXEC) == 0);
  ::close(kept);
}

TEST_CASE("the command device is a character device that can be opened and rejects commands") {
  struct stat about{};
  REQUIRE(::stat(command_device.c_str(), &about) == 0);
  CHECK(S_ISCHR(about.st_mode));
  CHECK(::access(command_device.c_str(), R_OK | W_OK) == 0);
  const int descriptor = ::open(command_device.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  CHECK(::write(descriptor, "command", 7) == -1);
  CHECK(errno == ENOSPC);
  ::close(descriptor);
}

TEST_CASE("functions of libc that open or query a device's files agree with each other") {
  const std::string path = of_device + "node_type";
  const char* file = path.c_str();
  const std::string expected = "1: CA";
  for (const char* name : {"open", "open64"})
    CHECK(text_of(libc<int(const char*, int, ...)>(name)(file, O_RDONLY)) == expected);
  for (const char* name : {"__open_2", "__open64_2"})
    CHECK(text_of(libc<int(const char*, int)>(name)(file, O_RDONLY)) == expected);
  for (const char* name : {"openat", "openat64"})
    CHECK(text_of(libc<int(int, const char*, int, ...)>(name)(AT_FDCWD, file, O_RDONLY)) ==
          expected);
  for (const char* name : {"__openat_2", "__openat64_2"})
    CHECK(text_of(libc<int(int, const char*, int)>(name)(AT_FDCWD, file, O_RDONLY)) == expected);
  for (const char* name : {"fopen", "fopen64"}) {
    FILE* stream = libc<FILE*(const char*, const char*)>(name)(file, "re");
    REQUIRE(stream != nullptr);
    std::array<char, 16> line{};
    CHECK(std::fgets(line.data(), line.size(), stream) != nullptr);
    CHECK(line.data() == expected + "\n");
    CHECK(std::fclose(stream) == 0);
  }
  for (const char* name : {"stat", "lstat", "stat64", "lstat64"}) {
    struct stat about{};
    // glibc has exported this function since version 2.33. With an older version, the call fails.
    auto* look = reinterpret_cast<int (*)(const char*, void*)>(::dlsym(RTLD_DEFAULT, name));
    REQUIRE(look != nullptr);
    if (look(file, &about) != 0) {
      CHECK(errno == ENOSYS);
      continue;
    }
    CHECK(S_ISREG(about.st_mode));
    CHECK(look("/no/such/file", &about) == -1);
    CHECK(errno == ENOENT);
  }
#if defined(__x86_64__)
  constexpr int version = 1;
#else
  constexpr int version = 0;
#endif
  for (const char* name : {"__xstat", "__lxstat", "__xstat64", "__lxstat64"}) {
    struct stat about{};
    CHECK(libc<int(int, const char*, void*)>(name)(version, file, &about) == 0);
    CHECK(S_ISREG(about.st_mode));
  }
  for (const char* name : {"__fxstatat", "__fxstatat64"}) {
    struct stat about{};
    CHECK(libc<int(int, int, const char*, void*, int)>(name)(version, AT_FDCWD, file, &about,
                                                             AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(S_ISREG(about.st_mode));
  }
  struct stat about{};
  CHECK(::fstatat(AT_FDCWD, file, &about, AT_SYMLINK_NOFOLLOW) == 0);
  CHECK(S_ISREG(about.st_mode));
  CHECK(::faccessat(AT_FDCWD, file, R_OK, 0) == 0);
  CHECK(::faccessat(AT_FDCWD, file, R_OK, AT_EACCESS) == 0);
}

TEST_CASE("the files can also be read with C++ streams") {
  std::ifstream in(of_device + "node_type");
  std::string line;
  REQUIRE(std::getline(in, line));
  CHECK(line == "1: CA");
  CHECK_FALSE(std::ifstream(of_device + "node"));
}

TEST_CASE("opening a device's files leaks no descriptor and keeps errno") {
  const std::ptrdiff_t before = descriptors_open();
  errno = EDOM;
  for (int round = 0; round < 10; ++round) {
    struct stat about{};
    CHECK(::stat((of_device + "fw_ver").c_str(), &about) == 0);
    CHECK(::access((of_device + "fw_ver").c_str(), R_OK) == 0);
    CHECK(text_of(of_device + "fw_ver"));
  }
  CHECK(errno == EDOM);
  // In the meantime, the device may open and close descriptors for peers from an earlier test.
  CHECK(eventually([&] { return descriptors_open() <= before; }));
}

TEST_CASE("accesses to other files are not affected") {
  std::array<char, 64> name{"/tmp/softverbs-files-XXXXXX"};
  const int made = ::mkstemp(name.data());
  REQUIRE(made >= 0);
  ::close(made);
  const std::string path = name.data();
  const std::string link = path + "-link";
  REQUIRE(::symlink(path.c_str(), link.c_str()) == 0);
  struct stat about{};
  REQUIRE(::lstat(link.c_str(), &about) == 0);
  CHECK(S_ISLNK(about.st_mode));
  REQUIRE(::fstatat(AT_FDCWD, link.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0);
  CHECK(S_ISLNK(about.st_mode));
  REQUIRE(::stat(link.c_str(), &about) == 0);
  CHECK(S_ISREG(about.st_mode));
  CHECK(::unlink(link.c_str()) == 0);
  CHECK(::unlink(path.c_str()) == 0);
  // The mode that is given for a new file must reach the kernel.
  const mode_t usual = ::umask(0);
  const int created = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  ::umask(usual);
  REQUIRE(created >= 0);
  REQUIRE(::fstat(created, &about) == 0);
  CHECK((about.st_mode & 0777) == 0640);
  ::close(created);
  // A relative path is never treated as a file of a device, whatever its name is.
  // steady: this folder contains the file above, which has a unique name
  const int folder = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(folder >= 0);
  const int relative = ::openat(folder, path.c_str() + 5, O_RDONLY | O_CLOEXEC);
  CHECK(relative >= 0);
  ::close(relative);
  CHECK(::openat(folder, "sys/class/infiniband/soft0/fw_ver", O_RDONLY) == -1);
  ::close(folder);
  CHECK(::unlink(path.c_str()) == 0);
  CHECK(::open("", O_RDONLY) == -1);
  CHECK(errno == ENOENT);
  CHECK(::access("/sys/class/infiniband/softX", F_OK) == -1);
}

TEST_CASE("a thread can be cancelled while it opens a file") {
  std::array<char, 64> name{"/tmp/softverbs-fifo-XXXXXX"};
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  const std::string fifo = std::string(name.data()) + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  pthread_t opener{};
  // No process writes to the named pipe, so the call that opens it blocks.
  REQUIRE(::pthread_create(
              &opener, nullptr,
              [](void* path) -> void* {
                ::open(static_cast<const char*>(path), O_RDONLY);
                return nullptr;
              },
              const_cast<char*>(fifo.c_str())) == 0);
  CHECK(::pthread_cancel(opener) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(opener, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(::unlink(fifo.c_str()) == 0);
  CHECK(::rmdir(name.data()) == 0);
}
