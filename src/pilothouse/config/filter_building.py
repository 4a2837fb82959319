"""From `filters:` in the checked file to the filters themselves: files read, expressions tried, names resolved."""

from collections.abc import Mapping
from pathlib import Path

from pilothouse.config.filter_schema import FilterSection, PhrasesSection
from pilothouse.config.problems import Problem, SpecPath, nearest_name
from pilothouse.config.secret_references import SecretMissingError, resolve_secret
from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec, Severity
from pilothouse.policy.redaction.engine import Engine, ExtraMissingError, best_engine
from pilothouse.policy.redaction.expressions import Expression
from pilothouse.policy.redaction.identity import NATIONAL
from pilothouse.policy.redaction.phrases import PhraseLists
from pilothouse.policy.redaction.plan import BUILT_IN, GROUPS

MAX_PHRASE_FILE_BYTES = 64 * 1024 * 1024
"""64 MiB, far above 100,000 phrases."""


class BuiltFilters:
    """The filters; `problems` of the file, and secrets that are `missing`."""

    def __init__(self, sections: Mapping[str, FilterSection], directory: Path, env: Mapping[str, str]) -> None:
        self._directory = directory
        self._env = env
        self._engine: Engine | None = None
        self.problems: list[Problem] = []
        self.missing: list[Problem] = []
        if sections:
            try:
                self._engine = best_engine()
            except ExtraMissingError as error:
                self.problems.append(Problem(path=("filters",), message=str(error)))
        self.specs = tuple(self._filter(name, section) for name, section in sections.items())

    def _filter(self, name: str, section: FilterSection) -> FilterSpec:
        path: SpecPath = ("filters", name)
        self._check_names(path, section)
        patterns = [
            self._pattern((*path, "patterns", entity), PatternSpec(name=entity, **each.model_dump()))
            for entity, each in section.patterns.items()
        ]
        phrases = [
            PhrasesSpec(name=entity, phrases=self._phrases((*path, "phrases", entity), each))
            for entity, each in section.phrases.items()
        ]
        for entity, safety in section.safety.items():
            where = (*path, "safety", entity)
            severity = Severity(safety.severity)
            patterns += [
                self._pattern(
                    (*where, "patterns", index), PatternSpec(name=entity, severity=severity, **each.model_dump())
                )
                for index, each in enumerate(safety.patterns)
            ]
            if safety.phrases is not None:
                found = self._phrases((*where, "phrases"), safety.phrases)
                phrases.append(PhrasesSpec(name=entity, severity=severity, phrases=found))
        return FilterSpec(
            name=name,
            models=None if section.models is None else tuple(section.models),
            tenants=None if section.tenants is None else tuple(section.tenants),
            input={entity: Action(action) for entity, action in section.input.items()},
            output={entity: Action(action) for entity, action in section.output.items()},
            phone_regions=tuple(section.phone_regions),
            id_countries=tuple(section.id_countries),
            patterns=tuple(patterns),
            phrases=tuple(phrases),
            fail_open=section.on_error == "open",
            stall_s=section.stall_s,
            hash_key=self._hash_key((*path, "hash_key"), section.hash_key),
        )

    def _check_names(self, path: SpecPath, section: FilterSection) -> None:
        own = (*section.patterns, *section.phrases, *section.safety)
        known = (*BUILT_IN, *GROUPS, *own)
        for direction, actions in (("input", section.input), ("output", section.output)):
            for entity, action in actions.items():
                if entity not in known:
                    self._problem((*path, direction, entity), "unknown entity", nearest_name(entity, known))
                if action == "hash" and section.hash_key is None:
                    self._problem((*path, direction, entity), "hash needs a key: set hash_key")
        for index, country in enumerate(section.id_countries):
            if country not in NATIONAL:
                message = f"no identity number is known; there are {', '.join(sorted(NATIONAL))}"
                self._problem((*path, "id_countries", index), message)
        for kind in ("patterns", "phrases", "safety"):
            for entity in getattr(section, kind):
                if entity in BUILT_IN or entity in GROUPS:
                    self._problem((*path, kind, entity), "is the name of a built-in entity: choose another")

    def _problem(self, path: SpecPath, message: str, suggestion: str | None = None, origin: str | None = None) -> None:
        self.problems.append(Problem(path=path, message=message, suggestion=suggestion, origin=origin))

    def _pattern(self, path: SpecPath, spec: PatternSpec) -> PatternSpec:
        try:
            expression = Expression(spec.pattern)
            if self._engine is not None:
                self._engine.spans([(expression.full, spec.ignore_case)])
                self._engine.open_at_end([(expression.beginning, spec.ignore_case)])
        except ValueError as error:
            self._problem(path, f"the pattern is refused: {error}")
        return spec

    def _phrases(self, path: SpecPath, section: PhrasesSection) -> tuple[str, ...]:
        for index, phrase in enumerate(section.entries):
            self._check_phrase((*path, "entries", index), phrase)
        if section.file is None:
            if not section.entries:
                self._problem(path, "has no phrases: name a file, or give entries")
            return tuple(section.entries)
        file = self._directory / section.file
        try:
            with file.open("rb") as opened:
                content = opened.read(MAX_PHRASE_FILE_BYTES + 1)
            if len(content) > MAX_PHRASE_FILE_BYTES:
                raise ValueError(f"{file} is larger than {MAX_PHRASE_FILE_BYTES} bytes")
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            self._problem((*path, "file"), f"{file} is not UTF-8")
            return ()
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            self._problem((*path, "file"), f"{file} cannot be read: {said}")
            return ()
        found = []
        for number, line in enumerate(lines, start=1):
            phrase = line.strip()
            if phrase and not phrase.startswith("#"):
                self._check_phrase(path, phrase, origin=f"{file}:{number}")
                found.append(phrase)
        return (*section.entries, *found)

    def _check_phrase(self, path: SpecPath, phrase: str, origin: str | None = None) -> None:
        try:
            PhraseLists([[phrase]])
        except ValueError as error:
            self._problem(path, str(error), origin=origin)

    def _hash_key(self, path: SpecPath, reference: str | None) -> str | None:
        if reference is None:
            return None
        try:
            return resolve_secret(reference, self._directory, self._env)
        except SecretMissingError as error:
            self.missing.append(Problem(path=path, message=str(error)))
            return None
