// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tests with two processes. The peer is another instance of this program, which runs the test case
/// that is reserved for peers.
#include "channels.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr const char* socket_variable = "VERBSPP_TEST_PEER_SOCKET";
constexpr const char* role_variable = "VERBSPP_TEST_PEER_ROLE";
constexpr std::size_t message_size = 5000;

/// This process's end of a stream between the two processes.
class peer_link {
 public:
  explicit peer_link(int descriptor) : descriptor_(descriptor) {}
  ~peer_link() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  peer_link(peer_link&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  peer_link& operator=(peer_link&&) = delete;

  void put(std::span<const std::byte> bytes) const {
    if (::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
      throw failure(__FILE__, __LINE__, "the other process has exited");
  }
  void take(std::span<std::byte> bytes) const {
    const auto deadline = clock::now() + patience;
    std::size_t got = 0;
    while (got < bytes.size()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now()).count();
      pollfd readable{descriptor_, POLLIN, 0};
      if (left <= 0 || ::poll(&readable, 1, static_cast<int>(left)) <= 0)
        throw failure(__FILE__, __LINE__, "the other process does not answer");
      const ssize_t taken = ::recv(descriptor_, bytes.data() + got, bytes.size() - got, 0);
      if (taken <= 0) throw failure(__FILE__, __LINE__, "the other process has exited");
      got += static_cast<std::size_t>(taken);
    }
  }
  template <class Travelling>
  [[nodiscard]] Travelling exchange(const Travelling& mine) const {
    put(mine.encode());
    return take<Travelling>();
  }
  template <class Travelling>
  [[nodiscard]] Travelling take() const {
    std::array<std::byte, Travelling::encoded_size> bytes;
    take(bytes);
    return must(Travelling::decode(bytes));
  }
  /// Waits until the other process has also called `meet`.
  void meet() const {
    const std::array<std::byte, 1> mine{std::byte{0x42}};
    std::array<std::byte, 1> theirs{};
    put(mine);
    take(theirs);
  }

 private:
  int descriptor_;
};

using writable = remote_memory<access::remote_write | access::remote_read>;

/// The other process. The destructor kills it if it is still running.
class peer_process {
 public:
  explicit peer_process(const char* role) : process_(start(role)) {}
  ~peer_process() { kill(); }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  [[nodiscard]] const peer_link& connection() const { return *link_; }

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
  }

  /// Waits for the process to exit. Returns true if it exits normally and has detected no error.
  [[nodiscard]] bool ends_well() {
    int status = 0;
    wait_until([&] { return ::waitpid(process_, &status, WNOHANG) != 0; },
               "the other process to end");
    process_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t start(const char* role) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    link_.emplace(ends[0]);
    const peer_link theirs(ends[1]);
    // The child inherits this duplicate, because the duplicate has no close-on-exec flag.
    const int inherited = ::fcntl(ends[1], F_DUPFD, 100);
    REQUIRE(inherited >= 0);
    const peer_link duplicate(inherited);

    std::array<char, PATH_MAX> program{};
    REQUIRE(::readlink("/proc/self/exe", program.data(), program.size() - 1) > 0);
    const std::string socket = std::string(socket_variable) + '=' + std::to_string(inherited);
    const std::string task = std::string(role_variable) + '=' + role;
    std::vector<char*> variables;
    for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
    variables.push_back(const_cast<char*>(socket.c_str()));
    variables.push_back(const_cast<char*>(task.c_str()));
    variables.push_back(nullptr);
    std::string test_case = "entry point of the child process (not a test)";
    const std::array<char*, 3> arguments{program.data(), test_case.data(), nullptr};
    pid_t process = 0;
    // The child's output goes to standard error, because the parent reports its results on standard
    // output.
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    const int errnum = ::posix_spawn(&process, program.data(), &actions, nullptr, arguments.data(),
                                     variables.data());
    ::posix_spawn_file_actions_destroy(&actions);
    REQUIRE(errnum == 0);
    return process;
  }

  std::optional<peer_link> link_;
  pid_t process_;
};

/// Connects to the other process over the stream. Returns only when both have connected, so that
/// neither sends anything to a queue pair that is not ready.
connected connect_over(const peer_link& connection, prepared pair) {
  const endpoint remote = connection.exchange(pair.endpoint());
  connected result = must(std::move(pair).handshake(remote));
  connection.meet();
  return result;
}

// These are the functions that the other process executes, one for each role.

void answer_messages(const testbed& bed, const peer_link& connection) {
  buffer<> memory(bed.domain, message_size);
  prepared pair = must(bed.left().build());
  must(pair.post_receive({.elements = memory.scatter()}, {.id = 1}));
  connected right = connect_over(connection, std::move(pair));
  for (int round = 0; round < 20; ++round) {
    const completed_work received = take_success(bed.left_queue, 1);
    if (received.byte_count() != message_size)
      throw failure(__FILE__, __LINE__, "a message of another size arrived");
    std::ranges::reverse(memory.content());
    must(right.post_send({.elements = memory.gather(), .immediate = received.immediate()},
                         {.id = 2}));
    take_success(bed.left_queue, 2);
    must(right.post_receive({.elements = memory.scatter()}, {.id = 1}));
    connection.meet();
  }
}

void offer_memory(const testbed& bed, const peer_link& connection) {
  buffer<> memory(bed.domain, pattern(message_size, 60));
  connected right = connect_over(connection, must(bed.left().build()));
  connection.put(writable(memory.remote()).encode());
  // While the parent reads and writes this memory, this process makes no verbs calls.
  connection.meet();
  if (memory.bytes() != pattern(message_size, 61))
    throw failure(__FILE__, __LINE__, "the parent's data was not written");
}

void swallow_messages(const testbed& bed, const peer_link& connection) {
  buffer<> memory(bed.domain, message_size);
  prepared pair = must(bed.left().build());
  for (int i = 0; i < 16; ++i) must(pair.post_receive({.elements = memory.scatter()}));
  connected right = connect_over(connection, std::move(pair));
  for (;;) {
    must(take_one(bed.left_queue).get());
    must(right.post_receive({.elements = memory.scatter()}));
  }
}

/// Connects a channel to the other process over the stream.
channel connect_over(const peer_link& connection, prepared_channel end) {
  const endpoint remote = connection.exchange(end.endpoint());
  channel result = must(std::move(end).handshake(remote));
  connection.meet();
  return result;
}

void write_what_is_leased(const testbed& bed, const peer_link& connection) {
  const buffer<> source(bed.domain, pattern(message_size, 63));
  channel mine = connect_over(connection, must(bed.domain.build_channel().build()));
  const auto far = connection.take<writable>();
  must(mine.write({.elements = source.gather(), .remote = far}));
  connection.meet();
  while (mine.write({.elements = source.gather(), .remote = far}, patience).has_value()) {
  }
}

}  // namespace

TEST_CASE("entry point of the child process (not a test)", "[.]") {
  const char* socket = std::getenv(socket_variable);
  const char* role = std::getenv(role_variable);
  if (socket == nullptr || role == nullptr) SKIP("this runs as a child of the other test cases");
  const peer_link connection(std::atoi(socket));
  const testbed bed;
  if (std::strcmp(role, "answer") == 0) return answer_messages(bed, connection);
  if (std::strcmp(role, "offer") == 0) return offer_memory(bed, connection);
  if (std::strcmp(role, "swallow") == 0) return swallow_messages(bed, connection);
  if (std::strcmp(role, "write") == 0) return write_what_is_leased(bed, connection);
  FAIL("unknown role: " << role);
}

TEST_CASE("messages travel to another process and back") {
  const testbed bed;
  peer_process peer("answer");
  buffer<> outbox(bed.domain, pattern(message_size, 62));
  buffer<> inbox(bed.domain, message_size);
  connected left = connect_over(peer.connection(), must(bed.left().build()));
  for (std::uint32_t round = 0; round < 20; ++round) {
    must(left.post_receive({.elements = inbox.scatter()}, {.id = 1}));
    must(left.post_send({.elements = outbox.gather(), .immediate = immediate_data(round)},
                        {.id = 2}));
    for (const work_completion& each : take(bed.left_queue, 2)) {
      const completed_work work = must(each.get());
      if (work.is_receive()) CHECK(work.immediate() == immediate_data(round));
    }
    std::ranges::reverse(inbox.content());
    CHECK(inbox.bytes() == outbox.bytes());
    outbox.content()[round] ^= std::byte{0xff};
    peer.connection().meet();
  }
  CHECK(peer.ends_well());
}

TEST_CASE("memory of another process can be read and written without its involvement") {
  const testbed bed;
  peer_process peer("offer");
  connected left = connect_over(peer.connection(), must(bed.left().build()));
  const auto far = peer.connection().take<writable>();
  CHECK(far.length() == message_size);
  buffer<> memory(bed.domain, message_size);
  must(left.post_read({.elements = memory.scatter(), .remote = far}, {.id = 1}));
  take_success(bed.left_queue, 1);
  CHECK(memory.bytes() == pattern(message_size, 60));
  std::ranges::copy(pattern(message_size, 61), memory.content().begin());
  must(left.post_write({.elements = memory.gather(), .remote = far}, {.id = 2}));
  take_success(bed.left_queue, 2);
  peer.connection().meet();
  CHECK(peer.ends_well());
}

TEST_CASE("a process that is killed in the middle of a stream is detected") {
  const testbed bed;
  peer_process peer("swallow");
  buffer<> memory(bed.domain, message_size);
  connected left =
      connect_over(peer.connection(), must(bed.left().ack_timeout(16).ack_retry_count(2).build()));
  constexpr std::uint64_t window = 8;
  std::uint64_t posted = 0, completed = 0;
  const auto post = [&] {
    must(left.post_send({.elements = memory.gather()}, {.id = posted}));
    ++posted;
  };
  while (posted < window) post();
  std::optional<work_status> failed;
  auto deadline = clock::now() + patience;
  // The first request to fail is the one that received no acknowledgement. The requests after it
  // are flushed.
  while (completed < posted) {
    if (clock::now() > deadline) FAIL("no request failed after the other process was killed");
    std::array<work_completion, 4> slots;
    for (const work_completion& each : must(bed.left_queue.poll(slots))) {
      REQUIRE(each.wr_id() == completed++);
      deadline = clock::now() + patience;
      const work_status status = status_of(each);
      if (failed) {
        CHECK(status == work_status::flushed);
      } else if (status != work_status::success) {
        failed = status;
      } else {
        if (completed == 100) peer.kill();
        post();
      }
    }
  }
  REQUIRE(failed);
  CHECK(*failed == work_status::retry_exceeded);
  CHECK(completed >= 100);
  wait_for_error_state(left);

  // The device continues to work for other queue pairs.
  auto [other_left, other_right] = connect(bed);
  must(other_right.post_receive({.elements = memory.scatter()}, {.id = 1}));
  must(other_left.post_send({}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
}

TEST_CASE("after a child process was killed, another child can connect") {
  const testbed bed;
  for (int round = 0; round < 4; ++round) {
    peer_process peer("offer");
    connected left = connect_over(peer.connection(), must(bed.left().build()));
    const auto far = peer.connection().take<writable>();
    buffer<> memory(bed.domain, message_size);
    must(left.post_read({.elements = memory.scatter(), .remote = far}, {.id = 1}));
    take_success(bed.left_queue, 1);
    CHECK(memory.bytes() == pattern(message_size, 60));
    peer.kill();
  }
}

TEST_CASE("another process can write to memory leased to it until the lease is revoked") {
  const testbed bed;
  for (const bool is_killed : {false, true}) {
    INFO((is_killed ? "killed" : "it continues to run"));
    peer_process peer("write");
    buffer<access::local_write | access::window_bind> memory(bed.domain, message_size);
    channel mine = connect_over(peer.connection(), must(bed.domain.build_channel().build()));
    constexpr auto rights = access::remote_write | access::remote_read;
    auto lease =
        supported(mine.lease<rights>(memory.region(), 0, message_size), "memory windows of type 2");
    peer.connection().put(must(lease.remote()).encode());
    peer.connection().meet();
    if (is_killed) peer.kill();
    const auto start = clock::now();
    must(lease.revoke(patience));
    CHECK(clock::now() - start < soon);
    const std::vector<std::byte> expected = pattern(message_size, 64);
    std::ranges::copy(expected, memory.content().begin());
    // The process exits as soon as one of its writes is refused.
    if (!is_killed) CHECK(peer.ends_well());
    // steady: this pause only gives an error time to show: a correct library passes after any pause
    std::this_thread::sleep_for(moment);
    CHECK(memory.bytes() == expected);
  }
}
