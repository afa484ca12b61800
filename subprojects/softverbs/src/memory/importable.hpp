// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <unordered_set>

namespace softverbs {

/// What structures have that a program knows an object of the device by: that which it was made as,
/// and those that were imported by its handle. Any of them destroys it, and the others stand for
/// nothing then. The engine's lock protects all but `original`.
template <typename Object>
struct importable {
  /// What the object was made as, which lives as long as anything else stands for it.
  Object* original = static_cast<Object*>(this);
  // What follows is of the original only.
  unsigned imports = 0;
  /// The program has let go of it.
  bool unimported = false;
  bool destroyed = false;

  /// Whether this is an object, as the device has it.
  bool is_object() const noexcept { return original == this && !destroyed; }
  /// The one that this stands for, or null.
  Object* object() const noexcept { return original->destroyed ? nullptr : original; }
  /// Whether nobody has any use for it: not the device, not the program, nor another structure.
  bool is_left() const noexcept {
    return original == this && destroyed && unimported && imports == 0;
  }
};

/// Owns all such structures of one kind. Under the engine's lock.
template <typename Object>
class structures {
 public:
  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  /// Not of the structures that stand for them.
  std::size_t objects() const noexcept { return objects_; }

  /// May throw std::bad_alloc, and then the caller has it still.
  void add(Object* made) {
    all_.insert(made);
    if (made->original == made)
      ++objects_;
    else
      ++made->original->imports;
  }
  /// The caller has it again.
  void take_back(Object* made) noexcept {
    all_.erase(made);
    --objects_;
  }
  /// The object is no more, and the program has no use for the structure that it destroyed it by.
  void destroy(Object* by) noexcept {
    by->original->destroyed = true;
    --objects_;
    let_go(by);
  }
  /// The object stays, if there is one.
  void let_go(Object* structure) noexcept {
    Object* const original = structure->original;
    if (structure == original) {
      original->unimported = true;
    } else {
      --original->imports;
      erase(structure);
    }
    if (original->is_left()) erase(original);
  }
  /// What a context that closes has: its objects are another's then, the rest goes.
  template <typename Context>
  void part(const Context* closing, Context* heir) noexcept {
    std::erase_if(all_, [&](Object* each) {
      if (each->context != closing) return false;
      if (each->original == each) {
        each->context = heir;
        each->unimported = true;
        return false;
      }
      --each->original->imports;
      delete each;
      return true;
    });
    std::erase_if(all_, [](Object* each) {
      if (!each->is_left()) return false;
      delete each;
      return true;
    });
  }
  void clear() noexcept {
    for (Object* each : all_) delete each;
    all_.clear();
    objects_ = 0;
  }

 private:
  void erase(Object* structure) noexcept {
    all_.erase(structure);
    delete structure;
  }

  std::unordered_set<Object*> all_;
  std::size_t objects_ = 0;
};

}  // namespace softverbs
