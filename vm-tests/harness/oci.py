"""Images in OCI layout: a new one from an old one and one more layer, as a container build with one `COPY` makes it."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

TAG = "org.opencontainers.image.ref.name"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class Layout:
    """A directory in OCI layout."""

    def __init__(self, path: Path):
        self.path = path

    def find(self, tag):
        """Returns the digest of the image with a tag."""
        return next(entry["digest"] for entry in self._index()["manifests"] if entry["annotations"].get(TAG) == tag)

    def derive(self, base, tag, files, labels, architecture=None):
        """Adds an image: `base`, a layer of files (path to mode and bytes; of a link, to where it points), other labels and, if
        it is given, another architecture. Returns its digest."""
        manifest = self._json(self.find(base))
        config = self._json(manifest["config"]["digest"])
        config["architecture"] = architecture or config["architecture"]
        return self._add(manifest, config, tag, files, labels)

    def plain(self, tag, files, labels):
        """Adds an image of one layer that is made from nothing, as an application's. Returns its digest."""
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": CONFIG}, "layers": []}
        config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}}
        return self._add(manifest, config, tag, files, labels)

    def layers(self, tag):
        """Returns the digests of an image's layers, the first one first."""
        return [layer["digest"] for layer in self._json(self.find(tag))["layers"]]

    def _add(self, manifest, config, tag, files, labels):
        layer = archive(files)
        packed = gzip.compress(layer, 1, mtime=0)
        manifest["layers"].append(self._put(packed, LAYER))
        config["rootfs"]["diff_ids"].append("sha256:" + hashlib.sha256(layer).hexdigest())
        config.setdefault("history", []).append({"created_by": "vm-tests"})
        config["config"].setdefault("Labels", {}).update(labels)
        manifest["config"] = self._put(json.dumps(config).encode(), manifest["config"]["mediaType"])
        entry = self._put(json.dumps(manifest).encode(), MANIFEST)
        index = self._index()
        kept = [other for other in index["manifests"] if other["annotations"].get(TAG) != tag]
        index["manifests"] = [*kept, {**entry, "annotations": {TAG: tag}}]
        replace(self.path / "index.json", json.dumps(index).encode())
        return entry["digest"]

    def _index(self):
        return json.loads((self.path / "index.json").read_text())

    def _blob(self, digest):
        return self.path / "blobs" / digest.replace(":", "/")

    def _json(self, digest):
        return json.loads(self._blob(digest).read_bytes())

    def _put(self, data, media_type):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        replace(self._blob(digest), data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}


def replace(path, data):
    """Puts a new file in the place of another one, which a copy by links still has."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(data)
    new.rename(path)


def archive(files):
    """Makes a tar archive of files and the directories that lead to them; of equal files it is equal."""
    out, made = io.BytesIO(), set()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, (mode, data) in sorted(files.items()):
            for parent in reversed(Path(path).parents[:-1]):
                if parent not in made:
                    made.add(parent)
                    entry = tarfile.TarInfo(str(parent))
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
            entry = tarfile.TarInfo(path)
            if isinstance(data, str):
                entry.type, entry.linkname, data = tarfile.SYMTYPE, data, b""
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
