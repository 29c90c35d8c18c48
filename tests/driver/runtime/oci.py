"""Reads an image out of an archive in the OCI image layout."""

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Layer:
    """One layer: sizes of its files by path, and the archive of them."""

    sizes: dict[str, int]
    content: bytes

    def read(self, path: str) -> str:
        """The text of a file."""
        with tarfile.open(fileobj=io.BytesIO(self.content)) as tar:
            stream = tar.extractfile(path)
            assert stream, path
            return stream.read().decode()


@dataclass(frozen=True)
class Image:
    """``config`` is what a runtime goes by: user, entrypoint, variables."""

    config: dict[str, Any]
    layers: tuple[Layer, ...]


def read_image(archive: Path) -> Image:
    """The one image of an archive."""
    with tarfile.open(archive) as tar:

        def blob(descriptor: dict[str, str]) -> bytes:
            stream = tar.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert stream
            return stream.read()

        index = tar.extractfile("index.json")
        assert index
        (described,) = json.load(index)["manifests"]
        manifest = json.loads(blob(described))
        config = json.loads(blob(manifest["config"]))
        return Image(config["config"], tuple(_layer(blob(each)) for each in manifest["layers"]))


def _layer(content: bytes) -> Layer:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return Layer({each.name: each.size for each in tar if each.isfile()}, content)
