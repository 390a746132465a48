"""Four more updates in which the power fails: the stages of a stateroot, each desired by the file of the running system. Nobody orders
anything: the daemon of each boot goes on by itself."""

import json

from . import agent, disk
from .power_stateroot import NEW, STATE, VERSION, Progress, Seeded, Verb
from .power_update import document
from .stateroots import IDLE, Stages, has_condition, wait_settled

# A stage, the verb whose work it is, and the condition with which it ends.
STAGES = {
    "Prep": ("prepare", ("PrepCompleted", "True", "Completed")),
    "Upgrade": ("activate", ("UpgradeCompleted", "True", "Completed")),
    "Rollback": ("roll-back", ("RollbackCompleted", "True", "Completed")),
    # What was prepared, and never ran.
    "Idle": ("remove", IDLE),
}


def add(prepared):
    """Makes the disks, and adds the stages to what a run can play."""
    made = Staged(prepared)
    for stage in STAGES:
        prepared.updates[stage] = Stage(stage, made)
    prepared.groups["stages"] = tuple(STAGES)


class Staged(Seeded):
    """The disks of the verbs, made by stages."""

    def prepare(self, first):
        first.boot()
        stages = self._stages(first)
        stages.set("Prep")
        stages.wait(*STAGES["Prep"][1])

    def activate(self, first):
        first.boot()
        stages = self._stages(first)
        stages.set("Upgrade")
        first.next_boot()
        stages.wait(*STAGES["Upgrade"][1])
        wait_settled(first)

    def _stages(self, first):
        return Stages(agent.Agent(first), self.image, VERSION)


class Stage(Verb):
    """A stage instead of a verb."""

    def __init__(self, name, made):
        does, self.end = STAGES[name]
        super().__init__(name, json.dumps({"stage": name, "image": made.image, "version": VERSION}), made, does)

    def give(self, node):
        deployment, _ = disk.entry(node.sysroot)
        (deployment / Stages.FILE.lstrip("/")).write_text(self.order)

    def reader(self, node):
        return StageProgress(node, self)


class StageProgress(Progress):
    """What a boot writes down about a stage, as reports."""

    def is_done(self):
        is_there = self.verb.does != "activate" or self.booted == NEW
        state = document(self.records[self.booted] / STATE)
        return is_there and bool(state) and has_condition(state, *self.verb.end)
