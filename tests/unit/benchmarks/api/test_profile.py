from __future__ import annotations

from benchmarks.api.profile import folded, render

STACKS = """main (a/main.py:1);get (/x/site-packages/pack/a.py:7);write (libc.so.6) 30
main (a/main.py:1);get (/x/site-packages/pack/a.py:9) 10
main (a/main.py:1);epoll_wait (libc.so.6) 500
run (threading.py:1);_worker (concurrent/futures/thread.py:81);0x7f (libc.so.6) 400
"""


def test_waiting_is_omitted_and_lines_of_a_function_are_summed() -> None:
    count, own, total = folded(STACKS)
    assert count == 40
    assert dict(own) == {"write (libc.so.6)": 30, "get (pack/a.py)": 10}
    assert total["get (pack/a.py)"] == 40


def test_a_function_that_calls_itself_counts_once() -> None:
    _, _, total = folded("f (a.py:1);f (a.py:2) 5\n")
    assert total["f (a.py)"] == 5


def test_the_text_has_shares() -> None:
    text = render("get", *folded(STACKS))
    assert "75.0%  write (libc.so.6)" in text
    assert "100.0%  get (pack/a.py)" in text
