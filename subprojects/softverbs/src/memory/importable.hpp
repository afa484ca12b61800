// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <unordered_set>

namespace softverbs {

/// The base of the structures by which a program refers to an object of the device: the structure
/// that was created with the object, and those that were imported by its handle. The program may
/// destroy the object through any of them, and the others then refer to a destroyed object. The
/// engine's lock protects all members but `original`.
template <typename Object>
struct importable {
  /// The structure that was created with the object. It lives as long as any structure refers to
  /// it.
  Object* original = static_cast<Object*>(this);
  // The following members are valid in the original only.
  unsigned imports = 0;
  /// True if the program has unimported the original, has destroyed the object through it, or has
  /// closed its context.
  bool unimported = false;
  bool destroyed = false;

  /// True if this is the original, and the object exists.
  bool is_object() const noexcept { return original == this && !destroyed; }
  /// Returns the original of the object that this structure refers to, or null if the object was
  /// destroyed.
  Object* object() const noexcept { return original->destroyed ? nullptr : original; }
  /// True if this is the original, and neither the device, nor the program, nor an imported
  /// structure uses it any more.
  bool is_left() const noexcept {
    return original == this && destroyed && unimported && imports == 0;
  }
};

/// Owns the importable structures of one type of a `command_file`. Protected by the engine's lock.
template <typename Object>
class structures {
 public:
  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  /// The number of objects, without the imported structures that refer to them.
  std::size_t objects() const noexcept { return objects_; }

  /// Takes ownership. May throw std::bad_alloc; the caller then still owns the structure.
  void add(Object* made) {
    all_.insert(made);
    if (made->original == made)
      ++objects_;
    else
      ++made->original->imports;
  }
  /// Removes the original structure of an object. The caller owns the structure again.
  void take_back(Object* made) noexcept {
    all_.erase(made);
    --objects_;
  }
  /// Destroys the object, and releases the structure through which the program destroyed it.
  void destroy(Object* by) noexcept {
    by->original->destroyed = true;
    --objects_;
    let_go(by);
  }
  /// Releases the structure. The object, if it exists, stays.
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
  /// Called when a context is closed: its original structures move to the context `heir`, its
  /// imported ones are deleted, and so are originals that nothing uses any more.
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
