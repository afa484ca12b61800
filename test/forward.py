#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a public type is missing from the header with the forward declarations.

    forward.py PROJECT
"""

import pathlib
import re
import sys

# Types that the header need not declare: types that it includes, because declared types contain them; constrained
# templates, whose declaration would require other definitions; bases, traits and parameters, which programs do not
# use on their own; and types whose namespace depends on a macro of the program.
NOT_THERE = {
    "asio_channel", "asio_source", "async_operations", "blocking_operations", "channel_operations", "cm_session", "exchange_session", "flags", "group_operations", "meeting_session",
    "lease_operations", "operation_traits", "optional_immediate_data", "optional_setting",
    "pending_call", "posting_operations", "queue_pair_parameters", "receive_queue_operations", "received_call", "registered_buffer", "remote_array", "remote_object",
    "send_queue_operations", "shared_buffer", "shared_part",
}
DEFINED = re.compile(
    r"^(?:enum class|class|struct)\s+(?:\[\[.*?\]\]\s*)?(?:VERBSPP_[A-Z_]+\s+)*([a-z_]+)\b(?!::)[^;{]*\{",
    re.MULTILINE)


def types_in(text):
    """The types that a header defines, except in namespaces for the library's own use."""
    text = re.sub(r"//.*", lambda comment: comment[0] if "namespace" in comment[0] else "", text)
    text = re.sub(r"^namespace (?:verbspp::)?detail \{.*?^\}  // namespace (?:verbspp::)?detail",
                  "", text, flags=re.MULTILINE | re.DOTALL)
    return set(DEFINED.findall(text)) - {"std"}


def main():
    headers = pathlib.Path(sys.argv[1]) / "include" / "verbspp"
    forward = headers / "fwd.hpp"
    defined = set()
    for path in headers.rglob("*.hpp"):
        if "detail" not in path.parts and path != forward:
            defined |= types_in(path.read_text())
    declared = set(re.findall(r"^(?:enum class|class|struct) ([a-z_]+)", forward.read_text(), re.MULTILINE))
    if len(defined) < 50:
        sys.exit(f"{headers}: only {len(defined)} types found")
    problems = [f"{name}: fwd.hpp does not declare it" for name in sorted(defined - declared - NOT_THERE)]
    problems += [f"{name}: fwd.hpp declares it, but nothing defines it" for name in sorted(declared - defined)]
    print("\n".join(problems) or f"{len(declared)} of {len(defined)} types are declared")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
