"""The real openai and anthropic clients against a fake engine as a process of its own."""

import asyncio
import base64
from array import array
from collections.abc import AsyncIterator

import anthropic
import openai
import pytest
import pytest_asyncio

from pilothouse.testing.processes import running_fake_engine

KEY = "replica-key"
QUESTION = "What is the airspeed of a swallow?"


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    options = ("--served-model-name=small", "--step-base-ms=1", "--time-scale=0.5", "--scriptable")
    async with running_fake_engine(*options, key=KEY) as (_, url):
        yield url


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def claude(url: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=url, auth_token=KEY, max_retries=0) as client:
        yield client


@pytest.mark.asyncio
async def test_the_synchronous_client(url: str) -> None:
    def ask() -> tuple[str, str | None]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            whole = client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": QUESTION}], max_tokens=5
            )
            parts = client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": QUESTION}], max_tokens=5, stream=True
            )
            return "".join(part.choices[0].delta.content or "" for part in parts), whole.choices[0].message.content

    streamed, whole = await asyncio.to_thread(ask)
    assert streamed == whole


@pytest.mark.asyncio
async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["small"]


@pytest.mark.asyncio
async def test_chat_streamed_and_whole_say_the_same_and_count_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": QUESTION}], max_completion_tokens=7, n=2
    )
    stream = await client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": QUESTION}],
        max_completion_tokens=7,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts = ["", ""]
    reasons: list[str | None] = [None, None]
    pieces = 0
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            pieces += bool(choice.delta.content)
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]

    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    assert reasons == ["length", "length"]
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens == pieces == 14
    assert usage.prompt_tokens == whole.usage.prompt_tokens > 8


@pytest.mark.asyncio
async def test_the_next_turn_reports_the_tokens_of_the_last_as_cached(client: openai.AsyncOpenAI) -> None:
    first = await client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": QUESTION * 10}], max_tokens=40
    )
    following = await client.chat.completions.create(
        model="small",
        messages=[
            {"role": "user", "content": QUESTION * 10},
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "African or European?"},
        ],
        max_tokens=1,
    )
    assert first.usage is not None
    assert following.usage is not None
    assert following.usage.prompt_tokens_details is not None
    # All whole blocks of the first turn, but for its last token, whose KV was never computed.
    assert following.usage.prompt_tokens_details.cached_tokens == (first.usage.total_tokens - 1) // 16 * 16


@pytest.mark.asyncio
async def test_completions_of_several_prompts(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model="small", prompt=["one", "two"], max_tokens=3)
    stream = await client.completions.create(
        model="small", prompt=["one", "two"], max_tokens=3, stream=True, stream_options={"include_usage": True}
    )
    texts = ["", ""]
    usage = None
    async for part in stream:
        usage = part.usage or usage
        for choice in part.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert usage is not None
    assert usage == whole.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 6)

    ids = await client.completions.create(model="small", prompt=[1, 2, 3], max_tokens=1)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3


@pytest.mark.asyncio
async def test_a_stop_string_ends_the_answer(client: openai.AsyncOpenAI) -> None:
    script = '{"text": "first line\\nsecond line"}'
    whole = await client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": QUESTION}],
        stop="\n",
        extra_headers={"x-fake-engine": script},
    )
    assert whole.choices[0].message.content == "first line"
    assert whole.choices[0].finish_reason == "stop"


@pytest.mark.asyncio
async def test_embeddings_are_unit_vectors_of_the_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="small", input=["one", "two", "one"])
    one, two, again = (item.embedding for item in answer.data)
    assert one == again != two
    assert abs(sum(value * value for value in one) - 1) < 1e-5
    assert answer.usage.prompt_tokens == 3

    raw = await client.embeddings.create(model="small", input="one", encoding_format="base64", dimensions=8)
    vector = array("f", base64.b64decode(str(raw.data[0].embedding)))
    assert len(vector) == 8


@pytest.mark.asyncio
async def test_responses_streamed_and_whole(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(model="small", input=QUESTION, instructions="Be brief.", max_output_tokens=6)
    text = ""
    numbers = []
    async with client.responses.stream(
        model="small", input=QUESTION, instructions="Be brief.", max_output_tokens=6
    ) as stream:
        async for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
        final = await stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert text == final.output_text == whole.output_text
    assert final.status == whole.status == "incomplete"
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens == 6


@pytest.mark.asyncio
async def test_messages_streamed_and_whole(claude: anthropic.AsyncAnthropic) -> None:
    whole = await claude.messages.create(
        model="small", system="Be brief.", messages=[{"role": "user", "content": QUESTION}], max_tokens=6
    )
    async with claude.messages.stream(
        model="small", system="Be brief.", messages=[{"role": "user", "content": QUESTION}], max_tokens=6
    ) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    block = whole.content[0]
    assert block.type == "text"
    assert text == block.text
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == final.usage.output_tokens == 6
    # The second request hits the first one's block.
    cached = final.usage.cache_read_input_tokens or 0
    assert cached == 16
    assert final.usage.input_tokens + cached == whole.usage.input_tokens


@pytest.mark.asyncio
async def test_a_stop_sequence_is_named(claude: anthropic.AsyncAnthropic) -> None:
    message = await claude.messages.create(
        model="small",
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=50,
        stop_sequences=["END"],
        extra_headers={"x-fake-engine": '{"text": "so be it. END of it"}'},
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


@pytest.mark.asyncio
async def test_refusals_reach_the_openai_client_as_its_errors(client: openai.AsyncOpenAI, url: str) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `large` does not exist") as unknown:
        await client.chat.completions.create(model="large", messages=[{"role": "user", "content": "x"}])
    assert unknown.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="max_tokens must be at least 1"):
        await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "x"}], max_tokens=0)
    with pytest.raises(openai.BadRequestError, match="missing required field `messages`"):
        await client.post("/chat/completions", body={"model": "small"}, cast_to=object)
    with pytest.raises(openai.BadRequestError, match="too large: 200000"):
        await client.completions.create(model="small", prompt="x", max_tokens=200_000)
    with pytest.raises(openai.NotFoundError, match="Not Found"):
        await client.post("/nowhere", body={}, cast_to=object)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


@pytest.mark.asyncio
async def test_refusals_reach_the_anthropic_client_as_its_errors(claude: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist") as unknown:
        await claude.messages.create(model="large", messages=[{"role": "user", "content": "x"}], max_tokens=1)
    assert unknown.value.type == "not_found_error"
    with pytest.raises(anthropic.InternalServerError):
        await claude.messages.create(
            model="small",
            messages=[{"role": "user", "content": "x"}],
            max_tokens=1,
            extra_headers={"x-fake-engine": '{"status": 503}'},
        )
