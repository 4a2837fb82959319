"""`pilothouse advisories ...`: what is known of the engines that a fleet runs, and what it may do."""

import asyncio
import datetime as dt
import os
import pwd
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, data_console, json_text, printable, say
from pilothouse.model.errors import PilothouseError
from pilothouse.model.posture import Exposure, Outcome, Waiver

if TYPE_CHECKING:
    from pilothouse.config.fleet_file import LoadedFleet
    from pilothouse.policy.advisories.grouping import Advisory
    from pilothouse.policy.advisories.records import Snapshot
    from pilothouse.policy.advisories.verdicts import Subject, Verdict
    from pilothouse.store.advisories.local import AdvisoryStore

_Many = Parameter(consume_multiple=True)
_COLOURS = {Outcome.DENIED: "red", Outcome.ALLOWED: "green"}


def sync(
    *,
    osv: str | None = None,
    directory: Path | None = None,
    allow_private: bool = False,
    file: Path | None = None,
) -> int:
    """Fetch what the sources know now of the engines that fleets run.

    $ pilothouse advisories sync
    $ pilothouse advisories sync --osv https://api.osv.dev
    $ pilothouse advisories sync --directory /srv/mirror/advisories

    The source is posture.sources.osv of the fleet file, unless others are named here. What was synced before is
    replaced; where a source fails, it stays. A fleet that runs takes it up within a second. The directory that the
    fleet file names is not copied: it is read whenever it has changed.

    Args:
        osv: The base URL of an OSV API.
        directory: A directory to copy from, of advisories in JSON (OSV, GitHub's, CVE's or CSAF records) and archives.
        allow_private: The OSV API may be at a private address: a mirror of yours.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    from pilothouse.store.advisories.shipped import package_names
    from pilothouse.store.advisories.syncing import Sources
    from pilothouse.store.advisories.syncing import sync as fetch

    loaded, store = _fleet(file)
    posture = loaded.spec.posture
    if osv is None and directory is None:
        osv, allow_private = posture.osv_url, posture.allow_private_feed or allow_private
        if osv is None and posture.feed_directory is not None:
            say(f"nothing to sync: {posture.feed_directory} is read whenever it has changed")
            return Exit.OK
    if osv is None and directory is None:
        raise CommandError(
            "there is no source to sync from",
            hint="name one: --osv https://api.osv.dev, --directory DIR, or posture.sources in the fleet file",
        )
    old = store.synced()
    sources = Sources(osv_url=osv, directory=directory, allow_private=allow_private)
    new = asyncio.run(fetch(sources, old, package_names(), _today()))
    store.keep(new)
    added, changed = _compared(old, new)
    say(f"fleet {loaded.spec.name}: {len(new.records)} records, dated {new.date}: {added} new, {changed} changed")
    for line in new.unread:
        say(f"not read: {printable(line)}")
    return Exit.OK


def list_(*, package: str | None = None, json: bool = False, file: Path | None = None) -> int:
    """List the advisories that are known.

    $ pilothouse advisories list
    $ pilothouse advisories list --package vllm --json

    Args:
        package: Only those about an engine or package, by any of its names.
        json: The records as they are kept, as JSON.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    from rich.table import Table

    from pilothouse.cli.fleet_loading import knowledge_of
    from pilothouse.store.advisories.shipped import package_names

    knowledge = knowledge_of(_fleet(file)[0], os.environ)
    wanted = None if package is None else package_names().named(package).key
    found = [each for each in knowledge.index.advisories if wanted is None or wanted in _packages(each)]
    found.sort(key=lambda each: (-each.severity.rank, each.id))
    if json:
        print(json_text(found))
        return Exit.OK
    table = Table("advisory", "severity", "package", "needs", "summary", box=None, pad_edge=False, header_style="bold")
    for each in found:
        names = ", ".join(sorted(key.rpartition("/")[2] for key in _packages(each)))
        table.add_row(each.id, each.severity, names, str(each.when or ""), printable(each.summary))
    data_console().print(table)
    age = knowledge.feed.age_days(_today())
    say(f"{len(found)} advisories; the newest feed is of {knowledge.feed.date}, {age} days old")
    return Exit.OK


def check(
    subject: str | None = None,
    /,
    *,
    features: Annotated[tuple[str, ...] | None, _Many] = None,
    exposure: Exposure = Exposure.PUBLIC,
    json: bool = False,
    file: Path | None = None,
) -> int:
    """Say what advisories allow: a version of an engine, or the deployments of the fleet file.

    $ pilothouse advisories check
    $ pilothouse advisories check vllm==0.14.0 --features multimodal
    $ pilothouse advisories check llama.cpp==b11434 --json

    It fails if something is denied.

    Args:
        subject: ENGINE==VERSION, or an engine alone where the version is not known.
        features: What is on in its launch, and nothing else is; left out, nothing is known of it.
        exposure: Who can send requests to it: local, internal or public.
        json: The verdicts in full, as JSON.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    from pilothouse.cli.fleet_loading import knowledge_of, require_allowed, verdicts_on
    from pilothouse.policy.advisories.wording import denial

    loaded, _ = _fleet(file)
    if subject is None:
        verdicts = verdicts_on(loaded, os.environ)
        _show(verdicts, json=json)
        require_allowed(loaded, verdicts)
        return Exit.OK
    verdicts = knowledge_of(loaded, os.environ).verdicts([_subject(subject, features, exposure)], _today())
    _show(verdicts, json=json)
    if verdicts[0].outcome is Outcome.DENIED:
        raise PilothouseError("posture_denied", denial(verdicts[0]))
    return Exit.OK


def features(*, json: bool = False) -> int:
    """List the features that advisories may need to bite, and that rules may name.

    $ pilothouse advisories features

    Args:
        json: As JSON.
    """
    from rich.table import Table

    from pilothouse.store.advisories.shipped import feature_table

    found = list(feature_table())
    if json:
        print(json_text(found))
        return Exit.OK
    table = Table("feature", "what it is", "can be withheld", box=None, pad_edge=False, header_style="bold")
    for each in found:
        table.add_row(each.name, each.title, "yes" if each.withholdable else "")
    data_console().print(table)
    return Exit.OK


def waive(
    covers: str,
    /,
    *,
    owner: str,
    reason: str,
    expires: str,
    deployment: Annotated[tuple[str, ...], _Many] = (),
    file: Path | None = None,
) -> int:
    """Record an exception: an advisory or a requirement does nothing until a day.

    $ pilothouse advisories waive CVE-2026-48746 --owner ana --reason "behind a proxy of ours" --expires 2026-12-31

    A fleet that runs takes it up within a second. One in the fleet file, posture.waivers, does the same.

    Args:
        covers: The advisory, by any of its ids, or the name of a requirement.
        owner: Who answers for it.
        reason: Why it is acceptable.
        expires: Its last day, in UTC: YYYY-MM-DD, at most a year from now.
        deployment: A deployment it is for; several may be named. All if none is.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    from pilothouse.cli.fleet_loading import knowledge_of
    from pilothouse.store.advisories.local import GivenWaiver

    loaded, store = _fleet(file)
    _require_day(expires)
    _require_text(owner=owner, reason=reason)
    knowledge = knowledge_of(loaded, os.environ)
    requirements = [each.name for each in knowledge.policy.requirements]
    _require_known(covers, [*(name for each in knowledge.index.advisories for name in each.ids), *requirements],
                   "advisory or requirement")  # fmt: skip
    known = [each.name for model in loaded.spec.models for each in model.deployments]
    for name in deployment:
        _require_known(name, known, "deployment")
    waiver = Waiver(covers=covers, owner=owner, reason=reason, expires=expires, deployments=deployment)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    given = GivenWaiver(waiver=waiver, given_by=_user(), given_at=now)
    store.keep_waivers((*(each for each in store.waivers() if not _same(each.waiver, waiver)), given))
    whom = ", ".join(deployment) or "every deployment"
    say(f"fleet {loaded.spec.name}: {covers} is waived for {whom} until the end of {expires}")
    return Exit.OK


def waivers(*, json: bool = False, file: Path | None = None) -> int:
    """List the exceptions, those of the fleet file and those given by command, expired ones too.

    $ pilothouse advisories waivers

    Args:
        json: As JSON.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    from rich.table import Table

    loaded, store = _fleet(file)
    given = store.waivers()
    if json:
        print(json_text({"file": loaded.spec.posture.waivers, "given": given}))
        return Exit.OK
    table = Table("covers", "deployments", "owner", "until", "reason", "given", box=None, pad_edge=False,
                  header_style="bold")  # fmt: skip
    rows = [(each, "fleet file") for each in loaded.spec.posture.waivers]
    rows += [(each.waiver, f"{each.given_by} {each.given_at}") for each in given]
    for waiver, by in rows:
        until = waiver.expires if waiver.expires >= _today().isoformat() else f"{waiver.expires} (expired)"
        table.add_row(waiver.covers, ", ".join(waiver.deployments) or "all", waiver.owner, until, waiver.reason, by)
    data_console().print(table)
    return Exit.OK


def unwaive(covers: str, /, *, file: Path | None = None) -> int:
    """Take back the exceptions that were given by command for an advisory or a requirement.

    $ pilothouse advisories unwaive CVE-2026-48746

    Args:
        covers: What the exceptions are for, as they name it.
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
    """
    loaded, store = _fleet(file)
    given = store.waivers()
    kept = tuple(each for each in given if each.waiver.covers != covers)
    if len(kept) == len(given):
        raise CommandError(
            f"no waiver for {covers} was given by command",
            hint="`pilothouse advisories waivers` lists them; one in the fleet file is taken out there",
        )
    store.keep_waivers(kept)
    say(f"fleet {loaded.spec.name}: {len(given) - len(kept)} taken back")
    return Exit.OK


ADVISORY_COMMANDS: dict[str, Callable[..., int]] = {
    "sync": sync,
    "list": list_,
    "check": check,
    "features": features,
    "waive": waive,
    "waivers": waivers,
    "unwaive": unwaive,
}
"""The commands, by verb."""


def _user() -> str:
    """Who runs this; a user id where the host knows no name for it, as in containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _fleet(file: Path | None) -> "tuple[LoadedFleet, AdvisoryStore]":
    from pilothouse.cli.fleet_loading import load_checked
    from pilothouse.config.paths import fleet_paths
    from pilothouse.store.advisories.local import AdvisoryStore

    loaded = load_checked(file, {}, os.environ)
    return loaded, AdvisoryStore(fleet_paths(loaded.spec.name, os.environ).advisories_dir)


def _compared(old: "Snapshot | None", new: "Snapshot") -> tuple[int, int]:
    """How many records are new, and how many have changed."""
    before = {(each.source, each.id): each.modified for each in (old.records if old else ())}
    known = [before.get((each.source, each.id)) for each in new.records]
    changed = sum(was is not None and was != each.modified for was, each in zip(known, new.records, strict=True))
    return known.count(None), changed


def _packages(advisory: "Advisory") -> set[str]:
    from pilothouse.store.advisories.shipped import package_names

    found = (package_names().recorded(each.package) for record in advisory.records for each in record.affected)
    return {each.key for each in found if each is not None}


def _subject(text: str, features: Sequence[str] | None, exposure: Exposure) -> "Subject":
    from pilothouse.policy.advisories.verdicts import Subject
    from pilothouse.store.advisories.shipped import feature_table

    name, _, version = text.partition("==")
    if not name or "=" in name or any(sign in text for sign in "<>~!, "):
        raise CommandError(f"{text!r} is not ENGINE==VERSION", hint="for example vllm==0.14.0")
    named = [part for each in features or () for part in each.split(",") if part]
    for each in named:
        _require_known(each, [known.name for known in feature_table()], "feature")
    return Subject(
        name=text,
        package=name,
        version=version or None,
        features={} if features is None else feature_table().only(named),
        exposure=exposure,
    )


def _show(verdicts: "Sequence[Verdict]", *, json: bool) -> None:
    from rich.text import Text

    from pilothouse.policy.advisories.wording import headline, reasons

    if json:
        print(json_text(verdicts))
        return
    console = data_console()
    for each in verdicts:
        style = _COLOURS.get(each.outcome, "yellow")
        console.print(Text.assemble(f"{each.deployment}: ", (printable(headline(each)), style)))
        for line in reasons(each):
            console.print(Text(f"  {printable(line)}"))
        if quiet := len(each.findings) - len(each.acting):
            console.print(Text(f"  {quiet} more do nothing here: what they need is off, or they are waived (--json)"))
    if not verdicts:
        say("advisories apply to none of the fleet's engines")


def _require_day(text: str) -> None:
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--expires {text}: not a day", hint="write it as 2026-12-31") from None
    if not _today() <= day <= _today() + dt.timedelta(days=366):
        raise CommandError(f"--expires {text}: must be from today to a year from now")


def _require_text(**texts: str) -> None:
    for name, text in texts.items():
        if not text.strip() or not text.isprintable() or len(text) > 256:
            raise CommandError(f"--{name}: must have 1 to 256 printable characters")


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    from pilothouse.config.problems import nearest_name

    names = list(known)
    if name not in names:
        meant = nearest_name(name, names)
        raise CommandError(f"there is no {what} {name!r}", hint=f"did you mean {meant}?" if meant else None)


def _same(one: Waiver, other: Waiver) -> bool:
    return (one.covers, one.deployments) == (other.covers, other.deployments)
