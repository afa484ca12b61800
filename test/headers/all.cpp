// SPDX-License-Identifier: Apache-2.0

// Never built: the checks take this file's compile command from compile_commands.json, and
// clang-tidy reads the headers through it.

#include <verbspp/verbspp.hpp>
