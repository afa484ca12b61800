// SPDX-License-Identifier: Apache-2.0
/// \file
/// Calls whose requests and answers are messages of Protocol Buffers. One codec serves for all
/// messages.

#include "directory.pb.h"
#include <verbspp/calls.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

template <std::derived_from<google::protobuf::MessageLite> Message>
struct verbspp::codec<Message> {
  static constexpr std::uint32_t size = verbspp::any_size;

  static result<std::size_t> encode(const Message& from, std::span<std::byte> into) noexcept {
    const std::size_t length = from.ByteSizeLong();
    if (length > into.size())
      return error::above_limit("encode a message", "size in bytes", length, into.size());
    from.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(into.data()));
    return length;
  }
  static result<Message> decode(std::span<const std::byte> from) noexcept {
    Message made;
    if (!made.ParseFromArray(from.data(), static_cast<int>(from.size())))
      return error(error_kind::invalid_input, "decode a message", "it is malformed or incomplete");
    return made;
  }
};

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

struct find_person {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "find_person";
  using request = directory::query;
  using answer = directory::person;
};

result<directory::person> find(const directory::query& query) {
  if (query.name() != "Ada")
    return error(error_kind::not_found, "directory", "no person has this name");
  directory::person found;
  found.set_name(query.name());
  found.add_phone_numbers("020 7946 0000");
  found.add_phone_numbers("020 7946 0001");
  return found;
}

result<void> ask(caller& calls) {
  directory::query query;
  query.set_name("Ada");
  VERBSPP_TRY(found, calls.call<find_person>(query, 5s));
  for (const auto& number : found.phone_numbers())
    std::cout << found.name() << ": " << number << '\n';
  query.set_name("Charles");
  const auto missing = calls.call<find_person>(query, 5s);
  if (missing.has_value())
    return error(error_kind::mismatch, "directory", "an unknown name was found");
  if (!is_refusal(missing.error())) return missing.error();
  std::cout << missing.error() << '\n';
  return success();
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(serving, service::create(domain, {.clients = 1}, handles<find_person>(&find)));
  // Both ends are in this process, so they pass their endpoints directly.
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(calls, caller::open(prepared));
  VERBSPP_TRY(of_service, domain.build_channel().hub(serving.hub()).build());
  const endpoint theirs = of_service.endpoint();
  VERBSPP_TRY(accepted, std::move(of_service).handshake(prepared.endpoint()));
  VERBSPP_TRYV(serving.add(std::move(accepted)));
  VERBSPP_TRY(connected, std::move(prepared).handshake(theirs));
  const std::jthread server([&](const std::stop_token& stop) {
    if (const auto ended = serving.serve(stop); ended.has_error())
      std::cerr << ended.error() << '\n';
  });
  VERBSPP_TRYV(calls.start<find_person>(std::move(connected), 5s));
  return ask(calls);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
