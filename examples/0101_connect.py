"""What is on the other end of the socket?

What:  x
Why:   x
Needs: x
Run:   make run EXAMPLE=0101_connect
"""
from dask_cluster_lab import Lesson, connect, run
import time

def slow(x):
    time.sleep(6)
    return x

def main() -> None:
    with connect() as session, Lesson(session) as lesson:
        lesson.section("Workers")
        lesson.table(["worker","threads"], [(w.address,w.threads) for w in session.workers()])
        lesson.check("has workers", session.workers(), "yes", needs="containers")
        print(session.client.gather(session.client.map(slow, range(12))))

if __name__ == "__main__":
    run(main)
