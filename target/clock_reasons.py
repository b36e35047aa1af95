"""NVML's bit mask of why a GPU's clocks are not higher, in words."""

# Those that take speed away from a loaded GPU.
SLOWED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}


def slowed_by(mask: int) -> list[str]:
    """The causes that a mask names; idle, application clocks and their like are none."""
    return [cause for bit, cause in SLOWED.items() if mask & bit]
