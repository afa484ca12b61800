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

/// How the processes of a world find each other, the three things that launchers offer (PMIx):
///
/// - `put(key, value)`: what others are to know of this rank; once per key.
/// - `fence(limit)`: returns when all ranks have come to the same fence; then all can get what each
///   has put before. Fences are counted: a rank whose limit has passed has been at this one, and
///   goes on with the next. An error has the first rank that is missing, and how many there are.
/// - `get(rank, key, into, limit)`: what that rank has put; the size of it. `not_found` if there is
///   nothing, `invalid_input` if it is larger than the place for it.
///
/// And `rank()`, and `size()`, how many there are. Ranks are 0 to size - 1.
///
/// Thread rule: all are called on the thread that uses the world, and a limit belongs to that
/// thread, and to that call: its token may be one of the world's own, which looks at what other
/// ranks have told of a step. So a bootstrap that works on threads of its own asks the limit on the
/// one that it was called on, and lets the others know.
template <class Model>
concept Bootstrap = detail::because(
    detail::PutsGetsAndFences<Model>,
    "a bootstrap is movable, and has rank(), size(), put(key, bytes) -> result<void>, "
    "fence(limit) -> group_result<void>, get(rank, key, place, limit) -> result<std::size_t>");

/// Any bootstrap, owned.
///
/// A move-only owner; one that was moved from has size 0. Thread rule: as a container.
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
    return {error_kind::invalid_input, "bootstrap", "it was moved from, or had no memory"};
  }

  detail::owned<any> model_;
};

}  // namespace verbspp
