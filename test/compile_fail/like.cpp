// SPDX-License-Identifier: Apache-2.0

// Not a case: the cases are compiled with the command and the precompiled header of this file.

#include <verbspp/verbspp.hpp>
