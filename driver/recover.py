"""What becomes of files that others have left, removed or spoilt: at the start unknown claims are taken over; then
and later claims get their files again.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

from driver.cdi import CDI
from driver.errors import RefusedError
from driver.ledger.book import Ledger
from driver.ledger.locks import BusyError
from models import format_cpuset

log = logging.getLogger(__name__)


def recover(ledger: Ledger, cdi: CDI) -> None:
    """Bring ledger and CDI files together, before anyone is given CPUs. Where they differ, the ledger is right.

    A CDI file without an entry is dra-driver-cpu's, or that of an entry whose file is torn: its claim goes on.
    Raises ``OSError`` if the CDI folder cannot be used; a single file that cannot be written is tried again when
    the kubelet asks for its claim.
    """
    cdi.open()
    for uid in list(cdi.uids()):
        with ledger.locks.of(uid):
            if uid not in ledger.snapshot.entries:
                _adopt(uid, ledger, cdi)
    cdi.keep_only(ledger.snapshot.entries)
    for uid in list(ledger.snapshot.entries):
        with ledger.locks.of(uid):
            _write(uid, ledger, cdi)


def repair(ledger: Ledger, cdi: CDI, named: Callable[[str], bool]) -> None:
    """Write again what somebody has removed or spoilt since, lest the next start know less than we do; and free
    the CPUs of claims that are none of ours once their CDI files are gone.

    ``named``: whether a container names the claim. What somebody works on just now is left to them. Raises
    ``OSError`` if the CDI folder cannot be read.
    """
    for uid in list(ledger.snapshot.entries):
        with suppress(BusyError), ledger.locks.of(uid, timeout=0):
            _write(uid, ledger, cdi)
    for uid in ledger.withheld():
        with suppress(BusyError), ledger.locks.of(uid, timeout=0):
            # Only now: until here, a Prepare of this claim could write its file.
            if uid not in cdi.uids() and not named(uid):
                log.info("claim %s is gone, and its CPUs are free", uid)
                ledger.give_back(uid)


def _write(uid: str, ledger: Ledger, cdi: CDI) -> None:
    entry = ledger.snapshot.entries.get(uid)
    if entry is None:
        return
    try:
        if not ledger.stands(uid):
            log.info("claim %s: its file in the ledger is not as it should be, and is written again", uid)
            ledger.write(uid)
        cdi.write(entry)
    except OSError as error:
        log.error("claim %s: its files cannot be written: %s", uid, error)


def _adopt(uid: str, ledger: Ledger, cdi: CDI) -> None:
    entry = cdi.adopt(uid)
    if entry is None:
        return
    cpus = format_cpuset(entry.cpuset)
    try:
        ledger.adopt(entry)
        ledger.write(uid)
        log.info("claim %s is taken over from its CDI file: CPUs %s", uid, cpus)
    except RefusedError as error:
        log.error("claim %s has CPUs %s by its CDI file, but %s; the others stay held", uid, cpus, error.message)
        ledger.withhold(uid, entry.cpuset)
    except OSError as error:
        log.error("claim %s, taken over from its CDI file, cannot be written: %s", uid, error)
