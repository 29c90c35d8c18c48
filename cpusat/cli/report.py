"""Answers for people: tables, comparisons, explanations."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cpusat.cli.compare import Comparison, MetricRow
from models import Infeasible, Request, Result, Topology, format_cpuset
from solver.score import JointMetric, joint_order
from topologies.terminal.cpu_list import CPUList
from topologies.terminal.drawing import Drawing, holders
from topologies.terminal.streams import printable

MEANING = {
    "unevenness": "CPUs by which shares of NUMA nodes differ, beyond one CPU (with full_cores, one core)",
    "floor_shortfall": "NUMA nodes missing to numa_min",
    "outside_near": "CPUs that are not near",
    "numa_nodes": "NUMA nodes that the CPUs lie in",
    "sockets": "sockets that the CPUs lie in",
    "numa_distance": "sum of the distances between those NUMA nodes, there and back",
    "core_types": "types of cores among the CPUs",
    "cores": "cores that the CPUs lie in",
    "doubled_threads": "CPUs that share a core with another CPU of the request",
    "l3_caches": "L3s that the CPUs lie in",
    "numa_leftover": "CPUs left free in the NUMA nodes used",
    "numa_balance": "sum of squares of the CPUs left free in each NUMA node: low where they are even",
    "l3_leftover": "CPUs left free in the L3s used",
    "split_cores": "cores used that keep free CPUs, which others will have to share",
}
"""Metric to what it counts; lower is better in all of them."""

PROOF = {"dp": "proven by dynamic programming", "cpsat": "proven by CP-SAT"}
"""Method to what it has proven an answer by."""


def answer(result: Result) -> Iterator[RenderableType]:
    """The status of the answer, and each request's CPUs."""
    took = result.build_ms + result.solve_ms
    proven = result.status == "optimal"
    how = PROOF[result.engine] if proven else f"not proven optimal, given by {result.engine}"
    yield Text(f"{result.status}, {how}, {took:.1f} ms\n", style="bold")
    table = _table("request", "policy", ">CPUs", "mems", "cpuset")
    for given in result.allocations:
        size, mems = str(len(given.cpuset)), format_cpuset(given.mems) or "-"
        table.add_row(printable(given.request), given.policy, size, mems, CPUList(given.cpuset, "green"))
    yield table


def metrics(result: Result, requests: Sequence[Request]) -> Iterator[RenderableType]:
    """The metrics in their order: of each request, of all, and what is proven."""
    several, bounded = len(requests) > 1, _bounded(result)
    names = [f">{printable(request.name)}" for request in requests] + [">all"] if several else [">value"]
    table = _table("metric", *names, *([">least possible"] if bounded else []))
    for metric, row in zip(joint_order(requests), Comparison(result, result).rows(), strict=True):
        singly = [
            _own(metric, own, given.metrics) for own, given in zip(metric.own, result.allocations, strict=True)
        ]
        table.add_row(
            metric.name, *(singly if several else []), str(row.best), *([_bound(row)] if bounded else [])
        )
    yield Text()
    yield table


def meanings(result: Result) -> Iterator[RenderableType]:
    """What each metric counts, and its value for all requests together."""
    bounded = _bounded(result)
    table = _table("metric", ">value", *([">least possible"] if bounded else []), "meaning")
    for row in Comparison(result, result).rows():
        meaning = "; and ".join(MEANING[part] for part in row.metric.split("+"))
        table.add_row(row.metric, str(row.best), *([_bound(row)] if bounded else []), meaning)
    yield Text()
    yield table


def _bounded(result: Result) -> bool:
    """Whether something short of optimality is proven."""
    return result.status != "optimal" and any(bound is not None for bound in result.bounds.values())


def _own(metric: JointMetric, own: str | None, values: Mapping[str, int]) -> str:
    """The request's own metric in this slot, unless the row is about another."""
    return str(values[own]) if own in metric.name.split("+") else "-"


def _bound(row: MetricRow) -> str:
    return "not reached" if row.bound is None else str(row.bound)


def comparison(compared: Comparison) -> Iterator[RenderableType]:
    """The greedy answer compared with the best, metric by metric; differences are marked and put into words."""
    table = _table("metric", ">greedy", f">{_name_of_best(compared)}", "difference", "proof")
    for row in compared.rows():
        greedy = "-" if row.greedy is None else str(row.greedy)
        style = "" if row.gain == 0 else "bold green" if row.gain > 0 else "yellow"
        table.add_row(row.metric, greedy, str(row.best), _difference(row.gain), _proof(row), style=style)
    yield Text()
    yield table
    yield Text()
    cpusets = _table("greedy would give", "cpuset")
    for given in compared.greedy.allocations:
        cpusets.add_row(printable(given.request), CPUList(given.cpuset))
    yield cpusets if compared.greedy.allocations else Text("greedy finds nothing")
    if compared.is_even:
        yield Text(f"\nThe greedy answer is as good as the {_name_of_best(compared)} one: no metric differs.")


def mixed(requests: Sequence[Request]) -> Iterator[RenderableType]:
    """What a metric of several names adds up: which of them is whose."""
    gap = "\n"
    for metric in joint_order(requests):
        if "+" in metric.name:
            parts = (f"{one} of {_whose(one, metric, requests)}" for one in metric.name.split("+"))
            yield Text(f"{gap}{metric.name} adds up {' and '.join(parts)}.")
            gap = ""


def _whose(name: str, metric: JointMetric, requests: Sequence[Request]) -> str:
    pairs = zip(requests, metric.own, strict=True)
    return ", ".join(printable(request.name) for request, own in pairs if own == name)


def _name_of_best(compared: Comparison) -> str:
    return "optimal" if compared.best.status == "optimal" else "best found"


def _difference(gain: int) -> str:
    if gain == 0:
        return ""
    return f"<- {gain} better" if gain > 0 else f"-> {-gain} worse, for a metric above"


def _proof(row: MetricRow) -> str:
    return f"at least {row.bound}" if row.proof == "bound" else row.proof


def drawing(topology: Topology, result: Result) -> Iterator[RenderableType]:
    """The machine, with who holds what before and after."""
    placed = {cpu: f"given to {given.request}" for given in result.allocations for cpu in sorted(given.cpuset)}
    yield Text()
    yield Drawing(topology, placed | holders(topology))


def clash(infeasible: Infeasible) -> Iterator[RenderableType]:
    """The rules that clash, and the nearest request that would be placed."""
    yield Text("These rules clash. Without any one of them the others could be met:")
    table = _table("request", "rule", ">requested", ">possible", "in words")
    for rule in infeasible.rules:
        numbers = ("-" if number is None else str(number) for number in (rule.asked, rule.available))
        table.add_row(printable(rule.request) or "-", rule.name, *numbers, printable(rule.text))
    yield table
    near = infeasible.nearest
    if near is not None:
        yield Text(
            f"Nearest: request {printable(near.request)} with {near.option} {near.instead} "
            f"({near.asked} requested)"
        )


def _table(*columns: str) -> Table:
    """An empty table; columns marked ``>`` are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    return table
