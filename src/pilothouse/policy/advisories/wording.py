"""Verdicts in words, a line each: for messages, the status, webhooks and the log."""

from pilothouse.model.posture import Action
from pilothouse.policy.advisories.findings import Finding, Unmet
from pilothouse.policy.advisories.verdicts import Verdict


def headline(verdict: Verdict) -> str:
    """What a deployment may do: `allowed without multimodal; vllm 0.29.0, cleared by 0.30.0`."""
    outcome = verdict.outcome.replace("-", " ")
    without = f" {', '.join(verdict.without)}" if verdict.without else ""
    version = f" {verdict.version}" if verdict.version else ""
    cleared = f", cleared by {verdict.upgrade_to}" if verdict.upgrade_to else ""
    return f"{outcome}{without}; {verdict.package.rpartition('/')[2]}{version}{cleared}"


def reasons(verdict: Verdict) -> tuple[str, ...]:
    """Why: what acts, the strongest first, and what is wrong with the feed."""
    found: list[Finding | Unmet] = [*verdict.findings, *verdict.unmet]
    lines = (_line(each) for action in (Action.DENY, Action.WARN) for each in found if each.action is action)
    return (*lines, *verdict.notes)


def denial(verdict: Verdict) -> str:
    """What denies a deployment as a whole, in several lines."""
    found: list[Finding | Unmet] = [*verdict.findings, *verdict.unmet]
    denying = (_line(each) for each in found if each.action is Action.DENY and not each.without)
    return "\n  ".join([f"{verdict.deployment} is {headline(verdict)}", *denying])


def _line(acting: Finding | Unmet) -> str:
    return _of_finding(acting) if isinstance(acting, Finding) else _of_requirement(acting)


def _of_finding(finding: Finding) -> str:
    fixed = f"fixed in {finding.fixed}" if finding.fixed else "no fixed version known"
    what = f"{finding.id} ({finding.severity}): {finding.summary}"
    return f"{_does(finding)} {what}; {finding.reason}; {fixed}; rule {finding.rule!r}"


def _of_requirement(unmet: Unmet) -> str:
    met = f"met from {unmet.at_least} on" if unmet.at_least else "met by no version"
    return f"{_does(unmet)} {unmet.rule}: {unmet.reason}; {met}"


def _does(acting: Finding | Unmet) -> str:
    if acting.action is Action.WARN:
        return "warns"
    return f"takes {', '.join(acting.without)}" if acting.without else "denies"
