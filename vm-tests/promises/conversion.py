"""Promise: the agent is killed while it stages an image, while it waits for the reboot, and in the middle of its commit after
it; each time the next one goes on, and the host ends Done, with one reboot.

Boots: 2
"""

import signal
import subprocess

from lab.agent import UNIT, config, no_action

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"
# The first start that finds the order dies in the middle of its commit; the order is gone then.
ORDER = "/var/lab-order"
DIES_ONCE = (f"[Service]\nEnvironmentFile=-/run/lab-order\n"
             f"ExecStartPre=/bin/sh -c 'if test -e {ORDER}; then mv {ORDER} /run/lab-order; else rm -f /run/lab-order; fi'\n")
BLOCK = ["systemd-inhibit", "--what=shutdown", "--mode=block", "--who=backup", "--why=nightly run",
         "sh", "-c", "echo held; exec sleep infinity"]


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    second = config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}, kernelArguments=["lab.second=1"])
    digest = images.next("v2", {BROUGHT.lstrip("/"): "from = image\n"}, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    machine.boot()
    machine.write("/etc/containers/registries.conf.d/lab.conf", registry.trusted())
    agent.policy(no_action(PATH))
    agent.want(config(FIRST, {PATH: "version = 1\n"}))
    agent.start()
    agent.done(FIRST)
    holder = subprocess.Popen(machine.inside(*BLOCK), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=machine.console)
    lab.same("the block is taken", holder.stdout.readline(), b"held\n")

    # Staging has begun and takes seconds; a pull does not end while its registry stands still.
    agent.want(second, image)
    agent.status("staging", lambda status: status["phase"] == "Staging")
    registry.process.send_signal(signal.SIGSTOP)
    agent.kill()
    lines = machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}").splitlines()
    steps = [line for line in lines if line.startswith("step 1 of 2: stage-os")]
    lab.same("it was in the middle", [" done in " in line for line in steps], [False])
    registry.process.send_signal(signal.SIGCONT)

    # Before the reboot, which somebody holds back.
    def blocked(status):
        return "backup" in (status["waiting"] or "")

    agent.status("the reboot", blocked)
    lab.same("it is the second agent", agent.unit("NRestarts"), "1")
    agent.kill()
    agent.start()
    lab.same("it is the third agent", agent.unit("NRestarts"), "2")
    agent.status("the reboot again", blocked)
    lab.same("no reboot is asked for", agent.logged("REBOOT"), [])

    # After it.
    machine.write(f"/etc/systemd/system/{UNIT}.d/10-lab.conf", DIES_ONCE)
    machine.run("sh", "-c", f"echo MCA_FAIL_POINT=kill:committed >{ORDER}")
    machine.stop(holder)
    machine.next_boot()
    status = agent.done(SECOND, image)
    agent.start()
    lab.same("how the first agent of this boot ended", agent.unit("NRestarts"), "1")
    lab.same("booted image", status["booted"]["digest"], digest)
    lab.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    line = machine.run("cat", "/proc/cmdline").split()
    lab.same("its argument, once", line.count("lab.second=1"), 1)
    lab.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    lab.same("faults in the journal", agent.logged("FAULT"), [])
    lab.same("boots", machine.boots, 2)
