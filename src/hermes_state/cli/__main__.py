"""``python -m hermes_state.cli``."""

from hermes_state.cli import main

main()
