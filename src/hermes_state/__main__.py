"""``python -m hermes_state``, the same as the command ``hermes-state``."""

from hermes_state.cli import main

main()
