"""The next batches are fetched while the current one is learnt from."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Two threads, for work that lets go of the interpreter: one copies while the other starts.
THREADS, AHEAD = 2, 4


def ahead(fetch: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """fetch(item) of every item, in order, a few of them ahead of the one that is asked for.

    >>> list(ahead(str, range(3)))
    ['0', '1', '2']
    """
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="halftruth-fetch")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(fetch, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # Also when the reader stops early: what is under way ends, the rest never starts.
        pool.shutdown(cancel_futures=True)
