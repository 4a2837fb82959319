"""Every built-in detector."""

from pilothouse.model.filters import Action, FilterSpec

REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "BR", "IN", "JP")
ID_COUNTRIES = ("ES", "DE", "IT", "FR", "PL", "BR", "IN", "NL", "SE", "FI", "BE", "CH", "PT", "MX", "KR", "TR", "CA")


def full_set(action: Action, regions: tuple[str, ...] = REGIONS) -> FilterSpec:
    """All of them under one action, with the phone formats of `regions`."""
    every = {"all": action}
    return FilterSpec(
        name="all", input=every, output=every, phone_regions=regions, id_countries=ID_COUNTRIES, hash_key="key"
    )
