// SPDX-License-Identifier: Apache-2.0
/// \file
/// Makes calls of libibverbs fail. Devices cannot be made to fail in these ways.
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

/// Returns the value that reports the failure by the given convention. Sets errno if the convention
/// requires it.
[[nodiscard]] answer answer_by(convention told, int errnum);

struct verb;

/// During its lifetime, makes the calls of one verb fail without calling the device. The test
/// program defines the verbs itself, and its definitions take precedence over those in libraries.
/// Verbs that verbs.h calls through a pointer have no such definition; see `failing_operation`.
class failing_verb {
 public:
  /// Reports failures by the verb's own convention.
  failing_verb(std::string_view name, int errnum);
  /// \param first the number of the first call that fails; earlier calls reach the device
  failing_verb(std::string_view name, int errnum, convention told, int first = 1);
  ~failing_verb();
  failing_verb(const failing_verb&) = delete;
  failing_verb& operator=(const failing_verb&) = delete;

  /// The number of calls that have failed so far.
  [[nodiscard]] int calls() const;

 private:
  verb& verb_;
};

/// During its lifetime, makes the calls of one verb fail. This must be a verb that is called
/// through a pointer in a context, queue pair or completion queue. Only one such object may exist
/// at a time.
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

/// The number of verbs objects that were created by functions of libibverbs and still exist. The
/// functions that create extended queue pairs and completion queues are called through pointers and
/// not counted, but the destruction of these objects is. So the number falls by one too many when
/// such an object is destroyed.
[[nodiscard]] int live_objects();

/// During its lifetime, changes the bits in `capabilities` of the device capabilities that
/// `ibv_query_device` reports: those in `claimed` are set, the others are cleared.
class claimed_capabilities {
 public:
  claimed_capabilities(unsigned capabilities, unsigned claimed);
  ~claimed_capabilities();
  claimed_capabilities(const claimed_capabilities&) = delete;
  claimed_capabilities& operator=(const claimed_capabilities&) = delete;
};

/// Simulates a second port, whose link layer is InfiniBand: a query of port 2 returns the
/// attributes of port 1 with another LID.
class second_port_stand_in {
 public:
  second_port_stand_in(ibv_context* device, std::uint16_t lid);
  ~second_port_stand_in();
  second_port_stand_in(const second_port_stand_in&) = delete;
  second_port_stand_in& operator=(const second_port_stand_in&) = delete;

 private:
  ibv_context* device_;
};

/// Calls a function when the next queue pair is about to be destroyed.
void before_next_destroy_qp(std::function<void()> call);
/// Calls a function when the next completion queue is about to be destroyed.
void before_next_destroy_cq(std::function<void()> call);
/// Calls a function when the next memory region is about to be deregistered.
void before_next_dereg_mr(std::function<void()> call);

/// During its lifetime, `ibv_rereg_mr` only sets errno to `errnum` and returns `returned`.
class failing_reregistration {
 public:
  failing_reregistration(int returned, int errnum);
  ~failing_reregistration();
  failing_reregistration(const failing_reregistration&) = delete;
  failing_reregistration& operator=(const failing_reregistration&) = delete;
};

/// A memory file, which software devices accept as a dma-buf. If the device refuses it, the file's
/// memory is registered as ordinary memory instead. Must outlive the regions.
class dmabuf_stand_in {
 public:
  explicit dmabuf_stand_in(std::size_t size);
  ~dmabuf_stand_in();
  dmabuf_stand_in(const dmabuf_stand_in&) = delete;
  dmabuf_stand_in& operator=(const dmabuf_stand_in&) = delete;

  [[nodiscard]] int file_descriptor() const { return file_descriptor_; }
  /// The file's memory. The test reads and writes it as another device would.
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  int file_descriptor_;
  std::size_t size_;
  std::byte* memory_;
};

/// Makes the next `ibv_get_async_event` return this event. The device expects no acknowledgement of
/// it. With `later`, the second next call finds no event, and the third one returns `later`.
void inject(const ibv_async_event& event, const std::optional<ibv_async_event>& later = {});

}  // namespace verbspp::test
