"""The garbage collector: what nobody owns any more goes."""

from api import told

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Collector:
    """Follows owners, from a MachineOSConfig to the inputs of a Job."""

    kinds = ("machineosconfigs", "machineosbuilds", "jobs", "pods", "configmaps", "secrets")

    def __init__(self, api):
        self.api, self.all = api, {}
        # UIDs never come back.
        self.gone = set()

    def see(self, what, kind, one):
        """Takes an event."""
        uid = one["metadata"]["uid"]
        if what == "DELETED":
            self.all.pop(uid, None)
            self.gone.add(uid)
            for each_kind, each in self._owned(uid):
                self._release(each_kind, each)
            # Their owner may wait for them.
            for reference in one["metadata"].get("ownerReferences", []):
                if reference["uid"] in self.all:
                    self._finalize(*self.all[reference["uid"]])
            return
        self.all[uid] = (kind, one)
        owners = one["metadata"].get("ownerReferences", [])
        if owners and all(owner["uid"] in self.gone for owner in owners):
            # It came when its owner was gone already.
            self._release(kind, one)
        self._finalize(kind, one)

    def _owned(self, uid):
        return [(kind, one) for kind, one in self.all.values()
                if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", []))]

    def _release(self, kind, one):
        owners = one["metadata"].get("ownerReferences", [])
        if all(owner["uid"] in self.gone for owner in owners) and "deletionTimestamp" not in one["metadata"]:
            told("collect", kind, one["metadata"]["name"])
            self.api.delete(kind, one, propagationPolicy="Background")

    def _finalize(self, kind, one):
        """Does what the API server left to the collector when it marked an object."""
        metadata = one["metadata"]
        finalizers = metadata.get("finalizers", []) if "deletionTimestamp" in metadata else []
        owned = self._owned(metadata["uid"])
        if FOREGROUND in finalizers:
            for each_kind, each in owned:
                if "deletionTimestamp" not in each["metadata"]:
                    self.api.delete(each_kind, each, propagationPolicy="Foreground")
            if not owned:
                self.api.remove_finalizer(kind, one, FOREGROUND)
        if ORPHAN in finalizers:
            for each_kind, each in owned:
                kept = [owner for owner in each["metadata"]["ownerReferences"] if owner["uid"] != metadata["uid"]]
                self.api.merge(self.api.path(each_kind, each), {"metadata": {"ownerReferences": kept}})
            self.api.remove_finalizer(kind, one, ORPHAN)
