// SPDX-License-Identifier: Apache-2.0
#include "ranks/hosts_text.hpp"

#ifdef VERBSPP_HAS_JSON

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

namespace verbspp::detail {

namespace {

using json = nlohmann::json;

/// Iterates over the characters of a text, and records the furthest position that was reached.
class followed_text {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  followed_text(const char* at, const char*& furthest) noexcept : at_(at), furthest_(&furthest) {}
  [[nodiscard]] reference operator*() const noexcept { return *at_; }
  followed_text& operator++() noexcept {
    *furthest_ = ++at_;
    return *this;
  }
  followed_text operator++(int) noexcept {
    const followed_text before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const followed_text& a, const followed_text& b) noexcept {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** furthest_;
};

constexpr const char* known_entries =
    "this entry is unknown: the entries are \"hosts\", \"port\", \"size\" and \"world\", and those "
    "of a host are \"name\" and \"ranks\"";

/// Receives the parts of the text from the parser, one after another.
class hosts_reader {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  explicit hosts_reader(std::string_view text) noexcept : text_(text), furthest_(text.data()) {}

  [[nodiscard]] result<hosts_text> run() {
    // NOLINTBEGIN(bugprone-suspicious-stringview-data-usage): the end is passed, too
    const bool is_read = json::sax_parse(followed_text(text_.data(), furthest_),
                                         followed_text(text_.data() + text_.size(), furthest_),
                                         this, nlohmann::detail::input_format_t::json, true, true);
    // NOLINTEND(bugprone-suspicious-stringview-data-usage)
    if (wrong_) return *wrong_;
    if (!is_read) return wrong_entry("this is not valid JSON", line(), {});
    return std::move(made_);
  }

  // The functions that the parser calls. If one returns false, the parser stops.
  bool null() { return refuse_value(); }
  bool boolean(bool /*value*/) { return refuse_value(); }
  bool number_integer(number_integer_t /*value*/) { return refuse_value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) { return refuse_value(); }
  bool binary(binary_t& /*value*/) { return refuse_value(); }

  bool number_unsigned(number_unsigned_t value) {
    if (value > std::numeric_limits<std::uint32_t>::max()) return refuse_value();
    const auto number = static_cast<std::uint32_t>(value);
    if (where_ == place::in_list && key_ == "port") {
      made_.port = number;
      made_.port_line = line();
      return true;
    }
    if (where_ == place::in_list && key_ == "size") {
      made_.size = number;
      made_.size_line = line();
      return true;
    }
    if (where_ == place::in_host && key_ == "ranks") {
      made_.hosts.back().ranks = number;
      return true;
    }
    return refuse_value();
  }

  bool string(string_t& value) {
    if (where_ == place::in_hosts) {
      made_.hosts.push_back({std::move(value), 1});
      made_.lines.push_back(line());
      return true;
    }
    if (where_ == place::in_host && key_ == "name") {
      made_.hosts.back().name = std::move(value);
      made_.lines.back() = line();
      return true;
    }
    if (where_ == place::in_list && key_ == "world") {
      made_.world = std::move(value);
      made_.world_line = line();
      return true;
    }
    return refuse_value();
  }

  bool start_object(std::size_t /*elements*/) {
    if (where_ == place::outside) {
      where_ = place::in_list;
    } else if (where_ == place::in_hosts) {
      where_ = place::in_host;
      seen_in_host_.fill(false);
      made_.hosts.push_back({{}, 1});
      made_.lines.push_back(line());
    } else {
      return refuse_value();
    }
    return true;
  }
  bool end_object() {
    if (where_ == place::in_host) {
      key_.clear();
      if (!seen_in_host_[0]) return refuse("a host's \"name\" is missing");
      where_ = place::in_hosts;
      return true;
    }
    where_ = place::behind;
    key_.clear();
    if (!seen_in_list_[0]) return refuse("\"hosts\" is missing");
    return seen_in_list_[1] || refuse("\"port\" is missing: add the port of the meeting point");
  }
  bool start_array(std::size_t /*elements*/) {
    if (where_ != place::in_list || key_ != "hosts") return refuse_value();
    where_ = place::in_hosts;
    key_.clear();
    return true;
  }
  bool end_array() {
    where_ = place::in_list;
    return true;
  }
  bool key(string_t& value) {
    key_ = std::move(value);
    return where_ == place::in_host ? note({"name", "ranks"}, seen_in_host_)
                                    : note({"hosts", "port", "size", "world"}, seen_in_list_);
  }
  template <class Exception>
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Exception& /*cause*/) {
    if (!wrong_) wrong_ = wrong_entry("this is not valid JSON", line(), {});
    return false;
  }
  /// A number that is too large for the parser, such as 1e999, is valid JSON.
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::out_of_range& /*cause*/) {
    return refuse_value();
  }

 private:
  enum class place : std::uint8_t { outside, in_list, in_hosts, in_host, behind };

  template <std::size_t Size>
  [[nodiscard]] bool note(std::initializer_list<std::string_view> known,
                          std::array<bool, Size>& seen) {
    const auto* const found = std::ranges::find(known, key_);
    if (found == known.end()) return refuse(known_entries);
    bool& is_seen = seen[static_cast<std::size_t>(found - known.begin())];
    if (std::exchange(is_seen, true)) return refuse("it appears twice");
    return true;
  }
  /// Refuses a value whose type or range is wrong for the current key.
  [[nodiscard]] bool refuse_value() {
    if (key_ == "hosts") return refuse("it must be a list");
    if (key_ == "name" || key_ == "world") return refuse("it must be a string");
    return refuse("it must be an integer from 1 to 65535");
  }
  [[nodiscard]] bool refuse(const char* hint) {
    if (where_ == place::outside)
      hint = R"(the text must be a JSON object with "hosts" and "port")";
    if (where_ == place::in_hosts) hint = "each host must be a string or an object";
    if (!wrong_) wrong_ = wrong_entry(hint, line(), key_);
    return false;
  }
  /// The current line. After a number, the parser has already read the next character, which is not
  /// counted.
  [[nodiscard]] std::uint32_t line() const {
    std::string_view read = text_.substr(0, static_cast<std::size_t>(furthest_ - text_.data()));
    const std::size_t last = read.find_last_not_of(" \t\r\n");
    read = read.substr(0, last == std::string_view::npos ? 0 : last);
    return 1 + static_cast<std::uint32_t>(std::ranges::count(read, '\n'));
  }

  std::string_view text_;
  const char* furthest_;
  hosts_text made_{};
  place where_ = place::outside;
  std::string key_{};
  std::array<bool, 4> seen_in_list_{};
  std::array<bool, 2> seen_in_host_{};
  std::optional<error> wrong_{};
};

}  // namespace

result<hosts_text> read_hosts(std::string_view text) { return hosts_reader(text).run(); }

}  // namespace verbspp::detail

#else

namespace verbspp::detail {

result<hosts_text> read_hosts(std::string_view /*json*/) {
  return error(error_kind::not_supported, listing,
               "this library was built without support for JSON: build it with nlohmann_json and "
               "the Meson option json, or create the list with host_list::from");
}

}  // namespace verbspp::detail

#endif
