#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program of ranks under srun, on a cluster of only this machine, in a temporary folder.

    srun.py RANKS PROGRAM [ARGUMENTS]

Needs Debian's slurmctld, slurmd, slurm-client and munge, and root for slurmd; without these, it is skipped with a
message (exit code 77). PRELOAD in the environment is preloaded into the ranks, not into Slurm.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from held_port import hold_port  # noqa: E402

SKIPPED = 77
DAEMONS = ["munged", "slurmctld", "slurmd"]
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={ranks} RealMemory=512 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=10 State=UP
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def where(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        # steady: this pause is not critical, because the loop polls until its deadline
        time.sleep(0.1)


def run(folder, ranks, command, ports):
    host = socket.gethostname().split(".")[0]
    for name in ["state", "spool"]:
        (folder / name).mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, ranks=ranks, ports=ports))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    environment = os.environ | {"SLURM_CONF": str(configuration)}
    preload = environment.pop("PRELOAD", None)
    daemons = []

    def start(name, *arguments):
        log = (folder / f"{name}.log").open("w")
        daemons.append(subprocess.Popen([where(name), *arguments], env=environment, stdout=log,
                                        stderr=subprocess.STDOUT, start_new_session=True))

    def node_is_up():
        found = subprocess.run([where("sinfo"), "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
        return found.stdout.strip() == "idle"

    try:
        start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}",
              f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log")
        wait_for("munged", (folder / "munge.socket").exists)
        start("slurmctld", "-D", "-f", str(configuration))
        start("slurmd", "-D", "-f", str(configuration), "-N", host)
        wait_for("the node to be idle", node_is_up)
        kinds = subprocess.run([where("srun"), "--mpi=list"], env=environment, capture_output=True, text=True)
        if "pmix" not in kinds.stdout + kinds.stderr:
            skip("this Slurm was built without PMIx")
        if preload is not None:
            command = ["env", f"LD_PRELOAD={preload}", *command]
        done = subprocess.run([where("srun"), "--mpi=pmix", "-n", str(ranks), "--time=5", *command],
                              env=environment, timeout=240)
        return done.returncode
    except TimeoutError as late:
        print(f"timed out waiting for {late}")
        for log in sorted(folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        return 1
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    for name in [*DAEMONS, "srun", "sinfo"]:
        if where(name) is None:
            skip(f"there is no {name}: Debian has it in slurmctld, slurmd, slurm-client and munge")
    if os.geteuid() != 0:
        skip("slurmd needs root")
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:
        # The temporary folder is private, because munged refuses folders that other users can change.
        held = [hold_port() for _ in range(2)]
        return run(pathlib.Path(folder), ranks, command, [port for _, port in held])


if __name__ == "__main__":
    sys.exit(main())
