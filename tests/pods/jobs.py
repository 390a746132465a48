"""The Job controller: pods for Jobs, and what came of them."""

import threading
import time
from datetime import datetime, timezone

from api import now, told

TRACKING = "batch.kubernetes.io/job-tracking"
ENDED = ("Succeeded", "Failed")


class JobController:
    """One pod at a time for each Job, as its status and the pods that are there say."""

    def __init__(self, api, events, backoff, node):
        self.api, self.events, self.backoff, self.node = api, events, backoff, node
        self.jobs, self.pods, self.timers = {}, {}, {}
        # When the next pod may come, by the Job's UID.
        self.not_before = {}

    def see(self, what, kind, one):
        """Takes an event."""
        known, uid = self.jobs if kind == "jobs" else self.pods, one["metadata"]["uid"]
        if what == "DELETED":
            known.pop(uid, None)
        elif uid not in known or version(known[uid]) < version(one):
            # What this process wrote is newer than what the watch still has.
            known[uid] = one

    def go_on(self):
        """Brings each Job on."""
        for job in list(self.jobs.values()):
            if "deletionTimestamp" not in job["metadata"] and not has(job, "Complete", "Failed"):
                self._one(job)

    def _one(self, job):
        uid, spec, status = job["metadata"]["uid"], job["spec"], job.get("status", {})
        pods = [pod for pod in self.pods.values() if owner(pod) == uid]
        if spec.get("suspend"):
            for pod in pods:
                if pod["status"].get("phase") not in ENDED and "deletionTimestamp" not in pod["metadata"]:
                    self.api.delete("pods", pod)
            if not has(job, "Suspended"):
                self._write(job, conditions=[condition("Suspended", "True", "JobSuspended", "Job suspended")], active=0)
            return
        if "startTime" not in status:
            resumed = [condition("Suspended", "False", "JobResumed", "Job resumed")] if status.get("conditions") else None
            self._write(job, startTime=now(), conditions=resumed)
            return
        if self._count(job, pods):
            return
        failed, limit = status.get("failed", 0), spec.get("backoffLimit", 6)
        if status.get("succeeded", 0) >= spec.get("completions", 1):
            return self._end(job, "SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if failed > limit:
            return self._end(job, "FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if (left := remaining(job)) is not None and left <= 0:
            for pod in pods:
                self.api.delete("pods", pod)
            return self._end(job, "FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        self._start_pod(job, [pod for pod in pods if pod["status"].get("phase") not in ENDED], left)

    def _start_pod(self, job, active, left):
        uid, status = job["metadata"]["uid"], job.get("status", {})
        if active:
            ready = sum(1 for pod in active if pod["status"].get("phase") == "Running")
            if (status.get("active", 0), status.get("ready", 0)) != (len(active), ready):
                self._write(job, active=len(active), ready=ready)
            return
        wait = self.not_before.get(uid, 0) - time.monotonic()
        if wait > 0:
            self._wake(uid, wait)
            return
        made = self._create(job)
        self.pods[made["metadata"]["uid"]] = made
        told("pod", made["metadata"]["name"])
        self._write(job, active=1, ready=0)
        if left is not None:
            self._wake(f"{uid} deadline", left)

    def _create(self, job):
        metadata, template = job["metadata"], job["spec"]["template"]
        name = metadata["name"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"], "controller": True,
                     "blockOwnerDeletion": True}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {**template["spec"], "nodeName": self.node},
               "metadata": {"generateName": f"{name}-", "namespace": metadata["namespace"], "finalizers": [TRACKING],
                            "labels": {**template["metadata"].get("labels", {}), "job-name": name, "controller-uid": metadata["uid"]},
                            "ownerReferences": [reference]}}
        return self.api.ask("POST", f"/api/v1/namespaces/{metadata['namespace']}/pods", pod)

    def _count(self, job, pods):
        """Counts the pods that have ended: they are noted, then released, then counted. Returns whether something was written."""
        ended = [pod for pod in pods if pod["status"].get("phase") in ENDED and TRACKING in pod["metadata"].get("finalizers", [])]
        status = job.get("status", {})
        noted = status.get("uncountedTerminatedPods") or {}
        if not ended and not any(noted.values()):
            return False
        fresh = {"succeeded": [], "failed": []}
        for pod in ended:
            ignored = any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in pod["status"].get("conditions") or [])
            kind = pod["status"]["phase"].lower()
            uid = pod["metadata"]["uid"]
            if not (ignored and kind == "failed" and "podFailurePolicy" in job["spec"]) and uid not in noted.get(kind, []):
                fresh[kind].append(uid)
        if any(fresh.values()):
            both = {kind: [*noted.get(kind, []), *fresh[kind]] for kind in fresh}
            active = [pod for pod in pods if pod["status"].get("phase") not in ENDED]
            self._write(job, uncountedTerminatedPods=both, active=len(active), ready=0)
            if fresh["failed"]:
                count = status.get("failed", 0) + len(both["failed"])
                self.not_before[job["metadata"]["uid"]] = time.monotonic() + self.backoff * 2 ** (count - 1)
            return True
        for pod in ended:
            self.api.remove_finalizer("pods", pod, TRACKING)
            pod["metadata"]["finalizers"] = []
        counts = {kind: status.get(kind, 0) + len(noted.get(kind, [])) for kind in fresh}
        told("count", job["metadata"]["name"], counts)
        self._write(job, uncountedTerminatedPods={"succeeded": None, "failed": None}, **counts)
        return True

    def _end(self, job, first, last, reason, message):
        # Two writes, as the real one's.
        if not has(job, first):
            self._write(job, conditions=[condition(first, "True", reason, message)], active=0, ready=0)
            return
        more = {"completionTime": now()} if last == "Complete" else {}
        told("job", job["metadata"]["name"], last)
        self._write(job, conditions=[condition(last, "True", reason, message)], active=0, ready=0, **more)

    def _write(self, job, conditions=None, **fields):
        if conditions is not None:
            kept = [each for each in job.get("status", {}).get("conditions") or []
                    if each["type"] not in [new["type"] for new in conditions]]
            fields["conditions"] = [*kept, *conditions]
        written = self.api.merge(f"{self.api.path('jobs', job)}/status", {"metadata": {"uid": job["metadata"]["uid"]}, "status": fields},
                                 allow=(404, 409))
        if written:
            self.jobs[job["metadata"]["uid"]] = written
            # There is more to do, perhaps.
            self.events.put(("again", None, None))
        else:
            self.jobs.pop(job["metadata"]["uid"], None)

    def _wake(self, key, seconds):
        if key in self.timers and self.timers[key].is_alive():
            return
        self.timers[key] = threading.Timer(seconds, self.events.put, args=[("again", None, None)])
        self.timers[key].daemon = True
        self.timers[key].start()


def version(one):
    """Returns a number that grows with each write."""
    return int(one["metadata"]["resourceVersion"])


def has(job, *types):
    """Returns whether one of these conditions is True."""
    conditions = job.get("status", {}).get("conditions") or []
    return any(each["type"] in types and each["status"] == "True" for each in conditions)


def condition(kind, status, reason, message):
    """Returns a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now(), "lastProbeTime": now()}


def owner(pod):
    """Returns the UID of a pod's Job."""
    return next((each["uid"] for each in pod["metadata"].get("ownerReferences", []) if each["kind"] == "Job"), None)


def remaining(job):
    """Returns how many seconds a Job has left, where it has a deadline."""
    deadline = job["spec"].get("activeDeadlineSeconds")
    if deadline is None:
        return None
    began = datetime.fromisoformat(job["status"]["startTime"].replace("Z", "+00:00"))
    return deadline - (datetime.now(timezone.utc) - began).total_seconds()
