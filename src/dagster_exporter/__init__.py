"""A Prometheus exporter that watches Dagster from outside, through its GraphQL API.

Read in this order: ``metrics`` (everything that is exposed), ``collectors`` (one file
for each group of metrics, with its query in ``queries``), ``poller`` (runs the
collectors in the background), ``state`` (what they leave behind), ``server`` (serves
that, and never asks Dagster anything).
"""

__version__ = "0.1.0"
