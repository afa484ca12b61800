#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes FOLDER/infiniband/verbs.h: this system's header, with rdma-core 45's names for flush.

    newer_verbs.py FOLDER

Debian's header is older, so code that uses flush would not compile with it. softverbs implements flush regardless
of the version of libibverbs, so the tests of flush can run on it. If the system's header has the names, no file
is written.
"""

import pathlib
import re
import subprocess
import sys

# The lines to add, each before the first matching line of the same declaration.
ADDITIONS = {
    r"\s*IBV_WC_ATOMIC_WRITE = 9,": "IBV_WC_FLUSH = 8,",
    r"\s*IBV_WR_ATOMIC_WRITE = 15,": "IBV_WR_FLUSH = 14,",
    r"\s*IBV_QP_EX_WITH_ATOMIC_WRITE\s*=": "IBV_QP_EX_WITH_FLUSH = 1 << 11,",
    r"\s*IBV_ACCESS_RELAXED_ORDERING\s*=": "IBV_ACCESS_FLUSH_GLOBAL = 1 << 8, IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,",
    r"struct ibv_qp_ex \{": "enum ibv_placement_type { IBV_FLUSH_GLOBAL = 1U << 0, IBV_FLUSH_PERSISTENT = 1U << 1 };\n"
    "enum ibv_selectivity_level { IBV_FLUSH_RANGE = 0, IBV_FLUSH_MR = 1 };",
    r"\};\s*struct ibv_qp_ex \*ibv_qp_to_qp_ex": "void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, "
    "size_t len, uint8_t type, uint8_t level);",
}


def with_flush(header):
    """Returns the header with the additions. Exits with an error if an addition finds no line to precede."""
    for pattern, addition in ADDITIONS.items():
        header, found = re.subn(f"^(?={pattern})", lambda _, text=addition: f"{text}\n", header, count=1, flags=re.MULTILINE)
        if not found:
            raise SystemExit(f"newer_verbs.py: infiniband/verbs.h has no line like {pattern}")
    return header


def main():
    folder = pathlib.Path(sys.argv[1]) / "infiniband"
    system = subprocess.run(["pkg-config", "--variable=includedir", "libibverbs"], check=True, capture_output=True,
                            text=True).stdout.strip()
    header = (pathlib.Path(system or "/usr/include") / "infiniband" / "verbs.h").read_text()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "verbs.h"
    if "wr_flush" in header:
        file.unlink(missing_ok=True)
        return
    newer = with_flush(header)
    # A file that is not rewritten causes no rebuild.
    if not file.exists() or file.read_text() != newer:
        file.write_text(newer)


if __name__ == "__main__":
    main()
