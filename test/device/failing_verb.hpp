// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <functional>
#include <string_view>

namespace verbspp::test {

/// Lets every call of one verb fail, by that verb's convention, without asking the device; what no
/// device can be asked to do. The program's own definitions of the verbs come before all others.
class failing_verb {
 public:
  /// \param errnum what the verb sets errno to, or returns
  failing_verb(std::string_view verb, int errnum);
  ~failing_verb();
  failing_verb(const failing_verb&) = delete;
  failing_verb& operator=(const failing_verb&) = delete;

  /// The calls so far.
  [[nodiscard]] int calls() const;

 private:
  std::size_t index_;
};

/// Gives the software device a fault, as `softverbs_inject` describes it, until the end of the
/// scope; where the tests don't run on it, the test is skipped.
class failing_device {
 public:
  explicit failing_device(const char* fault);
  ~failing_device();
  failing_device(const failing_device&) = delete;
  failing_device& operator=(const failing_device&) = delete;
};

/// Lets `ibv_query_device` tell of these capabilities that the device has those `claimed` of them.
class claimed_capabilities {
 public:
  claimed_capabilities(unsigned capabilities, unsigned claimed);
  ~claimed_capabilities();
  claimed_capabilities(const claimed_capabilities&) = delete;
  claimed_capabilities& operator=(const claimed_capabilities&) = delete;
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

/// Stands in for a driver that registers dma-bufs: takes the file descriptor of a memory file for
/// one. Has to live longer than the regions.
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
