// SPDX-License-Identifier: Apache-2.0
#include "support/peer.hpp"

#include "catch.hpp"
#include "support/fabric.hpp"
#include "support/frames.hpp"
#include "support/hostile.hpp"
#include "support/limits.hpp"
#include "support/soak.hpp"
#include "support/tracee.hpp"
#include "support/xrc.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

extern char** environ;

namespace {

constexpr int peer_descriptor = 3;

void put(int socket, const void* bytes, std::size_t length) {
  if (::send(socket, bytes, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length))
    throw std::runtime_error("the other process has exited");
}

/// A time limit that never expires. If the test dies, its connection is closed, which ends the
/// wait.
constexpr int without_limit = -1;

void get(int socket, void* bytes, std::size_t length,
         int milliseconds = static_cast<int>(std::chrono::milliseconds(patience).count())) {
  pollfd readable{socket, POLLIN, 0};
  if (::poll(&readable, 1, milliseconds) != 1 ||
      ::recv(socket, bytes, length, MSG_WAITALL) != static_cast<ssize_t>(length))
    throw std::runtime_error("the other process sends nothing");
}

address swap(int socket, endpoint& end) {
  const address here = end.here();
  address there{};
  put(socket, &here, sizeof(here));
  get(socket, &there, sizeof(there));
  end.connect(there);
  // Neither end may continue before both are connected.
  char ready = 'r';
  put(socket, &ready, 1);
  get(socket, &ready, 1);
  return there;
}

char hear_order() {
  char word = 0;
  get(peer_descriptor, &word, 1, without_limit);
  return word;
}

/// Returns each message to its sender until an empty one arrives.
int echo() {
  endpoint end;
  end.initialize();
  for (std::uint64_t id = 0; id < 16; ++id) end.post_receive(id, {end.piece(id << 15, 1 << 15)});
  swap(peer_descriptor, end);
  for (;;) {
    const ibv_wc completion = end.wait();
    if (completion.status != IBV_WC_SUCCESS) return 2;
    if (completion.opcode != IBV_WC_RECV) continue;
    if (completion.byte_len == 0) return 0;
    if (end.send(100, {end.piece(completion.wr_id << 15, completion.byte_len)}) != 0) return 3;
    if (end.post_receive(completion.wr_id, {end.piece(completion.wr_id << 15, 1 << 15)}) != 0)
      return 4;
  }
}

/// Returns each datagram to its sender until an empty one arrives.
int datagram_echo() {
  endpoint end(options{.type = IBV_QPT_UD});
  end.initialize();
  for (std::uint64_t id = 0; id < 16; ++id) end.post_receive(id, {end.piece(id << 13, 1 << 13)});
  swap(peer_descriptor, end);
  for (;;) {
    ibv_wc completion = end.wait();
    if (completion.status != IBV_WC_SUCCESS) return 2;
    if (completion.opcode != IBV_WC_RECV) continue;
    if (completion.byte_len == sizeof(ibv_grh)) return 0;
    const std::size_t place = completion.wr_id << 13;
    auto* header = reinterpret_cast<ibv_grh*>(end.memory.data() + place);
    ibv_ah* back = ibv_create_ah_from_wc(end.domain, &completion, header, 1);
    if (back == nullptr) return 3;
    const auto length = static_cast<std::uint32_t>(completion.byte_len - sizeof(ibv_grh));
    const int error =
        end.send_to(back, completion.src_qp, 100, {end.piece(place + sizeof(ibv_grh), length)});
    ibv_destroy_ah(back);
    if (error != 0) return 4;
    if (end.wait().wr_id != 100) return 5;
    if (end.post_receive(completion.wr_id, {end.piece(place, 1 << 13)}) != 0) return 6;
  }
}

/// Joins the test's multicast group. Succeeds if ten messages arrive.
int member() {
  endpoint end(options{.type = IBV_QPT_UD});
  const ibv_gid group = group_of(::getppid());
  if (ibv_attach_mcast(end.pair, &group, lid_of_group) != 0) return 2;
  end.initialize();
  for (std::uint64_t id = 0; id < 10; ++id) end.post_receive(id, {end.piece(id << 8, 1 << 8)});
  swap(peer_descriptor, end);
  for (std::uint64_t id = 0; id < 10; ++id)
    if (end.wait().wr_id != id) return 3;
  return ibv_detach_mcast(end.pair, &group, lid_of_group) == 0 ? 0 : 4;
}

/// Exchanges MAC addresses with the test, and then returns each frame to its sender.
int frame_echo() {
  frame_end end;
  const mac here = own_mac(1);
  mac there{};
  put(peer_descriptor, here.data(), here.size());
  get(peer_descriptor, there.data(), there.size());
  end.hear(rule().to(here));
  put(peer_descriptor, "r", 1);
  for (;;) {
    ibv_wc completion{};
    while (ibv_poll_cq(end.queue, 1, &completion) == 0) {
      pollfd order{peer_descriptor, POLLIN, 0};
      if (::poll(&order, 1, 0) == 1) return hear_order() == 'q' ? 0 : 2;
    }
    if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV) return 3;
    const auto start =
        end.memory.begin() + static_cast<std::ptrdiff_t>(completion.wr_id * end.room);
    frame back(start, start + completion.byte_len);
    std::copy(there.begin(), there.end(), back.begin());
    std::copy(here.begin(), here.end(), back.begin() + 6);
    if (end.post_receive(completion.wr_id, {end.piece(completion.wr_id * end.room, end.room)}) != 0)
      return 4;
    if (end.send_frame(back) != IBV_WC_SUCCESS) return 5;
  }
}

/// Offers its memory and does nothing else.
int target(ibv_qp_type type) {
  endpoint end(options{.type = type});
  for (std::size_t at = 0; at < end.memory.size(); ++at)
    end.memory[at] = static_cast<unsigned char>(at * 13);
  swap(peer_descriptor, end);
  hear_order();
  return 0;
}

/// When the test asks for it, deregisters its memory while a peer is writing to that memory. Checks
/// that no later write arrives.
int withdrawer() {
  endpoint end;
  swap(peer_descriptor, end);
  hear_order();
  if (ibv_dereg_mr(end.region) != 0) return 2;
  end.region = nullptr;
  std::fill(end.memory.begin(), end.memory.end(), static_cast<unsigned char>(2));
  // The event means that a write has been refused. The writes before it are complete.
  if (end.event().event_type != IBV_EVENT_QP_ACCESS_ERR) return 4;
  return std::count(end.memory.begin(), end.memory.end(), 2) ==
                 static_cast<std::ptrdiff_t>(end.memory.size())
             ? 0
             : 3;
}

/// Writes to the test's memory until this needs no packets, if that is possible. Then, it binds a
/// window to its own memory, and sends the window's key. After that, it carries out the test's
/// orders: it sends its memory, or invalidates the window and checks that no later write arrives.
int lender() {
  options wanted = patient();
  wanted.memory = 3 << 20;
  wanted.region_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
  endpoint end(wanted);
  const address there = swap(peer_descriptor, end);
  if (shares_memory() && !becomes_direct(end, there)) return 7;
  ibv_mw* const window = ibv_alloc_mw(end.domain, IBV_MW_TYPE_2);
  if (window == nullptr) return 2;
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw = {window,
                     ibv_inc_rkey(window->rkey),
                     {end.region, end.here().memory, end.memory.size(), IBV_ACCESS_REMOTE_WRITE}};
  const std::uint32_t key = request.bind_mw.rkey;
  if (end.post(request, {}) != 0 || end.wait().status != IBV_WC_SUCCESS) return 3;
  put(peer_descriptor, &key, sizeof(key));
  for (;;) {
    const char order = hear_order();
    if (order == 'q') return 0;
    if (order == 'm') {
      put(peer_descriptor, end.memory.data(), end.memory.size());
      continue;
    }
    request = {};
    request.opcode = IBV_WR_LOCAL_INV;
    request.send_flags = IBV_SEND_SIGNALED;
    request.invalidate_rkey = key;
    if (end.post(request, {}) != 0 || end.wait().status != IBV_WC_SUCCESS) return 4;
    std::fill(end.memory.begin(), end.memory.end(), static_cast<unsigned char>(2));
    // The event means that a write has been refused.
    if (end.event().event_type != IBV_EVENT_QP_ACCESS_ERR) return 5;
    return std::count(end.memory.begin(), end.memory.end(), 2) ==
                   static_cast<std::ptrdiff_t>(end.memory.size())
               ? 0
               : 6;
  }
}

/// Stays in RTR, with receives for 16 messages. Sends the beginning of its memory when the test
/// asks for it.
int listener() {
  endpoint end(with_atomics());
  end.initialize();
  for (std::uint64_t id = 0; id < 16; ++id) end.post_receive(id, {});
  const address here = end.here();
  address there{};
  put(peer_descriptor, &here, sizeof(here));
  get(peer_descriptor, &there, sizeof(there));
  if (end.ready_to_receive(there) != 0) return 2;
  char ready = 'r';
  put(peer_descriptor, &ready, 1);
  get(peer_descriptor, &ready, 1);
  while (hear_order() == 'm') put(peer_descriptor, end.memory.data(), 1 << 16);
  return 0;
}

/// Receives one message, and exits immediately.
int leaver() {
  endpoint end;
  end.initialize();
  end.post_receive(1, {end.piece(0, 1 << 20)});
  swap(peer_descriptor, end);
  return end.wait().status == IBV_WC_SUCCESS ? 0 : 2;
}

/// When the test asks for it, writes 64 KiB, without packets if that is possible, and reports the
/// result.
int writer() {
  endpoint end(patient());
  const address there = swap(peer_descriptor, end);
  std::fill(end.memory.begin(), end.memory.end(), static_cast<unsigned char>(0x77));
  if (shares_memory() && !becomes_direct(end, there, 0, 1 << 16)) return 3;
  for (;;) {
    if (hear_order() == 'q') return 0;
    if (end.write(1, {end.piece(0, 1 << 16)}, there) != 0) return 2;
    const char status = end.wait().status == IBV_WC_SUCCESS ? '+' : '-';
    put(peer_descriptor, &status, 1);
  }
}

/// Calls exit when the test's first order arrives, while one of its threads is writing. An exit
/// handler waits for the second order.
int hasty_writer() {
  std::atexit([] { hear_order(); });
  endpoint end(patient());
  const address there = swap(peer_descriptor, end);
  std::thread([&] {
    ::pthread_setname_np(::pthread_self(), "writer");
    while (end.write(1, {end.piece(0, 1 << 16)}, there) == 0 &&
           end.wait().status == IBV_WC_SUCCESS);
  }).detach();
  hear_order();
  std::exit(0);
}

/// Adds one to the first word in its peer's memory, a thousand times.
int adder() {
  endpoint end(with_atomics());
  const address there = swap(peer_descriptor, end);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    if (end.fetch_and_add(id, end.piece(0, 8), there, 1) != 0) return 2;
    if (end.wait().status != IBV_WC_SUCCESS) return 3;
  }
  return 0;
}

/// Writes the first thousand words of its peer's memory one by one.
int word_writer() {
  endpoint end(patient());
  const address there = swap(peer_descriptor, end);
  for (std::uint64_t at = 0; at < 1000; ++at) {
    if (end.write(at, {end.piece(0, 8)}, there, 8 * at) != 0) return 2;
    if (end.wait().status != IBV_WC_SUCCESS) return 3;
  }
  return 0;
}

/// Allocates 64 KiB of device memory, and sends its key. When the test asks for it, either adds one
/// to the first word a thousand times, or deregisters the memory and checks that no later write
/// arrives.
int hold_device_memory() {
  endpoint end(with_atomics());
  swap(peer_descriptor, end);
  ibv_alloc_dm_attr attributes{1 << 16, 0, 0};
  ibv_dm* memory = ibv_alloc_dm(end.context, &attributes);
  if (memory == nullptr) return 2;
  ibv_mr* region =
      ibv_reg_dm_mr(end.domain, memory, 0, attributes.length,
                    IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  if (region == nullptr) return 3;
  for (int byte = 3; byte >= 0; --byte) {
    const char part = static_cast<char>(region->rkey >> (8 * byte));
    put(peer_descriptor, &part, 1);
  }
  std::vector<unsigned char> bytes(attributes.length);
  for (;;) {
    const char order = hear_order();
    if (order == 'q') return 0;
    if (order == 'a') {
      options wanted = with_atomics();
      wanted.host = &end;
      endpoint own(wanted);
      address self = own.here();
      own.connect(self);
      self.memory = 0;
      self.rkey = region->rkey;
      for (std::uint64_t id = 0; id < 1000; ++id) {
        if (own.fetch_and_add(id, own.piece(0, 8), self, 1) != 0) return 4;
        if (own.wait().status != IBV_WC_SUCCESS) return 5;
      }
      const auto latest = std::chrono::steady_clock::now() + patience;
      for (std::uint64_t sum = 0; sum != 2000;) {
        if (ibv_memcpy_from_dm(&sum, memory, 0, sizeof(sum)) != 0) return 6;
        if (sum > 2000 || std::chrono::steady_clock::now() > latest) return 7;
      }
    } else {
      if (ibv_dereg_mr(region) != 0) return 8;
      bytes.assign(bytes.size(), 2);
      if (ibv_memcpy_to_dm(memory, 0, bytes.data(), bytes.size()) != 0) return 9;
      // The event means that a write has been refused. The writes before it are complete.
      if (end.event().event_type != IBV_EVENT_QP_ACCESS_ERR) return 12;
      if (ibv_memcpy_from_dm(bytes.data(), memory, 0, bytes.size()) != 0) return 10;
      if (std::count(bytes.begin(), bytes.end(), 2) != static_cast<std::ptrdiff_t>(bytes.size()))
        return 11;
    }
    put(peer_descriptor, &order, 1);
  }
}

/// Receives XRC messages.
int receive_for_xrc() {
  xrc_receiver receiver;
  for (std::uint64_t id = 0; id < 8; ++id) receiver.post(receiver.shared, id, id << 16, 1 << 16);
  address there{};
  get(peer_descriptor, &there, sizeof(there));
  const address here = receiver.here();
  put(peer_descriptor, &here, sizeof(here));
  const std::uint32_t number = number_of(receiver.shared);
  put(peer_descriptor, &number, sizeof(number));
  if (receiver.connect(there) != 0) return 2;
  put(peer_descriptor, "r", 1);
  for (;;) {
    const ibv_wc completion = receiver.end.wait();
    if (completion.status != IBV_WC_SUCCESS) return 3;
    receiver.post(receiver.shared, completion.wr_id, completion.wr_id << 16, 1 << 16);
  }
}

/// Sends 30 large messages, and receives 30 from the test at the same time.
int flood() {
  endpoint end;
  end.initialize();
  for (std::uint64_t id = 0; id < 30; ++id) end.post_receive(id, {end.piece(1 << 19, 300000)});
  swap(peer_descriptor, end);
  for (std::uint64_t id = 0; id < 30; ++id)
    if (end.send(100 + id, {end.piece(0, 300000)}) != 0) return 2;
  for (int left = 60; left > 0; --left)
    if (end.wait().status != IBV_WC_SUCCESS) return 3;
  return 0;
}

/// Polls a queue while a polling session on it is open, and posts while a batch is open, each
/// twice. Succeeds if each of these mistakes is explained exactly once.
int nester() {
  std::FILE* said = std::tmpfile();
  if (said == nullptr || ::dup2(::fileno(said), STDERR_FILENO) < 0) return 2;
  endpoint end;
  ibv_qp_ex* build = build_requests_of(end, IBV_QP_EX_WITH_RDMA_WRITE);
  ibv_wr_start(build);
  for (int round = 0; round < 2; ++round)
    if (end.send(1, {}) != EBUSY) return 3;
  ibv_wr_abort(build);
  extended_endpoint reader;
  reader.initialize();
  reader.post_receive(1, {});
  reader.change(IBV_QPS_ERR);
  reader.start();
  ibv_poll_cq_attr nothing{};
  for (int round = 0; round < 2; ++round)
    if (ibv_start_poll(reader.extended, &nothing) != EBUSY) return 4;
  ibv_end_poll(reader.extended);
  int posts = 0;
  int polls = 0;
  int lines = 0;
  std::array<char, 1000> line{};
  std::rewind(said);
  for (; std::fgets(line.data(), line.size(), said) != nullptr; ++lines) {
    posts += std::string_view(line.data()).find("call ibv_wr_complete") != std::string_view::npos;
    polls += std::string_view(line.data()).find("call ibv_end_poll") != std::string_view::npos;
  }
  return posts == 1 && polls == 1 && lines == 2 ? 0 : 5;
}

}  // namespace

peer::peer(const char* part, const char* setting) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw std::runtime_error("socketpair failed");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // If the two numbers were equal, older versions of glibc would leave close-on-exec set.
  const int passed = pair[1] == peer_descriptor ? ::dup(pair[1]) : pair[1];
  ::posix_spawn_file_actions_adddup2(&actions, passed, peer_descriptor);
  // Under Valgrind, the link itself can't be executed.
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  char option[] = "--peer";
  char* arguments[] = {program.data(), option, const_cast<char*>(part), nullptr};
  std::vector<char*> settings;
  // If a variable is set twice, the first value counts.
  if (setting != nullptr) settings.push_back(const_cast<char*>(setting));
  for (char** each = environ; *each != nullptr; ++each) settings.push_back(*each);
  settings.push_back(nullptr);
  const int error =
      ::posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, settings.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (passed != pair[1]) ::close(passed);
  ::close(pair[1]);
  socket_ = pair[0];
  if (error != 0) throw std::runtime_error("posix_spawn failed");
}

peer::~peer() {
  if (process_ > 0) {
    kill();
    wait();
  }
  ::close(socket_);
}

address peer::meet(endpoint& end) { return swap(socket_, end); }
void peer::tell(char word) { put(socket_, &word, 1); }
void peer::tell(const void* bytes, std::size_t length) { put(socket_, bytes, length); }
void peer::hear(void* bytes, std::size_t length) { get(socket_, bytes, length); }
char peer::hear() {
  char word = 0;
  get(socket_, &word, 1);
  return word;
}
void peer::kill() { ::kill(process_, SIGKILL); }
void peer::stop() {
  ::kill(process_, SIGSTOP);
  // Waits until the process has stopped. The signal takes effect only after a delay, during which
  // the process could still do some work.
  int status = 0;
  ::waitpid(process_, &status, WUNTRACED);
}
void peer::resume() { ::kill(process_, SIGCONT); }

int peer::wait() {
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void peer::finish(int line) {
  CAPTURE(line);
  tell('q');
  CHECK(wait() == 0);
}

ibv_gid group_of(pid_t process) {
  ibv_gid result{};
  result.raw[0] = 0xff;
  std::memcpy(&result.raw[8], &process, sizeof(process));
  return result;
}

bool becomes_direct(endpoint& end, const address& there, std::uint64_t offset,
                    std::uint32_t length) {
  return eventually([&] {
    const std::uint32_t before = next_psn_of(end);
    return end.write(1, {end.piece(0, length)}, there, offset) == 0 &&
           end.wait().status == IBV_WC_SUCCESS && next_psn_of(end) == before;
  });
}

bool shares_memory() {
  const char* said = std::getenv("SOFTVERBS_SHARED_MEMORY");
  return said == nullptr || std::string_view(said) == "yes";
}

bool may_be_traced() {
  if (!shares_memory()) return false;
  peer other("target");
  endpoint end;
  other.meet(end);
  const bool result = tracee::may_trace(other.process());
  other.finish();
  return result;
}

address with_test::meet(endpoint& end) { return swap(peer_descriptor, end); }
void with_test::tell(char word) { put(peer_descriptor, &word, 1); }
void with_test::hear(void* bytes, std::size_t length) {
  get(peer_descriptor, bytes, length, without_limit);
}

int play(const char* part) try {
  const std::string_view name(part);
  if (name == "echo") return echo();
  if (name == "datagram echo") return datagram_echo();
  if (name == "member") return member();
  if (name == "frame echo") return frame_echo();
  if (name == "target") return target(IBV_QPT_RC);
  if (name == "unreliable target") return target(IBV_QPT_UC);
  if (name == "datagram target") return target(IBV_QPT_UD);
  if (name == "withdrawer") return withdrawer();
  if (name == "writer") return writer();
  if (name == "hasty writer") return hasty_writer();
  if (name == "soaker") return soak::work();
  if (name == "latecomer") return limits_of_host::latecomer();
  if (name == "without threads") return limits_of_host::without_threads();
  if (name == "seeker") return limits_of_host::seeker();
  if (name == "caller") return hostile::caller();
  if (name == "holder") return hostile::holder();
  if (name == "forger") return hostile::forger();
  if (name == "liar") return hostile::liar();
  if (name == "adder") return adder();
  if (name == "word writer") return word_writer();
  if (name == "leaver") return leaver();
  if (name == "lender") return lender();
  if (name == "listener") return listener();
  if (name == "flood") return flood();
  if (name == "xrc") return receive_for_xrc();
  if (name == "holder of device memory") return hold_device_memory();
  if (name == "nester") return nester();
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", part, error.what());
  return 1;
}
