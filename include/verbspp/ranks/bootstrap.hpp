// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/group/group_error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace verbspp {

namespace detail {
template <class Model>
concept PutsGetsAndFences =
    std::movable<Model> &&
    requires(Model& model, std::string_view key, std::span<const std::byte> value,
             std::span<std::byte> into, std::uint32_t rank, const wait_limit& limit) {
      { model.rank() } -> std::convertible_to<std::uint32_t>;
      { model.size() } -> std::convertible_to<std::uint32_t>;
      { model.put(key, value) } -> std::same_as<result<void>>;
      { model.fence(limit) } -> std::same_as<group_result<void>>;
      { model.get(rank, key, into, limit) } -> std::same_as<result<std::size_t>>;
    };
}  // namespace detail

/// The means by which the processes of a world find each other. A bootstrap has the three functions
/// that launchers offer with PMIx:
///
/// - `put(key, value)`: publishes a value of this rank for the other ranks. A rank may call it only
///   once for each key.
/// - `fence(limit)`: returns when all ranks have reached the same fence. After that, each rank can
///   get the values that the others put before the fence. Fences are counted: a rank whose call
///   ended at its limit has nevertheless reached this fence, and its next call is for the next
///   fence. The error contains the first missing rank and the number of missing ranks, if the
///   bootstrap knows them.
/// - `get(rank, key, into, limit)`: copies a value that the rank has put, and returns its size.
///   `not_found` if the rank has put no such value; `invalid_input` if the value is larger than
///   `into`.
///
/// A bootstrap also has `rank()`, and `size()`, which returns the number of ranks. The ranks are
/// numbered from 0 to size - 1.
///
/// Thread rule: all functions are called on the thread that uses the world. A limit may be used
/// only on that thread, and only during the call to which it is passed. Its stop token may belong
/// to the world, which uses the token to check whether other ranks have reported that a step
/// failed. A bootstrap that has its own threads must therefore check the limit on the calling
/// thread, and pass the outcome to those threads.
template <class Model>
concept Bootstrap = detail::because(
    detail::PutsGetsAndFences<Model>,
    "a bootstrap must be movable, and must have rank(), size(), put(key, bytes) -> result<void>, "
    "fence(limit) -> group_result<void>, get(rank, key, place, limit) -> result<std::size_t>");

/// Owns a bootstrap of any type.
///
/// A move-only owner. The size of a moved-from object is 0. Thread rule: as for a standard
/// container.
class any_bootstrap {
 public:
  template <class Model>
    requires(!std::same_as<Model, any_bootstrap> && Bootstrap<Model>)
  any_bootstrap(Model model) : model_(new(std::nothrow) of_type<Model>(std::move(model))) {}

  [[nodiscard]] std::uint32_t rank() noexcept { return model_ ? model_->rank() : 0; }
  [[nodiscard]] std::uint32_t size() noexcept { return model_ ? model_->size() : 0; }
  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) noexcept {
    if (!model_) return none();
    return model_->put(key, value);
  }
  [[nodiscard]] group_result<void> fence(const wait_limit& limit) noexcept {
    if (!model_) return none();
    return model_->fence(limit);
  }
  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into,
                                        const wait_limit& limit) noexcept {
    if (!model_) return none();
    return model_->get(rank, key, into, limit);
  }

 private:
  class any {
   public:
    any() noexcept = default;
    any(const any&) = delete;
    any& operator=(const any&) = delete;
    virtual ~any() = default;
    virtual std::uint32_t rank() noexcept = 0;
    virtual std::uint32_t size() noexcept = 0;
    virtual result<void> put(std::string_view key, std::span<const std::byte> value) noexcept = 0;
    virtual group_result<void> fence(const wait_limit& limit) noexcept = 0;
    virtual result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                    std::span<std::byte> into,
                                    const wait_limit& limit) noexcept = 0;
  };
  template <class Model>
  class of_type final : public any {
   public:
    explicit of_type(Model&& model) noexcept : model_(std::move(model)) {}
    std::uint32_t rank() noexcept override { return model_.rank(); }
    std::uint32_t size() noexcept override { return model_.size(); }
    result<void> put(std::string_view key, std::span<const std::byte> value) noexcept override {
      return model_.put(key, value);
    }
    group_result<void> fence(const wait_limit& limit) noexcept override {
      return model_.fence(limit);
    }
    result<std::size_t> get(std::uint32_t rank, std::string_view key, std::span<std::byte> into,
                            const wait_limit& limit) noexcept override {
      return model_.get(rank, key, into, limit);
    }

   private:
    Model model_;
  };

  [[nodiscard]] static error none() noexcept {
    return {error_kind::invalid_input, "bootstrap",
            "this bootstrap was moved from, or memory was exhausted when it was created"};
  }

  detail::owned<any> model_;
};

}  // namespace verbspp
