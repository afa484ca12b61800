// SPDX-License-Identifier: Apache-2.0

// Methods, the memory that their calls lend, handlers, and answers.

#include <verbspp/calls.hpp>

#include <vector>

using namespace verbspp;

struct named {
  static constexpr const char* name = "load";
  using request = int;
  using answer = int;
};
struct find : named {
  static constexpr std::uint16_t number = 1;
};
struct load : named {
  static constexpr std::uint16_t number = 2;
  static constexpr access_flags lends = access::remote_write;
};
using window_memory = registered_buffer<access::local_write | access::window_bind>;

// case: method_without_number
// expect: a method needs a number: static constexpr std::uint16_t number = 1; (0 is reserved)
struct called : named {
  static constexpr std::uint16_t number = BAD(0) GOOD(3);
};
auto call(caller& calls) { return calls.call<called>(1); }

// case: method_with_other_rights
// expect: a call lends memory with access::remote_read, access::remote_write or both
struct called : named {
  static constexpr std::uint16_t number = 3;
  static constexpr access_flags lends = access::remote_read BAD(| access::remote_atomic);
};
auto call(caller& calls, window_memory& memory) { return calls.call<called>(1, memory); }

// case: request_that_refers_to_memory
// expect: this type refers to memory of this process, or is dereferenced like a pointer, so its bytes may mean nothing at the other end
struct called : named {
  static constexpr std::uint16_t number = 3;
  using request = BAD(std::span<const int>) GOOD(int);
};
auto call(caller& calls) { return calls.call<called>({}); }

// case: constant_memory_that_the_service_writes
// expect: Memory that the service may write must not be constant
auto call(caller& calls, BAD(const) window_memory& memory) { return calls.call<load>(1, memory); }

// case: constant_vector_that_the_service_writes
// expect: Memory that the service may write must not be constant
auto call(caller& calls, BAD(const) std::vector<int>& memory) {
  return calls.call<load>(1, memory);
}

// case: message_as_lent_memory
// expect: a call can lend a registered or shared buffer, or a part of one
auto call(caller& calls, BAD(message) GOOD(window_memory) & memory) {
  return calls.call<load>(1, memory);
}

// case: memory_that_a_posted_call_borrows
// expect: a request can keep alive only a shared_buffer or a part of one
using memory_type = BAD(window_memory)
    GOOD(shared_buffer<access::local_write | access::window_bind>);
auto call(caller& calls, const memory_type& memory) { return calls.post_call<load>(1, memory); }

// case: CALL_without_the_memory_that_the_method_lends
// columns: CALL
// row: call
// row: post_call
// row: async_call
// expect: the calls of this method lend memory, because the method has `lends`
// expect: pass the memory after the request, as in calls.call<load>(request, buffer)
auto call(caller& calls, const int& asked) { return calls.CALL<BAD(load) GOOD(find)>(asked); }

// case: methods_with_the_same_number
// expect: two of these methods have the same number: a number must be unique in the service
struct other : named {
  static constexpr std::uint16_t number = BAD(1) GOOD(3);
};
auto create(const protection_domain& domain) {
  return service::create(domain, {}, handles<find>([](int asked) { return asked; }),
                         handles<other>([](int asked) { return asked; }));
}

// case: calls_of_methods_with_the_same_number
// expect: two of these methods have the same number: a number must be unique in the service
struct other : named {
  static constexpr std::uint16_t number = BAD(2) GOOD(3);
};
auto start(caller& calls, channel& link) { return calls.start<find, load, other>(std::move(link)); }

// case: memory_for_a_method_that_lends_none
// expect: the calls of this method lend no memory: pass only the request
using called = BAD(find) GOOD(load);
auto call(caller& calls, window_memory& memory) { return calls.call<called>(1, memory); }

// case: handler_of_another_type
// expect: the handler of a method must be a function that takes `const request&` (for bytes, a span)
// expect: and returns the answer, or one that takes a `received_call<method>`
auto handle() {
  return handles<find>([](BAD(void*) GOOD(int)) { return 1; });
}

// case: handler_of_a_method_without_number
// expect: a method needs a number: static constexpr std::uint16_t number = 1; (0 is reserved)
struct called : named {
  static constexpr std::uint16_t number = BAD(0) GOOD(3);
};
auto handler = handles<called>([](int asked) { return asked; });

// case: handler_without_an_answer
// expect: the handler of a method must be a function that takes `const request&` (for bytes, a span)
// expect: and returns the answer, or one that takes a `received_call<method>`
auto handler = handles<find>([](int asked) -> BAD(void) GOOD(int) { return BAD(void)(asked); });

// case: handler_without_the_lent_memory
// expect: the handler of a method that lends memory must take a
// expect: `received_call<method>`, which gives access to that memory
auto handle() {
  return handles<BAD(load) GOOD(find)>([](int) { return 1; });
}

// case: reading_memory_that_was_lent_to_be_written
// expect: the method's `lends` lacks access::remote_read, so the service may only write to the
// expect: memory that its calls lend
auto take(received_call<load>& call, window_memory& own) { return call.BAD(read) GOOD(write)(own); }

// case: awaiting_a_read_of_memory_that_was_lent_to_be_written
// expect: the method's `lends` lacks access::remote_read, so the service may only write to the
// expect: memory that its calls lend
auto take(received_call<load>& call, window_memory& own) {
  return call.BAD(async_read) GOOD(async_write)(std::move(own));
}

// case: awaiting_an_access_that_borrows_memory
// expect: GoesWithWork
auto take(received_call<load>& call, window_memory& own) {
  return call.async_write(BAD(own) GOOD(std::move(own)));
}

// case: bytes_of_a_temporary_answer
// expect-gcc: use of deleted function
// expect-clang: call to deleted
auto take(received_bytes& answer) { return BAD(std::move)(answer).view(); }
