"""A tenant's usage in OpenAI's shape: the query, the ledger's sums, and the page."""

import urllib.parse
from collections.abc import Iterator

import msgspec
import pytest

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome
from pilothouse.model.units import SECOND, WallNs
from pilothouse.store.database import DatabasePlace
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenant_usage import BucketSum, UsagePage, UsageQuery, page_of, read_query

DAY_S = 86_400
START_S = 20_000 * DAY_S
NOW_S = START_S + 10 * DAY_S + 3600
TENANT = TenantId("web")


def asked(text: str) -> UsageQuery:
    query = read_query(text, TENANT, NOW_S)
    assert isinstance(query, UsageQuery), query
    return query


def turn(
    number: int, at_s: int, nanoseconds: int = 0, *, tenant: str = "web", model: str = "m", key: str = "key_1"
) -> LedgerRow:
    return LedgerRow(
        id=RequestId(f"req_{number:024x}"),
        organisation=OrganisationId("o"),
        tenant=TenantId(tenant),
        key=KeyId(key),
        model=ModelName(model),
        deployment=DeploymentName("d"),
        started_at=WallNs(at_s * SECOND + nanoseconds),
        ended_at=WallNs(at_s * SECOND + nanoseconds + 9),
        outcome=Outcome.COMPLETED,
        input_tokens=10,
        cached_tokens=4,
        output_tokens=20,
        reasoning_tokens=3,
        nano_cost=500_000_000,
    )


@pytest.fixture
def ledger(place: DatabasePlace) -> Iterator[Ledger]:
    with Ledger(place) as opened:
        opened.insert(
            [
                turn(1, START_S, -1),
                turn(2, START_S),
                turn(3, START_S + 60, -1, model="n"),
                turn(4, START_S + DAY_S, -1, key="key_2"),
                turn(5, START_S + DAY_S),
                turn(6, START_S + 5, tenant="other"),
                turn(7, START_S + 2 * DAY_S + 3601),
            ]
        )
        yield opened


def page(ledger: Ledger, text: str) -> UsagePage:
    query = asked(text)
    return page_of(query, ledger.tenant_usage(query))


def counts(found: UsagePage) -> list[int]:
    return [sum(result.num_model_requests for result in bucket.results) for bucket in found.data]


def test_days_begin_at_their_edges_and_nobody_elses_turns_are_in_them(ledger: Ledger) -> None:
    found = page(ledger, f"start_time={START_S + 77}&end_time={START_S + 3 * DAY_S}")
    assert counts(found) == [3, 1, 1]
    assert (found.data[0].start_time, found.data[0].end_time) == (START_S, START_S + DAY_S)
    assert (found.has_more, found.next_page) == (False, None)


def test_minutes_and_hours(ledger: Ledger) -> None:
    minutes = page(ledger, f"start_time={START_S}&end_time={START_S + 120}&bucket_width=1m")
    assert counts(minutes) == [2, 0]
    hours = page(ledger, f"start_time={START_S + 2 * DAY_S}&bucket_width=1h&limit=2")
    assert counts(hours) == [0, 1]
    assert hours.has_more


def test_a_result_as_openai_has_it(ledger: Ledger) -> None:
    found = page(ledger, f"start_time={START_S}&limit=1&group_by=project_id&group_by=model&group_by[]=api_key_id")
    body = msgspec.json.decode(msgspec.json.encode(found))
    assert body["object"] == "page"
    assert body["next_page"] == f"page_{START_S + DAY_S}"
    [bucket] = body["data"]
    assert [(each["model"], each["api_key_id"]) for each in bucket["results"]] == [
        ("m", "key_1"),
        ("m", "key_2"),
        ("n", "key_1"),
    ]
    assert bucket["results"][0] == {
        "object": "organization.usage.completions.result",
        "input_tokens": 10,
        "input_cached_tokens": 4,
        "output_tokens": 20,
        "output_reasoning_tokens": 3,
        "num_model_requests": 1,
        "cost": 0.5,
        "project_id": "web",
        "user_id": None,
        "api_key_id": "key_1",
        "model": "m",
        "batch": None,
    }


def test_pages_together_have_every_turn_once(ledger: Ledger) -> None:
    text, seen = f"start_time={START_S}&limit=1", list[int]()
    found = page(ledger, text)
    while found.next_page is not None:
        seen += counts(found)
        found = page(ledger, f"{text}&page={found.next_page}")
    seen += counts(found)
    assert seen == [3, 1, 1, *[0] * 8]


def test_models_and_keys_can_be_chosen(ledger: Ledger) -> None:
    day = f"start_time={START_S}&end_time={START_S + 1}"
    assert counts(page(ledger, f"{day}&models=n&models=x")) == [1]
    assert counts(page(ledger, f"{day}&api_key_ids[]=key_2")) == [1]
    assert counts(page(ledger, f"{day}&models=n&api_key_ids=key_2")) == [0]
    assert counts(page(ledger, f"{day}&project_ids=web")) == [3]


def test_another_tenants_usage_is_not_to_be_had(ledger: Ledger) -> None:
    assert page(ledger, f"start_time={START_S}&project_ids=other").data == ()


def test_without_an_end_it_goes_until_now_and_never_far_beyond() -> None:
    for text in (f"start_time={START_S}&limit=31", f"start_time={START_S}&limit=31&end_time=8000000000"):
        query = asked(text)
        assert NOW_S <= query.page_end_s <= NOW_S + 2 * DAY_S


def test_a_beginning_after_the_end_is_an_empty_page() -> None:
    query = asked(f"start_time={NOW_S + 30 * DAY_S}")
    assert page_of(query, ()).data == ()


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("", "start_time"),
        ("start_time=now", "start_time"),
        ("start_time=-1", "start_time"),
        ("start_time=1&start_time=2", "start_time"),
        ("start_time=1&end_time=x", "end_time"),
        ("start_time=1&bucket_width=2d", "bucket_width"),
        ("start_time=1&limit=0", "limit"),
        ("start_time=1&limit=32", "limit"),
        ("start_time=1&bucket_width=1h&limit=169", "limit"),
        ("start_time=1&group_by=user_id", "group_by"),
        ("start_time=1&page=7", "page"),
        ("start_time=1&page=page_7", "page"),
        ("start_time=86400&page=page_0", "page"),
        ("start_time=1&user_ids=u", "user_ids"),
        ("start_time=1&" + "x" * 200 + "=1", "x" * 64),
        ("start_time=%ff", None),
        ("&".join(["models=m"] * 300), None),
        ("nonsense", None),
    ],
)
def test_what_is_refused(text: str, param: str | None) -> None:
    refusal = read_query(text, TENANT, NOW_S)
    assert isinstance(refusal, Refusal)
    assert (refusal.param, refusal.spec.status) == (param, 400)


def test_a_page_is_pure_arithmetic() -> None:
    query = asked(urllib.parse.urlencode({"start_time": START_S, "limit": 3}))
    sums = [
        BucketSum(
            bucket=at, turns=at, input_tokens=1, cached_tokens=0, output_tokens=2, reasoning_tokens=0, nano_cost=1
        )
        for at in (0, 2)
    ]
    found = page_of(query, sums)
    assert counts(found) == [0, 0, 2]
    assert found.data[2].results[0].cost == 1e-9
