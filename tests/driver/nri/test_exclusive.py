"""Whatever happens, in whatever order: nobody runs on the CPUs of a claim whose container runs.

The kubelet's CPU manager gives CPUs to containers as it likes, those of claims too, and may not be known to do so.

The registry against a model of a runtime and a kernel: updates are applied at once, or only noted, or lost;
answers to others' updates are applied some time after; the ledger changes at any time. Where masks cannot be read,
what the runtime has noted for a running container is what it has, and an update that changes no note is not lost.
"""

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from driver.ledger.foreign import Foreign
from driver.nri import dues, pins
from driver.nri.pins import RefusedContainerError
from driver.nri.plan import Plan
from driver.nri.registry import Registry
from driver.nri.sight import Sight
from driver.protos import nri_pb2 as nri
from models import format_cpuset, to_mask
from tests.driver.nri.book import Book

ONLINE = range(5)
NEXT = {"creating": "created", "created": "task", "task": "starting", "starting": "running"}


@dataclass
class Model:
    """A container in the model: ``note`` is the runtime's, ``kernel`` what its processes really have."""

    sight: Sight
    note: int
    stage: str = "creating"
    kernel: int | None = None
    answer: int | None = None


class Masks(RuleBasedStateMachine):
    @initialize(hidden=st.booleans())
    def begin(self, hidden):
        self.hidden = hidden
        self.book = Book(ONLINE, reserved=(0,))
        self.time = 0.0
        self.registry = Registry(lambda: self.book.snapshot, self.book.own, clock=lambda: self.time)
        self.containers = {}
        self.count, self.flight, self.given = 0, [], {}
        self.registry.synchronize([], {}, {}, afresh=True)

    def read(self, container_id):
        model = self.containers.get(container_id)
        return None if self.hidden or model is None else model.kernel

    def pick(self, draw, *stages):
        return draw(st.sampled_from([each for each in self.containers.values() if each.stage in stages]))

    def have(self, *stages):
        return any(each.stage in stages for each in self.containers.values())

    def apply(self, updates, draw):
        for update in updates:
            model = self.containers.get(update.container)
            if model is None or model.stage == "creating":
                continue
            fate = draw(st.sampled_from(["applied", "applied", "lost", "noted"]))
            if self.hidden and model.stage == "running":
                fate = "applied" if fate == "noted" or model.note == update.pin.cpus else fate
            if fate == "lost":
                continue
            model.note = update.pin.cpus
            if model.stage == "running" and fate == "applied":
                model.kernel = update.pin.cpus

    @rule(cpus=st.sets(st.sampled_from(ONLINE[1:]), min_size=1, max_size=2), passes=st.floats(0, 1))
    def hold(self, cpus, passes):
        self.time += passes
        free = self.book.snapshot.free
        if cpus <= free and len(free) > len(cpus):
            self.count += 1
            self.book.hold(f"claim-{self.count}", cpus, pods=("pod-0", "pod-1"))

    @precondition(lambda self: self.book.snapshot.entries)
    @rule(data=st.data(), carried=st.sampled_from([False, False, True]))
    def forget(self, data, carried):
        uid = data.draw(st.sampled_from(sorted(self.book.snapshot.entries)))
        if carried or not any(uid in each.claims for each in self.registry.known()):
            self.book.forget(uid)

    @precondition(lambda self: self.containers)
    @rule(data=st.data(), cpus=st.sets(st.sampled_from(ONLINE), max_size=3), known=st.booleans())
    def give(self, data, cpus, known):
        """The kubelet's CPU manager gives CPUs to a container, or takes them back."""
        each = self.pick(data.draw, "creating", "created", "task", "starting", "running").sight
        self.given = {**self.given, f"{each.pod_uid}/{each.name}": frozenset(cpus)}
        given = {name: cpus for name, cpus in self.given.items() if cpus}
        self.book.snapshot = replace(self.book.snapshot, foreign=Foreign(given, known))

    @rule(data=st.data())
    def create_shared(self, data):
        self.create(data, "pod-x", "shared", ())

    @rule(data=st.data(), pod=st.integers(0, 1))
    def create_with_claims(self, data, pod):
        uids = sorted(self.book.snapshot.entries)
        carried = {uid for each in self.registry.known() for uid in each.claims}
        free = [uid for uid in uids if uid not in carried] if pod else uids
        uids = data.draw(st.permutations(free))[: data.draw(st.sampled_from([1, 1, 1, 2]))]
        self.create(data, f"pod-{pod}", f"main-{'-'.join(uids)}", uids)

    @rule(data=st.data(), pod=st.integers(0, 1))
    def run_with_claims(self, data, pod):
        """The usual course: masks are brought in line, then the claim's container runs."""
        if not self.flight and not any(each.answer for each in self.containers.values()):
            self.synchronize(data, afresh=False, passes=1.0)
            self.reconcile(data, passes=0.0)
        self.create_with_claims(data, pod)
        last = max(self.containers, default=None, key=lambda name: int(name[1:]))
        for _ in NEXT:
            if last in self.containers and self.containers[last].stage in NEXT:
                self.advance_one(self.containers[last], data.draw)

    def create(self, data, pod, name, uids):
        self.count += 1
        held = [(f"DRA_CPUSET_{uid}", format_cpuset(self.book.snapshot.entries[uid].cpuset)) for uid in uids]
        sight = Sight(f"c{self.count}", pod, name, sandbox=f"s-{pod}", variables=tuple(held))
        masks = {name: self.read(name) for name in self.registry.doubtful(sight)}
        try:
            pin, updates = self.registry.create(sight, masks)
        except RefusedContainerError:
            return
        self.containers[sight.id] = Model(sight, pin.cpus)
        self.apply(updates, data.draw)

    @precondition(lambda self: self.have(*NEXT))
    @rule(data=st.data(), steps=st.integers(1, 4))
    def advance(self, data, steps):
        model = self.pick(data.draw, *NEXT)
        for _ in range(steps):
            if model.stage in NEXT:
                self.advance_one(model, data.draw)

    def advance_one(self, model, draw):
        getattr(self, f"to_{NEXT[model.stage]}")(model, draw)

    @precondition(lambda self: self.have(*NEXT))
    @rule(data=st.data(), steps=st.integers(1, 4))
    def advance_more(self, data, steps):
        """The same again, to be picked more often."""
        self.advance(data, steps)

    def to_created(self, model, draw):
        model.stage = "created"
        self.registry.created(self.seen(model))

    def to_task(self, model, draw):
        model.stage, model.kernel = "task", model.note

    def to_starting(self, model, draw):
        sight = self.seen(model)
        masks = {name: self.read(name) for name in self.registry.in_the_way(sight)}
        try:
            self.registry.start(sight, masks | {sight.id: self.read(sight.id)})
            model.stage = "starting"
        except RefusedContainerError:
            model.stage = "refused"
            self.apply(self.registry.stop(sight.id), draw)
            del self.containers[sight.id]

    def to_running(self, model, draw):
        model.stage = "running"
        self.registry.started(self.seen(model))

    @precondition(lambda self: self.have("running"))
    @rule(data=st.data(), asked=st.none() | st.frozensets(st.sampled_from(ONLINE), min_size=1, max_size=3))
    def update(self, data, asked):
        model = self.pick(data.draw, "running")
        if model.answer is None:
            asked_for = None if asked is None else to_mask(asked)
            model.answer = self.registry.update(self.seen(model), asked_for).cpus or asked_for

    @precondition(lambda self: any(each.answer for each in self.containers.values()))
    @rule(data=st.data(), fails=st.booleans())
    def updated(self, data, fails):
        model = data.draw(st.sampled_from([each for each in self.containers.values() if each.answer]))
        if fails:
            self.time += 1.0
        else:
            model.note = model.kernel = model.answer
            self.registry.updated(model.sight.id)
        model.answer = None

    @precondition(lambda self: self.containers)
    @rule(data=st.data())
    def stop(self, data):
        model = self.pick(data.draw, "creating", "created", "task", "starting", "running")
        del self.containers[model.sight.id]
        self.apply(self.registry.stop(model.sight.id), data.draw)

    @precondition(lambda self: not self.flight and not any(each.answer for each in self.containers.values()))
    @rule(data=st.data(), afresh=st.booleans(), passes=st.floats(0, 1))
    def synchronize(self, data, afresh, passes):
        self.time += passes
        listed = [self.seen(each) for each in self.containers.values() if each.stage != "creating"]
        masks = {name: self.read(name) for name in self.containers}
        pods = {f"s-pod-{pod}": f"pod-{pod}" for pod in range(2)}
        self.apply(self.registry.synchronize(listed, pods, masks, afresh=afresh), data.draw)

    @rule(data=st.data(), passes=st.floats(0, 1))
    def reconcile(self, data, passes):
        self.time += passes
        before = self.registry.unsettled()
        self.registry.looked([(each, self.read(each.id)) for each in before])
        if not self.flight:
            self.flight = self.registry.tell_due()

    @precondition(lambda self: self.flight)
    @rule(data=st.data())
    def arrive(self, data):
        """What was told out of the blue; the runtime knows which it did not do."""
        fates = data.draw(st.lists(st.booleans(), min_size=len(self.flight), max_size=len(self.flight)))
        done = [update for update, fate in zip(self.flight, fates, strict=True) if fate]
        for update in done:
            if (model := self.containers.get(update.container)) and model.stage != "creating":
                model.note = update.pin.cpus
                model.kernel = update.pin.cpus if model.stage == "running" else model.kernel
        failed = {update.container for update in self.flight} - {update.container for update in done}
        self.registry.applied(self.flight, failed)
        self.flight = []

    def seen(self, model):
        state = nri.CONTAINER_RUNNING if model.stage == "running" else nri.CONTAINER_CREATED
        return Sight(**{**vars(model.sight), "cpus": model.note, "state": state})

    @invariant()
    def nobody_runs_on_a_running_claims_cpus(self):
        started = [each for each in self.registry.known() if each.started]
        for carrier in started:
            for held in pins.held_by(carrier, Plan(self.book.snapshot)):
                for other in started:
                    if other.sight.replaces(carrier.sight):
                        continue
                    real = self.containers[other.id]
                    assert not real.kernel & held.cpus
                    assert not other.reach & held.cpus

    @invariant()
    def nobody_is_overlooked(self):
        """What the registry finds by its indices is what it would find by looking at every container."""
        plan, kept = Plan(self.book.snapshot), self.registry._containers
        assert {each.id for each in kept.loose(plan)} == {each.id for each in kept if dues.is_loose(each, plan)}
        for each in kept:
            found = {way.id for way in self.registry._ways(each, plan)}
            assert found == {way.id for way in pins.in_the_way(each, kept, plan)}
            for uid in each.claims:
                assert each in kept.carriers(uid)
        named = {uid for each in kept for uid in each.sight.named}
        assert {uid for uid in plan.claims if self.registry.names(uid)} == named & plan.claims.keys()

    @invariant()
    def what_counts_as_settled_is_so(self):
        plan, unsettled = Plan(self.book.snapshot), {each.id for each in self.registry.unsettled()}
        for each in self.registry.known():
            wanted = pins.desired(each, plan).cpus
            if wanted and each.started and each.id not in unsettled:
                assert self.containers[each.id].kernel == wanted

    def teardown(self):
        """However it went: with updates that arrive, all is in line after a few rounds."""
        if not hasattr(self, "registry"):
            return
        for model in self.containers.values():
            if model.stage in ("task", "starting"):
                model.stage = "running"
                self.registry.started(self.seen(model))
            self.registry.updated(model.sight.id)
        for _ in range(3):
            self.time += 1
            listed = [self.seen(each) for each in self.containers.values() if each.stage != "creating"]
            masks = {name: self.read(name) for name in self.containers}
            for update in self.registry.synchronize(listed, {}, masks, afresh=False):
                model = self.containers[update.container]
                model.note = update.pin.cpus
                model.kernel = update.pin.cpus if model.stage == "running" else model.kernel
            self.registry.looked([(each, self.read(each.id)) for each in self.registry.known()])
        assert self.registry.unsettled() == []


TestMasks = Masks.TestCase
TestMasks.settings = settings(max_examples=200, stateful_step_count=50, suppress_health_check=list(HealthCheck))
