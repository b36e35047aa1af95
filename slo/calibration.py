"""How often a verdict on so many effective requests was wrong in the published calibration."""

import json
from pathlib import Path

_TABLE = Path(__file__).with_name("calibration.json")


def in_words(objective: str, worth: float) -> str | None:
    """The line of docs/calibration.md for so many effective requests; None without one."""
    try:
        lines = json.loads(_TABLE.read_text(encoding="utf-8"))
    except OSError:
        return None
    for line in lines:
        if line["from"] <= worth < line["below"]:
            return (
                f"{objective} rests on {worth:,.0f} effective requests. With so many, of "
                f"{line['runs']:,} simulated runs {_percent(line['false_pass'])} passed a server "
                f"that is 2 % over its limit, and {_percent(line['false_fail'])} failed one that "
                "is 2 % under (docs/calibration.md)."
            )
    return None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
