"""Bodies that clients may send. A key that we would have to ignore is an error, not a silence."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

STRICT = ConfigDict(extra="forbid", strict=True)  # no unknown key, and "5" is no number
MOST_CHARACTERS = 2_000_000  # of one text: far beyond any context here

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
StopText = Annotated[str, Field(min_length=1, max_length=200)]
Stop = StopText | Annotated[list[StopText], Field(max_length=16)]
Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1)]
One = Annotated[float, Field(ge=1, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class TextPart(BaseModel):
    """One part of a message's content; only text is served."""

    model_config = STRICT

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """One message of a chat."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """As a chat template takes it."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return {"role": role, "content": self.content}
        return {"role": role, "content": "".join(part.text for part in self.content)}


class StreamOptions(BaseModel):
    """What a stream carries beside its text."""

    model_config = STRICT

    include_usage: bool = False
    continuous_usage_stats: bool | None = False  # with include_usage: in each chunk, as vLLM


class CommonFields(BaseModel):
    """What both ways of asking for a text have."""

    model_config = STRICT

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    ignore_eos: bool = False
    min_tokens: Annotated[int, Field(ge=0)] = 0
    # Keys that clients send by habit: taken at the value that changes nothing.
    n: Literal[1] | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    repetition_penalty: One | None = None
    user: str | None = None


class ChatBody(CommonFields):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None  # OpenAI's newer name of the same
    logprobs: Literal[False] | None = None


class CompletionBody(CommonFields):
    """POST /v1/completions: the prompt as it stands, without a chat template."""

    prompt: Text
    max_tokens: Count = 16
    logprobs: None = None
    echo: Literal[False] | None = None


class GenerateBody(BaseModel):
    """POST /generate and /generate_stream, with the source articles' defaults."""

    model_config = STRICT

    prompt: Text
    temperature: Temperature = 0.6
    max_tokens: Count | None = None  # 2048, or what the context has left
