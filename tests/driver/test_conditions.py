"""Conditions, and who hears of them."""

import logging

from driver.conditions import Conditions


def test_the_log_says_when_a_condition_comes_changes_and_goes(caplog):
    caplog.set_level(logging.INFO, logger="driver.conditions")
    conditions = Conditions()
    for message in ("nobody answers", "nobody answers", "refused"):
        conditions.set("NRIAway", message)
    for _ in range(2):
        conditions.clear("NRIAway")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "nothing new is prepared: NRIAway: nobody answers"),
        ("WARNING", "nothing new is prepared: NRIAway: refused"),
        ("INFO", "NRIAway no longer holds"),
    ]


def test_a_condition_that_several_parts_have_set_holds_until_all_have_taken_it_back():
    conditions, heard = Conditions(), []
    conditions.listen(lambda: heard.append(str(conditions)))
    conditions.set("StaticCPUManager", "updates come")
    conditions.set("StaticCPUManager", "it has given CPUs", "kubelet")
    conditions.clear("StaticCPUManager")
    conditions.clear("StaticCPUManager")
    conditions.clear("StaticCPUManager", "kubelet")
    assert heard == [
        "StaticCPUManager: updates come",
        "StaticCPUManager: updates come; it has given CPUs",
        "StaticCPUManager: it has given CPUs",
        "",
    ]
