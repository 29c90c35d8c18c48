"""An image around busybox, as an OCI archive: what pods and their pause container run."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

NAME = "cpusat.test/box:1"


def write_image(busybox: Path, path: Path) -> Path:
    """Write the archive; its path."""
    layer = _layer(busybox.read_bytes())
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        }
    )
    layers = [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)]
    of_config = _descriptor("application/vnd.oci.image.config.v1+json", config)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": of_config,
            "layers": layers,
        }
    )
    named = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    named["annotations"] = {"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1"}
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [named]}))
        for blob in (layer, config, manifest):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    return path


def _layer(busybox: bytes) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as layer:
        for folder in ("bin", "tmp", "proc", "sys", "dev", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(entry)
        _add(layer, "bin/busybox", busybox, 0o755)
        for program in ("sh", "sleep", "cat", "true", "grep", "env"):
            link = tarfile.TarInfo(f"bin/{program}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return found.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}
