import random
from collections.abc import Callable

import pytest

from pilothouse.policy.fairness.fairness_core import FairCounters


def anyone(_: str) -> bool:
    return True


def chosen(counters: FairCounters, uncached: Callable[[str], float] | None = None) -> str:
    client = counters.choose(anyone, uncached)
    assert client is not None
    return client


def serve(counters: FairCounters, rounds: int, tokens: int = 10) -> list[str]:
    """Serve whoever is next; everybody goes on waiting."""
    served = []
    for _ in range(rounds):
        client = chosen(counters)
        served.append(client)
        counters.charge(client, tokens, 0)
    return served


def test_nobody_waits_nobody_is_next() -> None:
    assert FairCounters().choose(anyone) is None


def test_clients_that_keep_waiting_are_served_alike() -> None:
    counters = FairCounters()
    for client in "abc":
        counters.join(client)
    served = serve(counters, 30)
    assert [served.count(client) for client in "abc"] == [10, 10, 10]


def test_weights_divide_the_service() -> None:
    counters = FairCounters()
    counters.join("a", weight=3.0)
    counters.join("b", weight=1.0)
    served = serve(counters, 40)
    assert (served.count("a"), served.count("b")) == (30, 10)


def test_an_output_token_costs_two_input_tokens() -> None:
    counters = FairCounters()
    counters.join("a")
    counters.charge("a", 10, 20)
    assert counters.accounts["a"].counter == 50


def test_a_pause_is_not_saved_up() -> None:
    counters = FairCounters()
    counters.join("busy")
    serve(counters, 100)
    counters.join("back")
    served = serve(counters, 20)
    assert served.count("back") in (10, 11)


def test_a_newcomer_to_an_empty_queue_starts_where_the_last_one_left() -> None:
    counters = FairCounters()
    counters.join("a")
    counters.charge("a", 1000, 0)
    counters.leave("a")
    counters.pass_through("b")
    assert counters.accounts["b"].counter == 1000
    counters.join("a")
    counters.join("b")
    assert [counters.accounts[name].counter for name in "ab"] == [1000, 1000]


def test_what_was_charged_in_expectation_is_taken_back() -> None:
    counters = FairCounters()
    for client in "ab":
        counters.join(client)
    counters.charge("a", 0, 100)
    counters.charge("b", 0, 50)
    assert counters.choose(anyone) == "b"
    counters.charge("a", 0, -90)
    assert counters.choose(anyone) == "a"


def test_clients_that_are_not_allowed_are_passed_over_and_keep_their_turn() -> None:
    counters = FairCounters()
    for client in "ab":
        counters.join(client)
    counters.charge("b", 5, 0)
    assert counters.choose(lambda client: client != "a") == "b"
    assert counters.choose(anyone) == "a"


def test_within_the_quantum_the_longest_cached_prefix_goes_first() -> None:
    counters = FairCounters(quantum=100)
    for client in "ab":
        counters.join(client)
    uncached = {"a": 1.0, "b": 0.1}
    served = []
    for _ in range(20):
        client = chosen(counters, uncached.__getitem__)
        served.append(client)
        counters.charge(client, 30, 0)
    assert served[:4] == ["b"] * 4  # until it is more than the quantum ahead
    assert served.count("a") > 5


def test_cached_tokens_get_a_client_more_done() -> None:
    counters = FairCounters()
    for client in "ab":
        counters.join(client)
    done = {"a": 0, "b": 0}
    for _ in range(300):
        client = chosen(counters)
        counters.charge(client, 100 if client == "a" else 50, 0)
        done[client] += 1
    assert done["b"] == pytest.approx(2 * done["a"], abs=2)


@pytest.mark.parametrize("quantum", [0.0, 500.0])
@pytest.mark.parametrize("seed", range(5))
def test_two_clients_that_keep_waiting_never_differ_by_more_than_the_bound(seed: int, quantum: float) -> None:
    draw = random.Random(seed)
    longest, in_flight = 400, 1500
    counters = FairCounters(quantum=quantum)
    clients = [f"c{number}" for number in range(5)]
    for client in clients:
        counters.join(client)
    service = dict.fromkeys(clients, 0.0)
    running: list[tuple[str, int]] = []
    for _ in range(3000):
        while sum(output for _, output in running) < in_flight - longest:
            client = chosen(counters, lambda name: draw.random())
            inputs = draw.randint(1, longest)
            counters.charge(client, inputs, 0)
            service[client] += inputs
            running.append((client, draw.randint(1, longest)))
        client, output = running.pop(draw.randrange(len(running)))
        counters.charge(client, 0, output)
        service[client] += 2 * output
        bound = 2 * max(longest, 2 * in_flight) + quantum
        assert max(service.values()) - min(service.values()) <= bound


def test_counters_are_handed_over() -> None:
    before = FairCounters()
    for client in "ab":
        before.join(client)
    before.charge("a", 500, 0)
    after = FairCounters()
    after.restore(before.export())
    for client in "ab":
        after.join(client)
    assert after.accounts["a"].counter - after.accounts["b"].counter == 500
    assert after.choose(anyone) == "b"


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    counters = FairCounters()
    for _ in range(10_000):
        counters.join("a")
        counters.leave("a")
    assert len(counters._heap) <= 100
