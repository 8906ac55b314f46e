"""Dagster and its exporter, as the lessons of phase 7 find them: watched from outside.

In containers beside the Compose cluster, or without Docker as processes of the client's
machine.
"""
