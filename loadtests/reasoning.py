"""Which part of a streamed answer is reasoning, and which is visible text at all."""

# tag: <think>...</think> are streamed; prompt-opened: the template wrote <think>, only </think> is
# streamed; field: reasoning_content or reasoning beside content; none: all text is answer.
MODES = ("tag", "prompt-opened", "field", "none")
UNKNOWN = "unknown"

OPEN = "<think>"
CLOSE = "</think>"
HELD_BACK = "\ufffd"  # what some servers send for a character whose bytes have not all come


# Visible text of one delta: of the reasoning, and of the answer; either may be empty.
Text = tuple[str, str]


class ReasoningReader:
    """Takes deltas in order, gives their visible text. A marker is no text, nor is part of one."""

    __slots__ = ("_held", "_inside", "_marker", "_mode", "_started")

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._inside = mode == "prompt-opened"
        self._marker = {"tag": OPEN, "prompt-opened": CLOSE}.get(mode, "")
        self._started = False
        self._held = ""

    def feed(self, content: str, reasoning: str) -> Text:
        """Visible text of one delta's `content` and `reasoning_content`."""
        content = content.replace(HELD_BACK, "") if HELD_BACK in content else content
        if self._mode == "field" and reasoning:
            reasoning = reasoning.replace(HELD_BACK, "")
        if not self._marker:
            return reasoning, content
        return self._tagged(content, reasoning)

    def rest(self) -> Text:
        """Text that was held back as a possible marker, when the stream ends without one."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)

    def _tagged(self, content: str, reasoning: str) -> Text:
        content, self._held = self._held + content, ""
        thought, said = reasoning, ""
        while content:
            if not self._marker:
                said += content
                break
            before, found, after = content.partition(self._marker)
            if not found:
                before, self._held = _without_half(content, self._marker)
            if self._inside:
                thought += before
            elif before.strip():
                # Text before any <think>: this answer has no reasoning.
                self._marker = ""
                said += before + self._held + found + after
                self._held = ""
                break
            if not found:
                break
            self._inside = self._marker == OPEN
            self._marker = CLOSE if self._inside else ""
            content = after
        return thought, said


def _without_half(text: str, marker: str) -> tuple[str, str]:
    """Split off an end that may be the beginning of a marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return text[:-length], text[-length:]
    return text, ""


def mode_seen(contents: str, any_reasoning_field: bool, ended: bool) -> str:
    """What a whole trial answer says about the mode; `ended` by itself, not by its length limit."""
    if any_reasoning_field:
        return "field"
    if contents.lstrip().startswith(OPEN):
        return "tag"
    if CLOSE in contents:
        return "prompt-opened"
    return "none" if ended else UNKNOWN
