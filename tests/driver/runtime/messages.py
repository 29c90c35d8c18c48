"""The messages of ``cri.proto`` as classes, made when they are asked for.

In a process of its own: protobuf's compiler and OR-Tools bring a copy of protobuf each, and crash together.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FOLDER = Path(__file__).parent


def load(name: str = "cri.proto") -> SimpleNamespace:
    """Messages and enum values of the file, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "set"
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{FOLDER}",
            f"--descriptor_set_out={compiled}",
            name,
        ]
        subprocess.run(command, check=True, timeout=120)
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    found = pool.FindFileByName(name)
    classes = {key: message_factory.GetMessageClass(kind) for key, kind in found.message_types_by_name.items()}
    values = {value.name: value.number for kind in found.enum_types_by_name.values() for value in kind.values}
    return SimpleNamespace(**classes, **values)
