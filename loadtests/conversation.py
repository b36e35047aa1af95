"""What is said so far in a session, and which turn comes next."""

from loadtests.own_prompts import Message, own_messages
from loadtests.prompts import prompt
from loadtests.schedule import Load, Session
from slo.record import Arrival


def _new_messages(load: Load, arrival: Arrival) -> list[Message]:
    """What a turn adds to what was said before it."""
    if load.prompts is not None:
        return own_messages(load.prompts, arrival.prompt_id)
    return [{"role": "user", "content": prompt(arrival.prompt_id).text}]


class Conversation:
    """One session that has begun: its turns to come, and the messages up to now."""

    __slots__ = ("_coming", "_load", "messages", "tokens")

    def __init__(self, load: Load, session: Session) -> None:
        self._load = load
        self._coming = list(reversed(session))
        self.messages: list[Message] = []
        self.tokens = 0  # of all messages, as far as the server said

    @property
    def over(self) -> bool:
        """Whether no turn is to come."""
        return not self._coming

    def next_turn(self) -> Arrival:
        """The next turn, whose question is said."""
        arrival = self._coming.pop()
        self.messages += _new_messages(self._load, arrival)
        return arrival

    def pass_over(self) -> None:
        """The next turn is not asked."""
        self._coming.pop()

    def hear(self, answer: str, tokens: int) -> None:
        """The answer to the last question; its reasoning is not sent again, as servers want it."""
        self.messages.append({"role": "assistant", "content": answer})
        self.tokens = tokens

    def give_up(self) -> list[Arrival]:
        """The turns that are not asked any more."""
        coming, self._coming = self._coming[::-1], []
        return coming
