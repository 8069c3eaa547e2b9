from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from scarml.models.blas import single_threaded_blas


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_limit_holds_inside_and_is_lifted_after() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with single_threaded_blas:
        pass  # loads the libraries
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with single_threaded_blas:
            assert blas_threads() == {1}
            with single_threaded_blas:
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before


def test_limit_is_lifted_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), single_threaded_blas:
        raise ZeroDivisionError
    assert blas_threads() == before


def test_limit_holds_until_the_last_thread_is_out() -> None:
    barrier, before = Barrier(4, timeout=30), blas_threads()

    def work(_: int) -> bool:
        with single_threaded_blas:
            barrier.wait()
            return blas_threads() == {1}

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))
    assert blas_threads() == before
