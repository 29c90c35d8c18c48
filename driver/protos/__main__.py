"""Make the Python of all ``.proto`` files anew. Needs ``grpcio-tools``, which the extra ``test`` brings."""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent


def generate(root: Path, target: Path) -> int:
    """Compile ``driver/protos/*.proto`` under ``root`` into the tree at ``target``. The exit code of protoc."""
    protos = sorted(str(path.relative_to(root)) for path in (root / "driver/protos").glob("*.proto"))
    includes = [f"-I{root}", f"-I{files('grpc_tools') / '_proto'}"]
    return int(protoc.main(["protoc", *includes, f"--python_out={target}", f"--pyi_out={target}", *protos]))


if __name__ == "__main__":
    sys.exit(generate(HERE.parents[1], HERE.parents[1]))
