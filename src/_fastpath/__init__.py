"""Kernels of the hot path, each a dispatcher, a Cython module and a pure twin.

Import a kernel through its dispatcher (``from hermes_state._fastpath import
json_text``), never a twin.
"""
