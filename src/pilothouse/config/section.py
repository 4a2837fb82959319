"""What every mapping of the fleet file is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping of the file. Unknown keys are refused, and types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
