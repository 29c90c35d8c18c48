"""The constraints: what variables mean, and the rules of requests and between them."""

from collections.abc import Iterable, Sequence

from ortools.sat.python import cp_model

from solver.cpsat.search import Expr
from solver.cpsat.variables import (
    AnyUser,
    BatchVariables,
    CoreVariables,
    DistanceVariables,
    Literals,
    Lot,
    SpanVariables,
    Square,
)
from solver.problem import Problem
from solver.reduction.blocks import l3s_lie_in_blocks


def add_span_constraints(model: cp_model.CpModel, request: SpanVariables) -> None:
    """All that holds of the takes of one request from its blocks."""
    takes_add_up(model, request)
    define_used_blocks(model, request)
    define_used_domains(model, request)
    bound_numa_nodes(model, request)
    use_one_socket(model, request)
    use_one_l3(model, request)
    define_unevenness(model, request)
    split_evenly(model, request)
    define_shortfall(model, request)
    define_distance(model, request.distance)


def add_core_constraints(model: cp_model.CpModel, cores: CoreVariables, spans: SpanVariables) -> None:
    """All that holds of what one request takes from its cores."""
    cores_add_up_to_blocks(model, cores, spans)
    define_used_cores(model, cores)
    keep_cores_whole(model, cores)
    use_one_cpu_a_core(model, cores)


def add_batch_constraints(model: cp_model.CpModel, batch: BatchVariables) -> None:
    """All that holds between requests, whatever they compete for."""
    define_any_user(model, batch.numa_nodes)
    define_any_user(model, batch.l3s)
    for users in batch.matched:
        define_any_user(model, users)
        model.add_at_most_one(users.used.values())
    use_distinct_domains(model, batch)
    define_squares(model, batch.left)


def takes_add_up(model: cp_model.CpModel, request: SpanVariables) -> None:
    """The request gets as many CPUs as it asks for."""
    model.add(sum(request.takes) == request.demand.cpus)


def define_used_blocks(model: cp_model.CpModel, request: SpanVariables) -> None:
    """A block is used when at least one CPU is taken from it."""
    for take, used in zip(request.takes, request.used_blocks, strict=True):
        model.add(take >= 1).only_enforce_if(used)
        model.add(take == 0).only_enforce_if(~used)


def define_used_domains(model: cp_model.CpModel, request: SpanVariables) -> None:
    """A domain of several blocks is used when one of them is."""
    for used, blocks in request.users:
        model.add_max_equality(used, blocks)


def bound_numa_nodes(model: cp_model.CpModel, request: SpanVariables) -> None:
    """``numa_max``, and a strict ``numa_min``."""
    rules, nodes = request.demand.rules, sum(request.numa_nodes.values())
    if rules.numa_least > 1:
        model.add(nodes >= rules.numa_least)
    if rules.numa_most < len(request.numa_nodes):
        model.add(nodes <= rules.numa_most)


def use_one_socket(model: cp_model.CpModel, request: SpanVariables) -> None:
    """A strict ``align_by_socket``, and ``match`` of sockets."""
    if request.demand.rules.one_socket:
        model.add_at_most_one(request.sockets.values())


def use_one_l3(model: cp_model.CpModel, request: SpanVariables) -> None:
    """A strict ``prefer_l3``, and ``match`` of L3s.

    Where blocks hold whole L3s one of them is used, of which the cost tables take care that only one L3 is; a
    relaxation whose blocks share L3s does without the rule.
    """
    if not request.demand.rules.one_l3:
        return
    if all(block.l3 is not None for block in request.blocks):
        model.add_at_most_one(request.l3s.values())
    elif l3s_lie_in_blocks(request.problem.machine, request.demand.parts):
        model.add_at_most_one(request.used_blocks)


def define_unevenness(model: cp_model.CpModel, request: SpanVariables) -> None:
    """The excess is at least what the shares of used NUMA nodes differ by beyond the unit."""
    if request.demand.request.policy == "packed":
        return
    for node, used in request.numa_nodes.items():
        model.add(request.share(node) <= request.highest)
        model.add(request.share(node) >= request.lowest).only_enforce_if(used)
    model.add(request.excess >= request.highest - request.lowest - request.demand.unit)


def split_evenly(model: cp_model.CpModel, request: SpanVariables) -> None:
    """A strict ``policy: distributed``."""
    if request.demand.rules.even:
        model.add(request.excess == 0)


def define_shortfall(model: cp_model.CpModel, request: SpanVariables) -> None:
    """The shortfall is at least what is missing to ``numa_min``."""
    if request.demand.floor:
        model.add(request.shortfall >= request.demand.floor - sum(request.numa_nodes.values()))


def define_distance(model: cp_model.CpModel, distance: DistanceVariables) -> None:
    """Counts of used NUMA nodes by group, their pairs and their products."""
    for count, pairs, members in zip(distance.counts, distance.pairs, distance.members, strict=True):
        if pairs is not None:
            model.add(count == sum(members))
            model.add_element(count, [n * (n - 1) // 2 for n in range(len(members) + 1)], pairs)
    for (i, j), product in distance.products.items():
        a, b = distance.counts[i], distance.counts[j]
        if len(distance.members[i]) == len(distance.members[j]) == 1:
            model.add(product >= a + b - 1)
        else:
            model.add_multiplication_equality(product, [a, b])


def choose_one_take(model: cp_model.CpModel, request: SpanVariables, choices: Sequence[Literals]) -> None:
    """Exactly one number of CPUs is chosen for each block, and as many are taken."""
    for take, choice in zip(request.takes, choices, strict=True):
        model.add_exactly_one(choice.values())
        model.add(take == cp_model.LinearExpr.weighted_sum(list(choice.values()), list(choice.keys())))


def define_squares(model: cp_model.CpModel, squares: Iterable[Square]) -> None:
    """Roots and their squares."""
    for square in squares:
        model.add(square.root == square.of)
        model.add_multiplication_equality(square.value, [square.root, square.root])


def order_symmetric(model: cp_model.CpModel, pairs: Iterable[tuple[Expr, Expr]]) -> None:
    """Of what may change places, the earlier gets no less: other orders need not be searched."""
    for earlier, later in pairs:
        model.add(earlier >= later)


def give_no_cpu_twice(model: cp_model.CpModel, lots: Iterable[Lot]) -> None:
    """Requests get no more of a lot than it has."""
    for lot in lots:
        model.add(sum(lot.takes.values()) <= len(lot.cpus))


def cores_add_up_to_blocks(model: cp_model.CpModel, cores: CoreVariables, spans: SpanVariables) -> None:
    """What is taken from a block is taken from its cores."""
    for block, take in zip(spans.blocks, spans.takes, strict=True):
        model.add(take == sum(cores.taken[part.core] for part in block.parts))


def define_used_cores(model: cp_model.CpModel, cores: CoreVariables) -> None:
    """A core is used when at least one CPU is taken from it."""
    for part in cores.demand.parts:
        model.add(cores.taken[part.core] >= cores.used[part.core])
        model.add(cores.taken[part.core] <= part.size * cores.used[part.core])


def keep_cores_whole(model: cp_model.CpModel, cores: CoreVariables) -> None:
    """``full_cores``: of a used core all CPUs are taken."""
    if cores.demand.request.full_cores:
        for part in cores.demand.parts:
            model.add(cores.taken[part.core] >= part.size * cores.used[part.core])


def use_one_cpu_a_core(model: cp_model.CpModel, cores: CoreVariables) -> None:
    """A strict ``threads: spread``."""
    if cores.demand.rules.one_thread:
        for part in cores.demand.parts:
            model.add(cores.taken[part.core] <= cores.used[part.core])


def define_split_cores(
    model: cp_model.CpModel, problem: Problem, split: Literals, requests: Sequence[CoreVariables]
) -> None:
    """A core that a request with packed threads uses is split unless all its free CPUs are taken."""
    for core, literal in split.items():
        free = (problem.machine.cores[core].mask & problem.free).bit_count()
        taken = sum(request.taken[core] for request in requests if core in request.taken)
        for request in requests:
            if request.demand.request.threads == "pack" and core in request.used:
                model.add(taken >= free).only_enforce_if(request.used[core], ~literal)


def define_any_user(model: cp_model.CpModel, any_user: AnyUser) -> None:
    """A domain is used when one of several requests uses it."""
    for domain, users in any_user.users.items():
        for used in users if len(users) > 1 else []:
            model.add_implication(used, any_user.used[domain])


def use_distinct_domains(model: cp_model.CpModel, batch: BatchVariables) -> None:
    """``distinct``: no domain is used by two requests."""
    for rule, concerned in batch.rules:
        if rule.distinct:
            users = AnyUser.users_of([batch.requests[i].level(rule.level) for i in concerned])
            for literals in users.values():
                model.add_at_most_one(literals)
