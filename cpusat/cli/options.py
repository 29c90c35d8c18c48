"""The options of ``solve``, by section of its help. Imports no models, so that ``--help`` is quick."""

import click

LIST = "LIST"
MOST_WORKERS, MOST_SEED = 1024, 2**31 - 1


def _choice(name: str, values: str, text: str) -> click.Option:
    return click.Option([name], type=click.Choice(values.split()), help=text)


def _switch(name: str, text: str) -> click.Option:
    return click.Option([f"--{name}/--no-{name}"], default=None, help=text)


OVERLAYS = (
    click.Option(["--reserved"], metavar=LIST, help="CPUs kept for the system, instead of those in the document."),
    click.Option(
        ["--held"],
        metavar="[NAME=]LIST|FILE",
        multiple=True,
        help="CPUs of a live claim, or a kubelet's cpu_manager_state; besides those in the document.",
    ),
)
MACHINE = (
    click.Option(["--topology"], metavar="SOURCE", required=True, help="The machine; see SOURCE below."),
    *OVERLAYS,
    click.Option(["--free"], metavar=LIST, help="The CPUs that are free, whatever the document says is held."),
)
REQUEST = (
    click.Option(["--cpus"], type=int, metavar="N", help="How many CPUs."),
    click.Option(["--name"], metavar="NAME", help="The request's name."),
    _choice("--policy", "packed distributed", "Span little hardware, or take equal shares of NUMA nodes."),
    _switch("full-cores", "Only whole cores (rule)."),
    _choice("--threads", "pack spread", "Fill cores, or take one CPU per core as far as possible."),
    _switch("prefer-l3", "Fewer L3s matter more than fewer cores."),
    _switch("align-by-socket", "Fewer sockets matter more than fewer NUMA nodes."),
    click.Option(["--numa-min"], metavar="N|all", help="At least so many NUMA nodes (preference)."),
    click.Option(["--numa-max"], type=int, metavar="N", help="At most so many NUMA nodes (rule)."),
    click.Option(["--numa-ids"], metavar=LIST, help="Only these NUMA nodes (rule)."),
    _choice("--fit", "tight loose", "The fullest NUMA node that holds the request, or the emptiest."),
    _choice("--core-type", "any performance efficiency", "Only cores of this type (rule)."),
    click.Option(["--near"], metavar="DEVICE|LIST", help="Local to a device, or to the NUMA nodes of CPUs."),
    click.Option(["--within"], metavar=LIST, help="Only these CPUs (rule)."),
    click.Option(
        ["--strict"],
        metavar="NAMES|all|none",
        multiple=True,
        help="Preferences to take as rules: policy, numa-min, near, align-by-socket, prefer-l3, threads.",
    ),
)
CLAIM = (
    click.Option(
        ["--claims"],
        metavar="FILE",
        help="Requests and constraints in YAML or JSON, instead of the document's; '-' is standard input.",
    ),
    click.Option(
        ["--match"],
        metavar="LEVEL[:NAMES]",
        multiple=True,
        help="All these requests (or all there are) in one numa, socket or l3.",
    ),
    click.Option(
        ["--distinct"],
        metavar="LEVEL[:NAMES]",
        multiple=True,
        help="Each of these requests in domains of its own. The two replace the constraints in the file.",
    ),
)
ENGINE = (
    click.Option(
        ["--engine"],
        type=click.Choice(["auto", "greedy", "dp", "cpsat"]),
        default="auto",
        show_default=True,
        help="All three in this order; the kubelet's algorithm; dynamic programming; CP-SAT.",
    ),
    click.Option(
        ["--time-limit"],
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="When to stop; 0 gives the greedy answer.",
    ),
    click.Option(
        ["--workers"],
        type=click.IntRange(1, MOST_WORKERS),
        default=1,
        show_default=True,
        metavar="N",
        help="Threads of CP-SAT.",
    ),
    click.Option(
        ["--seed"],
        type=click.IntRange(0, MOST_SEED),
        default=0,
        show_default=True,
        metavar="N",
        help="Start of its random numbers; changes no optimal answer.",
    ),
)
OUTPUT = (
    click.Option(
        ["--output"],
        type=click.Choice(["table", "json", "cpuset", "mask", "cgroup", "claim-config"]),
        default="table",
        show_default=True,
        help="For people; for programs; a CPU list; a mask for taskset; lines FILE=VALUE for a cgroup; "
        "the config of a ResourceClaim that names the CPUs to the DRA CPU driver.",
    ),
    click.Option(["--compare"], is_flag=True, help="The greedy answer beside the optimal one, metric by metric."),
    click.Option(["--explain"], is_flag=True, help="What the answer means, on a drawing; or which rules clash."),
)

SECTIONS: dict[str, tuple[click.Option, ...]] = {
    "Machine": MACHINE,
    "Request (overrides each request of the document or the claims)": REQUEST,
    "Several requests": CLAIM,
    "Engine": ENGINE,
    "Output": OUTPUT,
}
