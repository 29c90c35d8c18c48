"""What a start makes of what the last one left: claims get their CDI files again, unknown ones are taken over."""

import logging

from driver.cdi import CDI
from driver.errors import RefusedError
from driver.ledger.book import Ledger
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
    for uid in list(ledger.snapshot.entries):
        with ledger.locks.of(uid):
            _write(uid, ledger, cdi)


def _write(uid: str, ledger: Ledger, cdi: CDI) -> None:
    try:
        if entry := ledger.snapshot.entries.get(uid):
            cdi.write(entry)
    except OSError as error:
        log.error("claim %s: its CDI file cannot be written: %s", uid, error)


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
