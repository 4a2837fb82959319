"""A section of a fleet file that may also be written as one text."""

from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pilothouse.config.section import Section


class WithShortForm(Section):
    """A mapping that may also be written as one text."""

    short_form: ClassVar[dict[str, Any]]
    """The text's JSON Schema."""

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The mapping that the text stands for."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _widened(cls, data: Any) -> Any:
        return cls.widen(data) if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        long_form = {key: value for key, value in schema.items() if key not in {"title", "description"}}
        return {
            "title": schema["title"],
            "description": schema["description"],
            "anyOf": [cls.short_form, long_form],
        }
