// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace softverbs::shim {

/// Finds the record of a provider's object by the object's address, without a lock, because every
/// post and poll does this. One thread at a time may change the table. A free slot still contains
/// its previous key, and is reused by the first new key whose search reaches it. So if several
/// slots contain the same key, the first one on the key's search path is current. Outgrown tables
/// are kept, because a thread may be searching them. Together, the outgrown tables are smaller than
/// the current one.
template <typename Record>
class pointer_table {
 public:
  pointer_table() { grow(); }
  pointer_table(const pointer_table&) = delete;
  pointer_table& operator=(const pointer_table&) = delete;

  /// Returns null if there is no record.
  Record* find(const void* key) const noexcept {
    const slot* found = newest_.load(std::memory_order_acquire)->find(key);
    return found == nullptr ? nullptr : found->record.load(std::memory_order_acquire);
  }

  /// Makes room, so that the next `more` calls of `insert` don't throw.
  void reserve(std::size_t more) {
    while (2 * (count_ + more) > all_.back()->slots.size()) grow();
  }

  /// May throw std::bad_alloc; the table is then unchanged.
  void insert(const void* key, Record& record) {
    reserve(1);
    all_.back()->insert(key, record);
    ++count_;
  }

  void erase(const void* key) noexcept {
    const slot* found = all_.back()->find(key);
    if (found != nullptr && const_cast<slot*>(found)->record.exchange(nullptr) != nullptr) --count_;
  }

  template <typename Visit>
  void each(Visit visit) const {
    for (const slot& one : all_.back()->slots)
      if (Record* record = one.record.load()) visit(*record);
  }

 private:
  struct slot {
    std::atomic<const void*> key{nullptr};
    /// Null if the slot is free.
    std::atomic<Record*> record{nullptr};
  };
  struct table {
    explicit table(std::size_t size) : slots(size) {}

    std::size_t start(const void* key) const noexcept {
      constexpr std::uint64_t spread = 0x9e37'79b9'7f4a'7c15U;
      return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(key) * spread >> 32) &
             (slots.size() - 1);
    }
    std::size_t after(std::size_t at) const noexcept { return (at + 1) & (slots.size() - 1); }

    const slot* find(const void* key) const noexcept {
      std::size_t at = start(key);
      for (std::size_t looked = 0; looked < slots.size(); ++looked, at = after(at)) {
        const void* found = slots[at].key.load(std::memory_order_acquire);
        if (found == key) return &slots[at];
        if (found == nullptr) return nullptr;
      }
      return nullptr;
    }
    void insert(const void* key, Record& record) noexcept {
      std::size_t at = start(key);
      while (slots[at].record.load() != nullptr) at = after(at);
      slots[at].record.store(&record, std::memory_order_release);
      slots[at].key.store(key, std::memory_order_release);
    }

    std::vector<slot> slots;
  };

  void grow() {
    constexpr std::size_t first_size = 64;
    auto next = std::make_unique<table>(all_.empty() ? first_size : 2 * all_.back()->slots.size());
    if (!all_.empty())
      for (const slot& one : all_.back()->slots)
        if (Record* record = one.record.load()) next->insert(one.key.load(), *record);
    all_.push_back(std::move(next));
    newest_.store(all_.back().get(), std::memory_order_release);
  }

  std::vector<std::unique_ptr<table>> all_;
  std::atomic<const table*> newest_{nullptr};
  std::size_t count_ = 0;
};

}  // namespace softverbs::shim
