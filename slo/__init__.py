"""From a run directory to a verdict; home of the command `slo`."""
