"""Tokens of the fake engine: what a router needs to be true of them."""

from hypothesis import given
from hypothesis import strategies as st

from pilothouse.testing.fake_engine.dialects.prompts import Message, chat_tokens
from pilothouse.testing.fake_engine.tokens import BYTES_PER_TOKEN, TextSource, split_text, text_of, tokenize


@given(st.text(), st.text())
def test_a_text_that_begins_with_whole_tokens_of_another_begins_with_its_tokens(start: str, rest: str) -> None:
    padded = start + " " * (-len(start.encode()) % BYTES_PER_TOKEN)
    assert tokenize(padded + rest)[: len(tokenize(padded))] == tokenize(padded)


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_split_text_loses_nothing_and_keeps_to_the_size_of_a_token(text: str) -> None:
    pieces = split_text(text)
    assert "".join(pieces) == text
    assert all(0 < len(piece.encode()) <= BYTES_PER_TOKEN for piece in pieces)


def test_lone_surrogates_are_tokens_too() -> None:
    assert len(tokenize("\ud800")) == 1


def test_the_text_of_a_token() -> None:
    assert [text_of(token) for token in tokenize("a word")] == ["a wo", "rd"]


def test_the_same_seed_and_prompt_give_the_same_text() -> None:
    prompt, other = tokenize("a prompt"), tokenize("another")
    text = TextSource(1).text(prompt, 0, 50)
    assert text == TextSource(1).text(prompt, 0, 50)
    assert len(text.encode()) == 50 * BYTES_PER_TOKEN
    assert text != TextSource(1).text(other, 0, 50)
    assert text != TextSource(1).text(prompt, 7, 50)
    assert text != TextSource(2).text(prompt, 0, 50)


def test_a_text_can_be_longer_than_the_pool() -> None:
    assert len(TextSource(0).text(tokenize("x"), 0, 40_000)) == 160_000


def test_the_next_turn_of_a_chat_extends_the_tokens_of_the_last() -> None:
    answer = TextSource(0).text(tokenize("x"), 0, 5)
    question = [Message(role="system", content="Be brief"), Message(role="user", content="hé?")]
    first = chat_tokens(question)
    following = [*question, Message(role="assistant", content=answer), Message(role="user", content="and?")]
    assert chat_tokens(following)[: len(first) + 5] == first + tokenize(answer)


def test_a_part_that_is_no_text_costs_the_same_whatever_its_size() -> None:
    def tokens_with(image: str) -> list[int]:
        parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": image}}]
        return chat_tokens([Message(role="user", content=parts)]).tolist()

    small, large = tokens_with("data:,x"), tokens_with("data:," + "x" * 1_000_000)
    assert len(small) == len(large) == len(chat_tokens([Message(role="user", content="look")])) + 64
    assert small != large
    assert small == tokens_with("data:,x")


def test_tools_are_part_of_the_prompt() -> None:
    messages = [Message(role="user", content="look")]
    assert len(chat_tokens(messages, tools=[{"type": "function"}])) > len(chat_tokens(messages))
