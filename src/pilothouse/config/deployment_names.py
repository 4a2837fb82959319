"""What deployments are called when the file does not say."""

import re


def deployment_name(model: str, engine: str) -> str:
    """What a deployment without a name is called; characters that file names should not have become dashes."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', model)}-{engine}"
