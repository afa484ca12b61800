// SPDX-License-Identifier: Apache-2.0
// Regions of dma-bufs, and of memory files, from which dma-bufs can be made.
#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/peer.hpp"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace {

constexpr int buffer_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct open_file {
  explicit open_file(int opened) : descriptor(opened) { REQUIRE(opened >= 0); }
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() { close(); }
  void close() {
    if (const int last = std::exchange(descriptor, -1); last >= 0) ::close(last);
  }
  int descriptor;
};

/// An anonymous file in memory.
struct memory_file : open_file {
  explicit memory_file(std::size_t bytes)
      : open_file(::memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    resize(bytes);
  }
  void resize(std::size_t bytes) const {
    REQUIRE(::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0);
  }
  /// Reads the content without mapping the file.
  std::string read(std::size_t at, std::size_t length) const {
    std::string text(length, '\0');
    const ssize_t got = ::pread(descriptor, text.data(), length, static_cast<off_t>(at));
    return text.substr(0, got < 0 ? 0 : static_cast<std::size_t>(got));
  }
};

struct buffer_region {
  buffer_region(ibv_pd* domain, int descriptor, std::uint64_t offset, std::size_t length,
                std::uint64_t iova, int access = buffer_rights)
      : verbs(ibv_reg_dmabuf_mr(domain, offset, length, iova, descriptor, access)) {
    REQUIRE(verbs != nullptr);
  }
  buffer_region(const buffer_region&) = delete;
  buffer_region& operator=(const buffer_region&) = delete;
  ~buffer_region() { CHECK(ibv_dereg_mr(verbs) == 0); }
  /// Returns the address that a peer uses for this iova.
  address at(std::uint64_t iova, const endpoint& owner) const {
    address there = owner.here();
    there.memory = iova;
    there.rkey = verbs->rkey;
    return there;
  }
  ibv_mr* verbs;
};

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

}  // namespace

TEST_CASE("a dma-buf is accessed by the addresses of its registration") {
  connection link(with_atomics());
  memory_file file(4 * page);
  constexpr std::uint64_t iova = 0x7000'0000'0000 + 24;
  const buffer_region region(link.right.domain, file.descriptor, page + 24, page, iova);
  CHECK(region.verbs->addr == reinterpret_cast<void*>(page + 24));
  CHECK(region.verbs->length == page);
  CHECK(region.verbs->pd == link.right.domain);
  CHECK(region.verbs->context == link.right.context);
  const address there = region.at(iova, link.right);

  std::fill_n(link.left.memory.begin(), page, static_cast<unsigned char>('x'));
  REQUIRE(link.left.write(1, {link.left.piece(0, static_cast<std::uint32_t>(page))}, there) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(file.read(0, 4 * page) ==
        std::string(page + 24, '\0') + std::string(page, 'x') + std::string(2 * page - 24, '\0'));
  REQUIRE(link.left.fetch_and_add(2, link.left.piece(0, 8), there, 1) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(file.read(page + 24, 2) == "yx");
  REQUIRE(link.left.read(3, {link.left.piece(page, 8)}, there) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(link.left.memory[page] == 'y');

  SECTION("an access beyond the registered part fails") {
    REQUIRE(link.left.write(4, {link.left.piece(0, 2)}, there, page - 1) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
    CHECK(file.read(2 * page + 24, 1) == std::string(1, '\0'));
  }
  SECTION("the region can be used as local memory") {
    // The right end sends from one part of the region, and receives into a different part of it.
    const ibv_sge from{iova, 2, region.verbs->lkey};
    const ibv_sge into{iova + 100, 2, region.verbs->lkey};
    REQUIRE(link.left.post_receive(5, {link.left.piece(0, 2)}) == 0);
    REQUIRE(link.right.send(5, {from}) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    CHECK(link.right.wait().status == IBV_WC_SUCCESS);
    CHECK(link.left.memory[0] == 'y');
    REQUIRE(link.right.post_receive(6, {into}) == 0);
    REQUIRE(link.left.send(6, {link.left.piece(0, 2)}) == 0);
    CHECK(link.right.wait().status == IBV_WC_SUCCESS);
    CHECK(file.read(page + 124, 2) == "yx");
  }
}

TEST_CASE("a region of a dma-buf stays valid when a descriptor of its file is closed") {
  connection link;
  memory_file file(page);
  const open_file same(::fcntl(file.descriptor, F_DUPFD_CLOEXEC, 0));
  const buffer_region region(link.right.domain, same.descriptor, 0, page, 0);
  file.close();
  link.left.memory[0] = 'z';
  REQUIRE(link.left.write(1, {link.left.piece(0, 1)}, region.at(0, link.right)) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  char there = 0;
  CHECK(::pread(same.descriptor, &there, 1, 0) == 1);
  CHECK(there == 'z');
}

TEST_CASE("invalid parts of a dma-buf are refused for the same reasons as in the kernel") {
  const endpoint end;
  const memory_file file(2 * page);
  const auto attempt = [&](int descriptor, std::uint64_t offset, std::size_t length,
                           std::uint64_t iova, int access) {
    errno = 0;
    ibv_mr* region = ibv_reg_dmabuf_mr(end.domain, offset, length, iova, descriptor, access);
    if (region == nullptr) return errno;
    CHECK(ibv_dereg_mr(region) == 0);
    return 0;
  };
  const int fd = file.descriptor;
  CHECK(attempt(fd, 0, 2 * page, 0, buffer_rights) == 0);
  CHECK(attempt(fd, page, page, 0, buffer_rights) == 0);
  CHECK(attempt(fd, 0, 0, 0, buffer_rights) == EINVAL);
  CHECK(attempt(fd, 0, 2 * page + 1, 0, buffer_rights) == EINVAL);
  CHECK(attempt(fd, page, page + 1, 0, buffer_rights) == EINVAL);
  CHECK(attempt(fd, 4 * page, 1, 0, buffer_rights) == EINVAL);
  CHECK(attempt(fd, ~std::uint64_t{0}, 2, page - 1, buffer_rights) == EINVAL);
  CHECK(attempt(fd, 8, 8, 16, buffer_rights) == EINVAL);
  CHECK(attempt(fd, 8, 8, 8, buffer_rights) == 0);
  CHECK(attempt(fd, 0, 8, ~std::uint64_t{0} - page + 1, buffer_rights) == 0);
  CHECK(attempt(fd, 8, page, ~std::uint64_t{0} - page + 9, buffer_rights) == EINVAL);

  CHECK(attempt(fd, 0, 8, 0, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(attempt(fd, 0, 8, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(attempt(fd, 0, 8, 0, IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(attempt(fd, 0, 8, 0, IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(attempt(fd, 0, 8, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING) == 0);

  CHECK(attempt(-1, 0, 8, 0, buffer_rights) == EBADF);
  CHECK(attempt(1 << 20, 0, 8, 0, buffer_rights) == EBADF);
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const open_file left(pipe[0]);
  const open_file right(pipe[1]);
  CHECK(attempt(left.descriptor, 0, 8, 0, 0) == EINVAL);
  const open_file null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK(attempt(null.descriptor, 0, 8, 0, 0) == EINVAL);
  const open_file program(::open("/bin/sh", O_RDONLY | O_CLOEXEC));
  CHECK(attempt(program.descriptor, 0, 8, 0, 0) == EINVAL);
}

TEST_CASE("a read-only dma-buf gives no right to write") {
  const endpoint end;
  const memory_file file(page);
  const auto attempt = [&](int descriptor, int access) {
    errno = 0;
    ibv_mr* region = ibv_reg_dmabuf_mr(end.domain, 0, page, 0, descriptor, access);
    if (region == nullptr) return errno;
    CHECK(ibv_dereg_mr(region) == 0);
    return 0;
  };
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor);
  const open_file to_read(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(attempt(to_read.descriptor, buffer_rights) == EACCES);
  CHECK(attempt(to_read.descriptor, IBV_ACCESS_REMOTE_READ) == 0);
  REQUIRE(::fcntl(file.descriptor, F_ADD_SEALS, F_SEAL_WRITE) == 0);
  CHECK(attempt(file.descriptor, buffer_rights) == EPERM);
}

TEST_CASE("truncated pages of a dma-buf make requests fail and have no other effect") {
  connection link;
  const memory_file file(2 * page);
  const buffer_region region(link.right.domain, file.descriptor, 0, 2 * page, 0);
  file.resize(page);
  const address there = region.at(0, link.right);
  SECTION("a peer writes to them") {
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, there, page - 8) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
    REQUIRE(link.left.write(2, {link.left.piece(0, 8)}, there, page) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
    CHECK(link.right.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  }
  SECTION("a peer reads from them") {
    REQUIRE(link.left.read(2, {link.left.piece(0, 8)}, there, page) == 0);
    CHECK(link.left.wait().status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("the sender's memory is truncated") {
    REQUIRE(link.left.post_receive(1, {link.left.piece(0, 8)}) == 0);
    REQUIRE(link.right.send(2, {ibv_sge{page, 8, region.verbs->lkey}}) == 0);
    CHECK(link.right.wait().status == IBV_WC_LOC_PROT_ERR);
  }
  SECTION("the pages exist again") {
    file.resize(2 * page);
    REQUIRE(link.left.write(1, {link.left.piece(0, 8)}, there, page) == 0);
    CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a region of a dma-buf can't be re-registered") {
  const endpoint end;
  const memory_file file(page);
  const buffer_region region(end.domain, file.descriptor, 0, page, 0);
  std::array<char, 64> memory{};
  errno = 0;
  CHECK(ibv_rereg_mr(region.verbs, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(),
                     memory.size(), 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EINVAL);
  CHECK(ibv_rereg_mr(region.verbs, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                     IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT);
  CHECK(region.verbs->addr == nullptr);
  CHECK(region.verbs->length == page);
}

TEST_CASE("another process writes to a dma-buf until its pages are truncated") {
  constexpr std::size_t most = 1 << 16;
  endpoint end(patient());
  const memory_file file(most + page);
  const auto iova = reinterpret_cast<std::uintptr_t>(end.memory.data());
  const std::size_t offset = iova % page;
  const buffer_region region(end.domain, file.descriptor, offset, most, iova);
  peer other("writer");
  ibv_mr* const own = std::exchange(end.region, region.verbs);
  other.meet(end);
  end.region = own;
  other.tell('w');
  CHECK(other.hear() == '+');
  CHECK(file.read(offset, most) == std::string(most, '\x77'));
  CHECK(end.memory[0] == 0);
  file.resize(page);
  other.tell('w');
  CHECK(other.hear() == '-');
  CHECK(end.event().event_type == IBV_EVENT_QP_ACCESS_ERR);
  other.finish();
}

TEST_CASE("dma-bufs of /dev/udmabuf can be accessed") {
  const int maker = ::open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
  if (maker < 0) {
    WARN("/dev/udmabuf can't be opened here");
    return;
  }
  const open_file device(maker);
  connection link(patient());
  const memory_file file(4 * page);
  REQUIRE(::fcntl(file.descriptor, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  udmabuf_create asked{};
  asked.memfd = static_cast<__u32>(file.descriptor);
  asked.flags = UDMABUF_FLAGS_CLOEXEC;
  asked.offset = page;
  asked.size = 2 * page;
  open_file buffer(::ioctl(device.descriptor, UDMABUF_CREATE, &asked));
  const buffer_region region(link.right.domain, buffer.descriptor, 8, 2 * page - 8, 8);
  CHECK(refusal([&] {
          return ibv_reg_dmabuf_mr(link.right.domain, 8, 2 * page, 8, buffer.descriptor, 0);
        }) == EINVAL);
  buffer.close();
  link.left.memory[0] = 'u';
  REQUIRE(link.left.write(1, {link.left.piece(0, 1)}, region.at(0, link.right), page + 8) == 0);
  CHECK(link.left.wait().status == IBV_WC_SUCCESS);
  CHECK(file.read(2 * page + 8, 1) == "u");
}
