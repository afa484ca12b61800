// SPDX-License-Identifier: Apache-2.0
/// \file
/// Replaces libibverbs functions, so that tests can make them fail on any device, count the objects
/// that exist, and inject asynchronous events.
#pragma once

#include "failing_device.hpp"

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace verbspp::test {

/// How a call reports that it failed.
enum class convention : std::uint8_t {
  returns_errno,
  negative_errno,
  minus_one,        ///< returns -1 and sets errno
  minus_one_alone,  ///< returns -1 and leaves errno unchanged
  null,             ///< returns a null pointer and sets errno
};

/// The return value of a failing call.
struct answer {
  int number;
  operator int() const { return number; }
  operator ssize_t() const { return number; }
  template <class Object>
  operator Object*() const {
    return nullptr;
  }
};

/// Returns the value by which the given convention reports the failure. Sets errno if the
/// convention requires it.
[[nodiscard]] answer answer_by(convention told, int errnum);

struct verb;

/// While an object of this class exists, the calls to one verb fail without reaching the device.
/// The test program defines the verbs itself, and its definitions take precedence over those in
/// libraries. This does not work for verbs that verbs.h calls through a pointer; see
/// `failing_operation`.
class failing_verb {
 public:
  /// Reports failures by the convention that the verb documents.
  failing_verb(std::string_view name, int errnum);
  /// \param first which call is the first to fail; earlier calls reach the device
  failing_verb(std::string_view name, int errnum, convention told, int first = 1);
  ~failing_verb();
  failing_verb(const failing_verb&) = delete;
  failing_verb& operator=(const failing_verb&) = delete;

  /// The number of calls that have failed so far.
  [[nodiscard]] int calls() const;

 private:
  verb& verb_;
};

/// While an object of this class exists, the calls to one verb fail. The verb must be one that is
/// called through a pointer in a context, queue pair or completion queue. Only one such object may
/// exist at a time.
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

/// Returns the number of verbs objects that libibverbs functions created and that still exist.
/// Extended queue pairs, extended completion queues and parent domains are created through
/// pointers, so their creation is not counted, but their destruction is. Each time one of them is
/// destroyed, the number therefore becomes one too low.
[[nodiscard]] int live_objects();

/// While an object of this class exists, `ibv_query_device` reports different capability bits: the
/// bits in `claimed` are set, and all others in `capabilities` are cleared.
class claimed_capabilities {
 public:
  claimed_capabilities(unsigned capabilities, unsigned claimed);
  ~claimed_capabilities();
  claimed_capabilities(const claimed_capabilities&) = delete;
  claimed_capabilities& operator=(const claimed_capabilities&) = delete;
};

/// Simulates a second port whose link layer is InfiniBand. A query of port 2 returns the attributes
/// of port 1, but with this link layer and with the given LID.
class second_port_stand_in {
 public:
  second_port_stand_in(ibv_context* device, std::uint16_t lid);
  ~second_port_stand_in();
  second_port_stand_in(const second_port_stand_in&) = delete;
  second_port_stand_in& operator=(const second_port_stand_in&) = delete;

 private:
  ibv_context* device_;
};

/// Calls a function just before the next queue pair is destroyed.
void before_next_destroy_qp(std::function<void()> call);
/// Calls a function just before the next completion queue is destroyed.
void before_next_destroy_cq(std::function<void()> call);
/// Calls a function just before the next memory region is deregistered.
void before_next_dereg_mr(std::function<void()> call);

/// While an object of this class exists, `ibv_rereg_mr` does nothing but set errno to `errnum` and
/// return `returned`.
class failing_reregistration {
 public:
  failing_reregistration(int returned, int errnum);
  ~failing_reregistration();
  failing_reregistration(const failing_reregistration&) = delete;
  failing_reregistration& operator=(const failing_reregistration&) = delete;
};

/// A memory file, which softverbs accepts in place of a dma-buf. If the device refuses it, the
/// file's memory is registered as ordinary memory instead. This object must outlive the regions.
class dmabuf_stand_in {
 public:
  explicit dmabuf_stand_in(std::size_t size);
  ~dmabuf_stand_in();
  dmabuf_stand_in(const dmabuf_stand_in&) = delete;
  dmabuf_stand_in& operator=(const dmabuf_stand_in&) = delete;

  [[nodiscard]] int file_descriptor() const { return file_descriptor_; }
  /// The file's memory. The test reads and writes it in the role of another device.
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  int file_descriptor_;
  std::size_t size_;
  std::byte* memory_;
};

/// Makes the next `ibv_get_async_event` return this event, which the device does not expect to be
/// acknowledged. If `later` is given, the call after that finds no event, and the third call
/// returns `later`.
void inject(const ibv_async_event& event, const std::optional<ibv_async_event>& later = {});
/// Withdraws injected events that were not returned.
void withdraw_injected();

}  // namespace verbspp::test
