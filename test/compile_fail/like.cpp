// SPDX-License-Identifier: Apache-2.0

// No case: it lends the cases its compile command and its precompiled header.

#include <verbspp/verbspp.hpp>
