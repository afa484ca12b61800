// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defined with AddressSanitizer or ThreadSanitizer, which replace the allocator.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VERBSPP_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VERBSPP_TEST_SANITIZED 1
#endif
#endif

// Defined with ThreadSanitizer, under which forked processes cannot create threads.
#if defined(__SANITIZE_THREAD__)
#define VERBSPP_TEST_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBSPP_TEST_THREAD_SANITIZED 1
#endif
#endif
