import pytest

from advisory_world import FEATURES
from pilothouse.policy.advisories.features import Predicate

A, B = Predicate(feature="images"), Predicate(feature="tools")


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (True, True, True, True),
        (True, False, False, True),
        (False, False, False, False),
        (True, None, None, True),
        (False, None, False, None),
        (None, None, None, None),
    ],
)
def test_predicates_in_three_values(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    features = {name: value for name, value in (("images", a), ("tools", b)) if value is not None}
    assert Predicate(all=(A, B)).holds(features) is both
    assert Predicate(all=(B, A)).holds(features) is both
    assert Predicate(any=(A, B)).holds(features) is either
    assert A.holds(features) is a


def test_a_predicate_in_words() -> None:
    nested = Predicate(all=(A, Predicate(any=(B, Predicate(feature="video")))))
    assert str(nested) == "images and (tools or video)"
    assert nested.names() == {"images", "tools", "video"}


def test_only_these_are_on() -> None:
    assert FEATURES.only(["images"]) == {"images": True, "tools": False, "connector": False}  # video stays unknown
    assert FEATURES.only(["video"]) == {"images": True, "video": True, "tools": False, "connector": False}
    assert FEATURES.only([]) == {"images": False, "video": False, "tools": False, "connector": False}


def test_parts_follow_their_whole() -> None:
    assert FEATURES.completed({"images": False}) == {"images": False, "video": False}
    assert FEATURES.completed({"video": True}) == {"images": True, "video": True}
    assert FEATURES.completed({"images": True}) == {"images": True}
    assert FEATURES.without({"images": True, "tools": True}, "images") == {
        "images": False, "video": False, "tools": True,
    }  # fmt: skip
    assert FEATURES.without({"images": True}, "video") == {"images": True, "video": False}


def test_outermost_leaves_out_parts() -> None:
    assert FEATURES.outermost(["video", "images", "tools"]) == ("images", "tools")
    assert FEATURES.outermost(["video"]) == ("video",)


def test_what_a_table_knows() -> None:
    assert FEATURES.withholdable("tools")
    assert not FEATURES.withholdable("connector")
    assert not FEATURES.withholdable("wings")
