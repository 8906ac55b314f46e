"""Exit status 0 if each of Dagster's daemons gave a sign of life lately.

A health check runs every few seconds, and `dagster-daemon liveness-check` takes some
seconds of processor time: this asks the same table in the same storage without Dagster.
"""

import sqlite3
import sys

SECONDS = 90  # three heartbeats
AGE = "(julianday('now') - julianday(min(timestamp))) * 86400"

with sqlite3.connect("file:/dagster/history/runs.db?mode=ro", uri=True) as runs:
    daemons, oldest = runs.execute(
        f"select count(*), {AGE} from daemon_heartbeats"
    ).fetchone()
sys.exit(not (daemons and oldest < SECONDS))
