"""Promise: a seed is prepared in at most 1.2 times the time that skopeo, ostree and tar take to pull, import, deploy and unpack the
same image, side by side in one run; each process stays below 64 MiB beside the one that pulls, also when a seed is made.

Boots: 1
Minutes: 3
"""

import json
import random
import statistics
import sys
import time
from pathlib import Path

from harness import seed
from harness.agent import Agent, config, no_action
from harness.paths import run
from harness.stateroots import VERBS, mirror_disk, stateroot

NOT_IN = {"machine": "it measures programs, and the processor there is emulated"}
LONG = True

VERSION, NEW, PLAIN, AT = "4.17.6", "rhcos_4.17.6", "plain", "/var/lib/lab"
ROUNDS, RATIO, MEMORY = 5, 1.2, 64
MIB = 1024 * 1024
# A commit of its own, as that of another host: the repository lacks it.
COMMIT = """mkdir $0 $0/repo; cd $0; mkdir -p more/usr/share; head -c 33554432 /dev/urandom >more/usr/share/seed
ostree --repo=repo init --mode=bare; ostree --repo=repo pull-local /sysroot/ostree/repo $1 >&2
ostree --repo=repo commit --branch=seed --bootable --tree=ref=$1 --tree=dir=more --canonical-permissions
tar -C repo -cf - . | gzip -1 >ostree.tgz; rm -r repo more"""
# A process of its own: what a large one starts has begun as large.
MEASURE = """import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))"""
BY_HAND = """mkdir $0/image $0/seed $0/repo; cd $0
skopeo copy --quiet docker://$1 dir:image
tar -xzf image/$2 -C seed; tar -xzf seed/ostree.tgz -C repo
ostree --repo=/sysroot/ostree/repo pull-local repo $3 >&2
ostree admin os-init $4 >&2
ostree admin deploy --os=$4 --no-prune --not-as-default --retain $3 >&2
tar --xattrs --acls -xzf seed/var.tgz -C /sysroot/ostree/deploy/$4
tar --xattrs --acls -xzf seed/etc.tgz -C /sysroot/ostree/deploy/$4/deploy/$3.0"""
UNDO = """rm -r $0/image $0/seed $0/repo; ostree admin undeploy 1 >&2; rm -r /sysroot/ostree/deploy/$1
ostree --repo=/sysroot/ostree/repo prune --refs-only >&2"""
MORE = """mkdir -p $0/more; cd $0/more; head -c 268435456 /dev/urandom >large
for number in $(seq 5000); do echo $number >$number; ln $number $number.second; done"""


def classic(test, made, commit):
    """Makes the seed image from scratch; returns its name and the digest of its layer."""
    images, machine = test.images, test.machine
    status = f'{{"deployments": [{{"booted": true, "id": "debian-{commit}.0"}}]}}'
    repository = (Path(f"{machine.stateroot}{AT}") / "ostree.tgz").read_bytes()
    members = {**made.members(), "ostree.tgz": repository, "rpm-ostree.json": status.encode(),
               f"ostree-debian-{commit}.0.origin": b"[origin]\nrefspec=seed\n"}
    cluster = {"seed_cluster_ocp_version": VERSION, "has_proxy": False, "has_fips": False}
    labels = {seed.FORMAT: "4", seed.CLUSTER: json.dumps(cluster)}
    digest = images.layout.plain("seed", {name: (0o600, data) for name, data in members.items()}, labels)
    return test.registry().push(images.layout.path, "seed", digest), images.layout.layers("seed")[0].removeprefix("sha256:")


def measured(machine, *command):
    """Runs a program; returns the seconds, and the largest resident memory of its processes in MiB."""
    began = time.monotonic()
    memory = run(sys.executable, "-I", "-c", MEASURE, *machine.inside(*command))
    return time.monotonic() - began, int(memory.split()[-1]) / 1024


def make(machine, form):
    """Makes a seed of the host; returns the seconds and the memory."""
    return measured(machine, "machine-config-agent", "seed", "create", "--image", "registry.invalid/seed:1", "--version", VERSION,
                    "--form", form, "--include", AT, "--yes")


def by_hand(machine, *words):
    """Does the same with skopeo, ostree and tar; returns the seconds."""
    began = time.monotonic()
    machine.run_writable("sh", "-ec", BY_HAND, AT, *words)
    return time.monotonic() - began


def play(test):
    machine = test.machine
    machine.boot()
    Agent(machine).settle(config("rendered-worker-a", {}), no_action("/etc/lab/settings.conf"), test.registry())
    mirror_disk(test)
    made = seed.Seed(VERSION, config("rendered-worker-seed", {}), no_action("/etc/lab/settings.conf"))
    source = random.Random(VERSION)
    made.var |= {f"var/lib/seed/{number}": (0o644, source.randbytes(16384)) for number in range(2000)}
    commit = machine.run("sh", "-ec", COMMIT, AT, machine.deployment.name.rpartition(".")[0]).split()[-1]
    image, layer = classic(test, made, commit)
    took = {"prepare": [], "by hand": []}
    for _ in range(ROUNDS):
        seconds, memory = measured(machine, *VERBS, "prepare", image, "--version", VERSION)
        took["prepare"].append(seconds)
        stateroot(machine, "remove", NEW, "--yes")
        took["by hand"].append(by_hand(machine, image, layer, commit, PLAIN))
        machine.run_writable("sh", "-ec", UNDO, AT, PLAIN)
    median = {how: statistics.median(times) for how, times in took.items()}
    ratio = median["prepare"] / median["by hand"]
    print(f"  prepare {median['prepare']:.2f} s, by hand {median['by hand']:.2f} s, ratio {ratio:.2f}, memory {memory:.1f} MiB\n"
          f"  {took}", flush=True)
    test.same(f"ratio {ratio:.2f} is at most {RATIO}", ratio <= RATIO, True)
    test.same(f"memory of {memory:.1f} MiB is at most {MEMORY}", memory <= MEMORY, True)
    # A large file and many small ones, some with a second name, which is remembered.
    machine.run("sh", "-ec", MORE, AT)
    for form in ("classic", "bootc"):
        seconds, memory = make(machine, form)
        print(f"  seed create --form {form}: {seconds:.2f} s, memory {memory:.1f} MiB", flush=True)
        test.same(f"memory of {memory:.1f} MiB is at most {MEMORY}", memory <= MEMORY, True)
