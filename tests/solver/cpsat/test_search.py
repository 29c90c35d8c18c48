from ortools.sat.python import cp_model

from solver.cpsat.search import Objective, Search, Tuning
from solver.limits import Limits


class LastMoment(Limits):
    """Time that is used up right after the first look at it."""

    @property
    def left(self) -> float:
        looks = self.__dict__.setdefault("looks", [])
        looks.append(1)
        return 1e-6 if len(looks) == 1 else -1e-6


def test_a_limit_that_passes_between_two_looks_at_it_is_no_defect() -> None:
    model = cp_model.CpModel()
    take = model.new_int_var(0, 3, "take")
    search = Search(model, LastMoment(deadline=0.0), Tuning())
    search.minimize([Objective("take", take)])
    assert search.bounds == {"take": 0}
    assert not search.infeasible
