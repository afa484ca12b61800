// SPDX-License-Identifier: Apache-2.0
#include "faults/fault_grammar.hpp"

#include "device/device.hpp"
#include "faults/failing_verbs.hpp"

#include <string.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <limits>
#include <string>

namespace softverbs::faults {
namespace {

template <typename Value>
struct named {
  std::string_view name;
  Value value;
};

constexpr std::array occasions{
    named<occasion>{"after", occasion::time},
    named<occasion>{"completion", occasion::work},
    named<occasion>{"send-completion", occasion::send},
    named<occasion>{"receive-completion", occasion::receive},
    named<occasion>{"packet", occasion::packet},
};

constexpr std::array changes{
    named<effect_kind>{"port-down", effect_kind::port_down},
    named<effect_kind>{"port-up", effect_kind::port_up},
    named<effect_kind>{"device-fatal", effect_kind::device_fatal},
    named<effect_kind>{"peer-lost", effect_kind::peer_lost},
    named<effect_kind>{"peer-back", effect_kind::peer_back},
    named<effect_kind>{"must-strike", effect_kind::must_strike},
};

constexpr std::array fates{
    named<effect_kind>{"lost", effect_kind::loss},
    named<effect_kind>{"doubled", effect_kind::twice},
    named<effect_kind>{"swapped", effect_kind::swap},
};

/// Two names for each status, in the order of ibv_wc_status. The first resembles the name of the
/// constant, and the second is in words.
struct status_names {
  std::string_view short_name;
  std::string_view words;
};
constexpr std::array statuses{
    status_names{"success", "success"},
    status_names{"loc-len-err", "local-length-error"},
    status_names{"loc-qp-op-err", "local-queue-pair-operation-error"},
    status_names{"loc-eec-op-err", "local-ee-context-operation-error"},
    status_names{"loc-prot-err", "local-protection-error"},
    status_names{"wr-flush-err", "flushed"},
    status_names{"mw-bind-err", "memory-window-bind-error"},
    status_names{"bad-resp-err", "bad-response-error"},
    status_names{"loc-access-err", "local-access-error"},
    status_names{"rem-inv-req-err", "remote-invalid-request-error"},
    status_names{"rem-access-err", "remote-access-error"},
    status_names{"rem-op-err", "remote-operation-error"},
    status_names{"retry-exc-err", "retry-exceeded"},
    status_names{"rnr-retry-exc-err", "receiver-not-ready-retry-exceeded"},
    status_names{"loc-rdd-viol-err", "local-rdd-violation-error"},
    status_names{"rem-inv-rd-req-err", "remote-invalid-rd-request"},
    status_names{"rem-abort-err", "remote-aborted"},
    status_names{"inv-eecn-err", "invalid-ee-context-number"},
    status_names{"inv-eec-state-err", "invalid-ee-context-state"},
    status_names{"fatal-err", "fatal"},
    status_names{"resp-timeout-err", "response-timeout"},
    status_names{"general-err", "general-error"},
    status_names{"tm-err", "tag-matching-error"},
    status_names{"tm-rndv-incomplete", "tag-matching-rendezvous-incomplete"},
};
static_assert(statuses.size() == IBV_WC_TM_RNDV_INCOMPLETE + 1);

/// The largest number that ibv_wc_status can hold in C++.
constexpr std::uint64_t highest_status = 31;
constexpr std::uint64_t highest_errno = 4095;
constexpr std::uint64_t highest_pair = 0xff'ffff;
constexpr std::uint64_t highest_port = 255;

constexpr const char* out_of_reach =
    "libsoftverbs-faults.so cannot inject faults of packets and peers: use the devices of "
    "libsoftverbs.so, without libsoftverbs-faults.so";

/// Converts a name to lower case, with `-` instead of `_`.
std::string plain(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter == '_') letter = '-';
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

template <typename Table>
auto look_up(const Table& table, std::string_view name)
    -> std::optional<decltype(table.front().value)> {
  const std::string wanted = plain(name);
  for (const auto& each : table)
    if (each.name == wanted) return each.value;
  return std::nullopt;
}

/// Reads a decimal number, or a hexadecimal one with 0x.
std::optional<std::uint64_t> number(std::string_view text, std::uint64_t highest) noexcept {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value > highest)
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> duration(std::string_view text) noexcept {
  struct unit {
    std::string_view suffix;
    std::int64_t nanoseconds;
  };
  constexpr std::array units{unit{"us", 1'000}, unit{"ms", 1'000'000}, unit{"s", 1'000'000'000}};
  constexpr std::uint64_t longest = 1'000'000'000;
  for (const auto& [suffix, nanoseconds] : units) {
    if (!text.ends_with(suffix)) continue;
    const auto count = number(text.substr(0, text.size() - suffix.size()), longest);
    if (count) return static_cast<std::int64_t>(*count) * nanoseconds;
    return std::nullopt;
  }
  return std::nullopt;
}

/// Reads a percentage, and rounds it to millionths.
std::optional<std::uint32_t> chance(std::string_view text) noexcept {
  constexpr double millionths = 10'000;
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (error != std::errc{} || end != text.data() + text.size() || !(percent <= 100) ||
      percent * millionths < 1)
    return std::nullopt;
  return static_cast<std::uint32_t>(percent * millionths + 0.5);
}

std::optional<int> error_number(std::string_view text) {
  if (const auto value = number(text, highest_errno); value && *value != 0)
    return static_cast<int>(*value);
  if (text == "ENOTSUP") return ENOTSUP;
  if (text == "EWOULDBLOCK") return EWOULDBLOCK;
  if (text == "EDEADLOCK") return EDEADLOCK;
  constexpr int highest_named = 133;
  for (int value = 1; value <= highest_named; ++value)
    if (const char* name = ::strerrorname_np(value); name != nullptr && text == name) return value;
  return std::nullopt;
}

std::optional<int> status_number(std::string_view text) {
  if (const auto value = number(text, highest_status)) return static_cast<int>(*value);
  std::string wanted = plain(text);
  if (wanted.starts_with("ibv-wc-")) wanted.erase(0, 7);
  const auto found = std::find_if(statuses.begin(), statuses.end(), [&](const status_names& each) {
    return each.short_name == wanted || each.words == wanted;
  });
  if (found == statuses.end()) return std::nullopt;
  return static_cast<int>(found - statuses.begin());
}

/// Splits `text` at the first `separator`. `text` keeps the part before the separator, and the part
/// after it is returned. Returns nothing if there is no separator.
std::optional<std::string_view> cut(std::string_view& text, char separator) noexcept {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view behind = text.substr(at + 1);
  text = trimmed(text.substr(0, at));
  return trimmed(behind);
}

class reader {
 public:
  reader(device_names names, const char*& problem) noexcept : names_(names), problem_(problem) {}

  std::optional<fault> read(std::string_view text) {
    const auto result = cut(text, '=');
    if (result && plain(text) == "seed") {
      if (!read_seed(*result)) return std::nullopt;
    } else if (!result) {
      if (!read_change(text) && problem_ == nullptr)
        problem_ =
            "this is neither `OCCASION=EFFECT` nor `seed=N` nor a change of state nor "
            "`must-strike`";
      if (problem_ != nullptr) return std::nullopt;
    } else if (!read_occasion(text) || !read_effect(*result)) {
      return std::nullopt;
    }
    return fault_;
  }

 private:
  bool no(const char* why) noexcept {
    problem_ = why;
    return false;
  }

  bool read_seed(std::string_view text) {
    const auto value = number(text, std::numeric_limits<std::uint64_t>::max());
    if (!value) return no("the seed must be a number from 0 to 2^64-1");
    fault_.what.kind = effect_kind::seed;
    fault_.what.seed = *value;
    return true;
  }

  bool read_occasion(std::string_view text) {
    const auto count = cut(text, ':');
    const auto pair = cut(text, '@');
    if (const auto found = look_up(occasions, text)) {
      if (*found == occasion::packet && names_ == device_names::any) return no(out_of_reach);
      fault_.when = *found;
    } else {
      fault_.when = occasion::verb;
      fault_.verb = find(text);
      if (fault_.verb == verbs.size())
        return no(
            names_ == device_names::any
                ? "the part before `=` must be a verb that faults can affect, or `after`, "
                  "`completion`, `send-completion`, `receive-completion` or `seed`"
                : "the part before `=` must be a verb that faults can affect, or `after`, "
                  "`completion`, `send-completion`, `receive-completion`, `packet` or `seed`");
    }
    if (pair) {
      if (fault_.when == occasion::verb || fault_.when == occasion::time)
        return no("`@` can't follow a verb or `after`");
      const auto wanted = number(*pair, highest_pair);
      if (!wanted) return no("`@` must be followed by the number of a queue pair or work queue");
      fault_.pair = static_cast<std::uint32_t>(*wanted);
    }
    return fault_.when == occasion::time ? read_time(count) : read_count(count);
  }

  bool read_time(std::optional<std::string_view> text) {
    const auto time = text ? duration(*text) : std::nullopt;
    if (!time)
      return no("`after` needs a time of at most 10^9 `us`, `ms` or `s`, such as `after:250ms`");
    fault_.span = *time;
    return true;
  }

  bool read_count(std::optional<std::string_view> text) {
    if (!text) return true;
    if (*text == "*") {
      fault_.repeats = true;
      return true;
    }
    if (text->ends_with('%')) {
      const auto wanted = chance(text->substr(0, text->size() - 1));
      if (!wanted) return no("`%` must directly follow a number from 0.0001 to 100");
      fault_.repeats = true;
      fault_.chance = *wanted;
      return true;
    }
    if (text->ends_with('+')) {
      fault_.repeats = true;
      text->remove_suffix(1);
    }
    const auto first = number(*text, std::numeric_limits<std::uint64_t>::max());
    if (!first || *first == 0)
      return no("`:` must be followed by `*`, `P%`, `N` or `N+`, where N is from 1 to 2^64-1");
    fault_.first = *first;
    return true;
  }

  bool read_change(std::string_view text) {
    auto target = cut(text, '@');
    const auto found = look_up(changes, text);
    if (!found) return false;
    fault_.what.kind = *found;
    if (*found == effect_kind::must_strike && (target || fault_.when != occasion::at_once))
      return no(
          "`must-strike` is an entry of its own, without `OCCASION=` before it or `@` after it");
    const bool of_pair = *found == effect_kind::peer_lost || *found == effect_kind::peer_back;
    if (of_pair && names_ == device_names::any) return no(out_of_reach);
    if (!target) return true;
    const bool is_of_port = *found == effect_kind::port_down || *found == effect_kind::port_up;
    if (names_ == device_names::any) return read_device(*target, is_of_port);
    const bool is_device = target->starts_with("soft");
    const auto port = is_device && is_of_port ? cut(*target, '/') : std::nullopt;
    if (port) {
      const auto wanted = number(*port, max_ports);
      if (!wanted || *wanted == 0) return no("the port of a device must be 1 or 2");
      fault_.what.port = static_cast<unsigned>(*wanted);
    }
    const auto wanted =
        is_device ? number(target->substr(4), max_devices - 1) : number(*target, highest_pair);
    if (!wanted || of_pair == is_device)
      return no(
          of_pair ? "`@` must be followed by the number of a queue pair, as in `peer-lost@0x123`"
          : is_of_port
              ? "`@` must be followed by a device from `soft0` to `soft63`, as in `port-down@soft1`"
              : "`@` must be followed by a device from `soft0` to `soft63`, without a port, as in "
                "`device-fatal@soft1`");
    fault_.what.target = static_cast<std::uint32_t>(*wanted);
    return true;
  }

  /// Reads NAME[/PORT].
  bool read_device(std::string_view name, bool may_have_port) {
    if (const auto port = may_have_port ? cut(name, '/') : std::nullopt) {
      const auto wanted = number(*port, highest_port);
      if (!wanted || *wanted == 0)
        return no("`/` must be followed by the number of a port, from 1 to 255");
      fault_.what.port = static_cast<unsigned>(*wanted);
    }
    const auto is_part = [](char letter) {
      return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
             (letter >= '0' && letter <= '9') || letter == '_' || letter == '-' || letter == '.';
    };
    if (name.empty() || (name.front() >= '0' && name.front() <= '9') ||
        !std::all_of(name.begin(), name.end(), is_part))
      return no("`@` must be followed by the name of a device, as in `device-fatal@mlx5_0`");
    fault_.what.device = name;
    return true;
  }

  bool read_effect(std::string_view text) {
    if (read_change(text)) return true;
    if (fault_.when != occasion::packet && fault_.when != occasion::time && read_delay(text))
      return true;
    if (problem_ != nullptr) return false;
    switch (fault_.when) {
      case occasion::verb:
        return read_error(text);
      case occasion::packet:
        return read_fate(text);
      case occasion::time:
        return no("the effect of `after` must be a change of state, such as `port-down`");
      default:
        return read_status(text);
    }
  }

  /// Reads a delay: TIME or TIME..TIME. If it delays completions, `skew/` may precede it.
  bool read_delay(std::string_view text) {
    effect& what = fault_.what;
    constexpr std::string_view skew = "skew/";
    const bool skewed = fault_.when != occasion::verb && text.starts_with(skew);
    if (skewed) text.remove_prefix(skew.size());
    const std::size_t dots = text.find("..");
    const auto shortest = duration(text.substr(0, dots));
    const auto longest =
        dots == std::string_view::npos ? shortest : duration(text.substr(dots + 2));
    if (!shortest || !longest) return false;
    if (*longest < *shortest) return no("a range of delays must begin with the shorter one");
    what.kind = effect_kind::delay;
    what.span = *shortest;
    what.longest = *longest;
    what.overtakable = skewed;
    return true;
  }

  bool read_fate(std::string_view text) {
    const auto found = look_up(fates, text);
    if (!found)
      return no("the effect of `packet` must be `lost`, `doubled`, `swapped` or a change of state");
    fault_.what.kind = *found;
    return true;
  }

  bool read_error(std::string_view text) {
    effect& what = fault_.what;
    what.kind = effect_kind::error;
    if (text.starts_with("-1/")) {
      what.told = form::minus_one;
      text.remove_prefix(3);
    } else if (text.starts_with('-') || text.starts_with('+')) {
      what.told = text.front() == '-' ? form::negative : form::positive;
      text.remove_prefix(1);
    }
    if (what.told != form::usual && verbs[fault_.verb].reports == convention::null)
      return no(
          "this verb reports errors only by returning null and setting errno: write only the "
          "errno");
    const auto error = error_number(text);
    if (!error)
      return no(
          "this is neither an errno value (by name or by number) nor a delay (at most 10^9 `us`, "
          "`ms` or `s`) nor a change of state");
    what.number = *error;
    return true;
  }

  bool read_status(std::string_view text) {
    effect& what = fault_.what;
    what.kind = effect_kind::status;
    if (const auto vendor_code = cut(text, '/')) {
      const auto value = number(*vendor_code, std::numeric_limits<std::uint32_t>::max());
      if (!value)
        return no(
            "`/` must be followed by a vendor code, which is a 32-bit number, or, after `skew`, by "
            "a delay");
      what.vendor_code = static_cast<std::uint32_t>(*value);
    }
    const auto status = status_number(text);
    if (!status || *status == IBV_WC_SUCCESS)
      return no(
          "this is neither the status of a failed work request (by name, or by a number up to 31) "
          "nor a delay (at most 10^9 `us`, `ms` or `s`) nor a change of state");
    what.number = *status;
    return true;
  }

  fault fault_;
  device_names names_;
  const char*& problem_;
};

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\n";
  const std::size_t start = text.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(blanks) - start + 1);
}

std::optional<fault> read_fault(std::string_view text, device_names names, const char*& problem) {
  return reader(names, problem).read(text);
}

}  // namespace softverbs::faults
