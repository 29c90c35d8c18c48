"""Rules between requests, on the used domains of each."""

from collections.abc import Iterable

from ortools.sat.python import cp_model

from models import Constraint, Level
from solver.cpsat.spans import Literals, SpanModel
from solver.problem import Problem


def add_rules_between(
    model: cp_model.CpModel, problem: Problem, spans: list[SpanModel], rules: Iterable[Constraint]
) -> None:
    """``match``: one domain for all; ``distinct``: no domain for two."""
    names = [request.name for request in problem.requests]
    for rule in rules:
        used = [_level(spans[i], rule.level) for i in rule.concerns(names)]
        domains = {domain for literals in used for domain in literals if domain >= 0}
        users = [[literals[domain] for literals in used if domain in literals] for domain in sorted(domains)]
        if rule.distinct:
            for literals in users:
                model.add_at_most_one(literals)
        else:
            model.add_at_most_one(any_user(model, literals) for literals in users)


def any_user(model: cp_model.CpModel, literals: list[cp_model.IntVar]) -> cp_model.IntVar:
    """A literal that is true when one of these is."""
    if len(literals) == 1:
        return literals[0]
    result = model.new_bool_var("any user")
    for literal in literals:
        model.add_implication(literal, result)
    return result


def _level(span: SpanModel, level: Level) -> Literals:
    return {"numa": span.numa_nodes, "socket": span.sockets, "l3": span.l3s}[level]
