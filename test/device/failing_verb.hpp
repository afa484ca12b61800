// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lets calls of libibverbs fail that no device can be asked to let fail.
#pragma once

#include "failing_device.hpp"

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace verbspp::test {

/// How a call tells that it failed.
enum class convention : std::uint8_t {
  returns_errno,
  negative_errno,
  minus_one,        ///< and errno
  minus_one_alone,  ///< and leaves errno as it was
  null,             ///< and errno
};

/// What a failing call returns.
struct answer {
  int number;
  operator int() const { return number; }
  operator ssize_t() const { return number; }
  template <class Object>
  operator Object*() const {
    return nullptr;
  }
};

/// By that convention; sets errno if that belongs to it.
[[nodiscard]] answer answer_by(convention told, int errnum);

struct verb;

/// Lets the calls of one verb fail without asking the device. The program's own definitions of the
/// verbs come before all others; those that verbs.h calls through a pointer have none, see
/// `failing_operation`.
class failing_verb {
 public:
  /// By the verb's own convention.
  failing_verb(std::string_view name, int errnum);
  /// \param first the number of the first call that fails; those before reach the device
  failing_verb(std::string_view name, int errnum, convention told, int first = 1);
  ~failing_verb();
  failing_verb(const failing_verb&) = delete;
  failing_verb& operator=(const failing_verb&) = delete;

  /// The calls that have failed so far.
  [[nodiscard]] int calls() const;

 private:
  verb& verb_;
};

/// Lets the calls of one verb fail that goes through a pointer of a context, queue pair or
/// completion queue. One at a time.
class failing_operation {
 public:
  template <class Returned, class... Arguments>
  failing_operation(Returned (*&pointer)(Arguments...), int errnum, convention told)
      : restore_([&pointer, before = pointer] { pointer = before; }) {
    errnum_ = errnum;
    told_ = told;
    calls_ = 0;
    pointer = [](Arguments...) {
      ++calls_;
      return static_cast<Returned>(answer_by(told_, errnum_));
    };
  }
  ~failing_operation() { restore_(); }
  failing_operation(const failing_operation&) = delete;
  failing_operation& operator=(const failing_operation&) = delete;

  [[nodiscard]] int calls() const { return calls_; }

 private:
  static inline int errnum_ = 0;
  static inline convention told_{};
  static inline int calls_ = 0;
  std::function<void()> restore_;
};

/// The verbs objects that were made by functions of libibverbs, and not destroyed since. What is
/// made through pointers, extended queue pairs and completion queues, is not counted in, but out.
[[nodiscard]] int live_objects();

/// Lets `ibv_query_device` tell of these capabilities that the device has those `claimed` of them.
class claimed_capabilities {
 public:
  claimed_capabilities(unsigned capabilities, unsigned claimed);
  ~claimed_capabilities();
  claimed_capabilities(const claimed_capabilities&) = delete;
  claimed_capabilities& operator=(const claimed_capabilities&) = delete;
};

/// Stands in for a device with a second port, which is InfiniBand's: asked for port 2 it tells what
/// port 1 has, but another LID.
class second_port_stand_in {
 public:
  second_port_stand_in(ibv_context* device, std::uint16_t lid);
  ~second_port_stand_in();
  second_port_stand_in(const second_port_stand_in&) = delete;
  second_port_stand_in& operator=(const second_port_stand_in&) = delete;

 private:
  ibv_context* device_;
};

/// Calls a function when the next completion queue is about to be destroyed.
void before_next_destroy_cq(std::function<void()> call);
/// Calls a function when the next memory region is about to be deregistered.
void before_next_dereg_mr(std::function<void()> call);

/// Lets every `ibv_rereg_mr` return this, with this errno, and do nothing.
class failing_reregistration {
 public:
  failing_reregistration(int returned, int errnum);
  ~failing_reregistration();
  failing_reregistration(const failing_reregistration&) = delete;
  failing_reregistration& operator=(const failing_reregistration&) = delete;
};

/// A memory file, which soft devices take for a dma-buf; where the device refuses it, this stands
/// in for a driver that registers dma-bufs. Has to live longer than the regions.
class dmabuf_stand_in {
 public:
  explicit dmabuf_stand_in(std::size_t size);
  ~dmabuf_stand_in();
  dmabuf_stand_in(const dmabuf_stand_in&) = delete;
  dmabuf_stand_in& operator=(const dmabuf_stand_in&) = delete;

  [[nodiscard]] int file_descriptor() const { return file_descriptor_; }
  /// What the other device would see.
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  int file_descriptor_;
  std::size_t size_;
  std::byte* memory_;
};

/// Lets `ibv_get_async_event` give this event next: one that needs no acknowledgement.
void inject(const ibv_async_event& event);

}  // namespace verbspp::test
