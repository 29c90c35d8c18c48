"""An image of busybox alone, made by hand: an archive in the OCI image layout, as ``ctr`` imports it."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

NAME = "cpusat.test/busybox:1"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

FOR_EVER = ("/bin/busybox", "sleep", "1000000")
FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp")
APPLETS = ("sh", "sleep", "cat", "grep", "env", "true")


class _Archive:
    """Files and blobs of a tar file."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar

    def add(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        self._tar.addfile(entry, io.BytesIO(content))

    def blob(self, kind: str, content: bytes, **more: Any) -> dict[str, Any]:
        """Add it under its digest; its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.add(f"blobs/sha256/{digest}", content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}


def write_image(busybox: Path, target: Path) -> Path:
    """Write the archive; its path."""
    with tarfile.open(target, "w") as tar:
        archive = _Archive(tar)
        content = _layer(busybox)
        layer = archive.blob(LAYER, content)
        config = archive.blob(CONFIG, _json(_config(layer["digest"])))
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        named = {"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": NAME}
        described = archive.blob(MANIFEST, _json(manifest), annotations=named)
        archive.add("index.json", _json({"schemaVersion": 2, "manifests": [described]}))
        archive.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return target


def _config(layer: str) -> dict[str, Any]:
    machine = platform.machine()
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": FOR_EVER, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    }


def _layer(busybox: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        program = tar.gettarinfo(str(busybox), "bin/busybox")
        program.mode = 0o755
        with busybox.open("rb") as stream:
            tar.addfile(program, stream)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return content.getvalue()


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
