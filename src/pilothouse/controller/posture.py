"""What advisories allow the fleet to do now: looked at again whenever they, the fleet file or the day change."""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from pilothouse.engines.subjects import exposure_of, subject
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import DeploymentName
from pilothouse.model.posture import Outcome
from pilothouse.model.spec import DeploymentSpec, FleetSpec
from pilothouse.model.status import PostureStatus
from pilothouse.policy.advisories.verdicts import Verdict
from pilothouse.policy.advisories.wording import denial, headline, reasons
from pilothouse.store.advisories.knowledge import Fingerprint, Gatherer, Knowledge, fingerprint
from pilothouse.store.advisories.webhook import PostureWorsened, tell

LOOK_EVERY_S = 0.5
"""How often files are looked at for changes; less often where that takes long: it may take a twentieth of the time."""
_LOOK_SHARE = 20
_SLOWEST_LOOK_S = 30.0

_logger = logging.getLogger(__name__)


class Standing(msgspec.Struct, frozen=True):
    """What a deployment could do when it was last judged."""

    outcome: Outcome
    without: frozenset[str]

    def is_better_than(self, verdict: Verdict) -> bool:
        """Whether the verdict takes something away."""
        return verdict.outcome.rank > self.outcome.rank or not self.without.issuperset(verdict.without)


class PostureWatch:
    """The verdicts on the fleet's deployments. `on_change` is called when they may have become others."""

    def __init__(self, spec: FleetSpec, directory: Path, on_change: Callable[[], None]) -> None:
        self._spec = spec
        self._directory = directory
        self._on_change = on_change
        self._gatherer = Gatherer(directory)
        self._knowledge: Knowledge | None = None
        self._seen: tuple[dt.date, Fingerprint] | None = None
        self._standing: dict[DeploymentName, Standing] = {}
        self._verdicts: dict[str, Verdict | None] = {}
        self._gathering = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    # Answers

    def verdict(self, deployment: DeploymentSpec) -> Verdict | None:
        """The verdict on one; `None` if no advisory can apply to its engine."""
        digest = deployment.digest()
        if digest not in self._verdicts:
            assert self._knowledge is not None, "start() comes first"
            self._verdicts.update(self._judge(self._spec, self._knowledge, [deployment]))
        return self._verdicts[digest]

    def denies(self, deployment: DeploymentSpec) -> bool:
        """Whether it may not serve at all."""
        found = self.verdict(deployment)
        return found is not None and found.outcome is Outcome.DENIED

    def statuses(self) -> tuple[PostureStatus, ...]:
        """What an operator sees, for the deployments of the fleet file that advisories can apply to.

        Nothing before `start()`: the admin API answers from the first moment.
        """
        found = map(self.verdict, _deployments(self._spec)) if self._knowledge is not None else ()
        return tuple(
            PostureStatus(
                deployment=DeploymentName(each.deployment),
                outcome=each.outcome,
                headline=headline(each),
                without=each.without,
                reasons=reasons(each),
                upgrade_to=each.upgrade_to,
                feed_age_days=each.feed_age_days,
            )
            for each in found
            if each is not None
        )

    # Changes

    async def start(self, before: FleetSnapshot | None) -> None:
        """Judge the fleet and watch from now on. What has become worse since `before` was published is told."""
        self._standing = _standings(before)
        await self._look()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def adopt(self, spec: FleetSpec) -> None:
        """Judge by another fleet file from now on.

        Raises:
            PilothouseError: posture_denied, if a deployment is denied that was not in the fleet file before, or was
                another one; then nothing was changed. One that runs already is quarantined instead.
        """
        knowledge = await self._gather(spec)
        verdicts = self._judge(spec, knowledge, _deployments(spec))
        present = {each.digest() for each in _deployments(self._spec)}
        require_allowed(each for digest, each in verdicts.items() if digest not in present)
        self._spec, self._knowledge = spec, knowledge
        self._note(verdicts)

    async def close(self) -> None:
        """Watch no more."""
        tasks = [*self._telling, *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(min(_SLOWEST_LOOK_S, max(LOOK_EVERY_S, took * _LOOK_SHARE)))
            began = time.monotonic()
            try:
                changed = await self._look()
            except Exception as error:  # a defect here must not end the watch of a fleet that serves
                _logger.error("posture could not be judged", exc_info=error)
                continue
            took = time.monotonic() - began
            if changed:
                self._on_change()

    async def _look(self) -> bool:
        """Judge again if something has changed; whether it has."""
        spec = self._spec
        seen = _today(), await asyncio.to_thread(fingerprint, self._directory, spec.posture)
        if seen == self._seen:
            return False
        knowledge = await self._gather(spec)
        if spec is not self._spec:  # another fleet file was adopted meanwhile
            return False
        self._seen, self._knowledge = seen, knowledge
        self._note(self._judge(spec, knowledge, _deployments(spec)))
        return True

    async def _gather(self, spec: FleetSpec) -> Knowledge:
        async with self._gathering:
            knowledge = await asyncio.to_thread(self._gatherer.gather, spec.posture)
        if knowledge.feed.unread:
            _logger.error("advisories cannot all be read", extra={"reasons": knowledge.feed.unread[:5]})
        return knowledge

    @staticmethod
    def _judge(
        spec: FleetSpec, knowledge: Knowledge, deployments: Iterable[DeploymentSpec]
    ) -> dict[str, Verdict | None]:
        """The verdicts by the digests of deployments."""
        exposure = exposure_of(spec)
        subjects = {each.digest(): subject(each, exposure) for each in deployments}
        judged = [each for each in subjects.values() if each is not None]
        verdicts = iter(knowledge.verdicts(judged, _today()))
        return {digest: None if each is None else next(verdicts) for digest, each in subjects.items()}

    def _note(self, verdicts: dict[str, Verdict | None]) -> None:
        """Keep the verdicts, and tell what has become worse."""
        self._verdicts = verdicts
        for each in verdicts.values():
            if each is None:
                continue
            name = DeploymentName(each.deployment)
            before = self._standing.get(name)
            self._standing[name] = Standing(each.outcome, frozenset(each.without))
            if before is not None and before.is_better_than(each):
                self._tell(each)

    def _tell(self, verdict: Verdict) -> None:
        why = reasons(verdict)
        _logger.warning(
            "posture worsened",
            extra={"deployment": verdict.deployment, "posture": headline(verdict), "reasons": why[:5]},
        )
        posture = self._spec.posture
        if posture.webhook is None:
            return
        message = PostureWorsened(
            fleet=self._spec.name,
            deployment=verdict.deployment,
            outcome=verdict.outcome,
            without=verdict.without,
            headline=headline(verdict),
            reasons=why,
            upgrade_to=verdict.upgrade_to,
            at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        )
        telling = tell(posture.webhook, message, allow_private=posture.allow_private_webhook)
        task = asyncio.get_running_loop().create_task(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


def require_allowed(verdicts: Iterable[Verdict | None]) -> None:
    """See that none is denied.

    Raises:
        PilothouseError: posture_denied, with what denies each and what clears it.
    """
    denied = [each for each in verdicts if each is not None and each.outcome is Outcome.DENIED]
    if denied:
        raise PilothouseError("posture_denied", "\n".join(denial(each) for each in denied))


def _standings(before: FleetSnapshot | None) -> dict[DeploymentName, Standing]:
    """What deployments could do by a snapshot: as little as could be told from what was taken from them."""
    found = {}
    for model in () if before is None else before.models:
        for each in model.deployments:
            outcome = Outcome.ALLOWED_WITHOUT if each.without else Outcome.WARNED
            found[each.name] = Standing(Outcome.DENIED if each.quarantined else outcome, frozenset(each.without))
    return found


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _deployments(spec: FleetSpec) -> list[DeploymentSpec]:
    return [deployment for model in spec.models for deployment in model.deployments]
