"""Queries of many clients in one batch, each with its own answer."""

import asyncio

import pytest

from memsearcher.retrieval.batcher import Batcher, Batching, QueueFull
from memsearcher.retrieval.metrics import Metrics
from tests.serving import Numbered, write_corpus


@pytest.fixture
def retriever(tmp_path):
    return Numbered(write_corpus(tmp_path / "c.jsonl"))


def run(retriever, work, **batching):
    """What `work` gives, with a batcher that is closed behind it."""

    async def main():
        batcher = Batcher(retriever, Batching(**batching), Metrics())
        batcher.start()
        try:
            return await work(batcher)
        finally:
            await batcher.close()

    return asyncio.run(main())


def ids(found):
    return [[each.document.id for each in some] for some in found]


def test_what_comes_together_is_one_batch(retriever):
    async def work(batcher):
        return await asyncio.gather(*(batcher.retrieve([str(n)], 1) for n in range(10)))

    found = run(retriever, work, size=10, wait=5)
    assert [ids(each) for each in found] == [[[f"p{n}"]] for n in range(10)]
    assert retriever.asked == [([str(n) for n in range(10)], 1)]


def test_a_lone_query_waits_no_longer_than_the_deadline(retriever):
    assert ids(run(retriever, lambda batcher: batcher.retrieve(["3"], 2), size=100, wait=0.01)) == [["p3", "p4"]]


def test_a_batch_has_no_more_than_its_size(retriever):
    found = run(retriever, lambda batcher: batcher.retrieve([str(n) for n in range(7)], 1), size=3, wait=0)
    assert ids(found) == [[f"p{n}"] for n in range(7)]
    assert [len(queries) for queries, _ in retriever.asked] == [3, 3, 1]


def test_only_equal_numbers_of_passages_share_a_batch(retriever):
    async def work(batcher):
        return await asyncio.gather(*(batcher.retrieve([str(n)], 1 + n % 2) for n in range(6)))

    found = run(retriever, work, size=6, wait=0.05)
    assert [ids(each)[0] for each in found] == [[f"p{n}", f"p{n + 1}"][: 1 + n % 2] for n in range(6)]
    assert retriever.asked == [(["0", "2", "4"], 1), (["1", "3", "5"], 2)]


def test_equal_queries_are_asked_once_and_kept(retriever):
    async def work(batcher):
        await asyncio.gather(batcher.retrieve(["1", "1", "2"], 1), batcher.retrieve(["1"], 1))
        return ids(await batcher.retrieve(["2", "1", "3"], 1))

    assert run(retriever, work, size=9, wait=0.01) == [["p2"], ["p1"], ["p3"]]
    assert retriever.asked == [(["1", "2"], 1), (["3"], 1)]


def test_the_least_recently_used_answer_goes_first(retriever):
    async def work(batcher):
        for query in ("1", "2", "1", "3", "1", "2"):
            await batcher.retrieve([query], 1)

    run(retriever, work, wait=0, cache=2)
    assert [queries for queries, _ in retriever.asked] == [["1"], ["2"], ["3"], ["2"]]
    retriever.asked.clear()
    run(retriever, work, wait=0, cache=0)
    assert len(retriever.asked) == 6


def test_a_query_that_breaks_its_batch_breaks_alone(retriever, caplog):
    async def work(batcher):
        return await asyncio.gather(
            *(batcher.retrieve([query], 1) for query in ("1", "broken", "2")), return_exceptions=True
        )

    one, broken, two = run(retriever, work, size=3, wait=5)
    assert (ids(one), ids(two)) == ([["p1"]], [["p2"]])
    assert isinstance(broken, RuntimeError)
    assert "a batch of 3 queries failed (RuntimeError('no index')); asking one by one" in caplog.text


def test_a_failure_is_not_kept(retriever):
    async def work(batcher):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no index"):
                await batcher.retrieve(["1", "broken"], 1)

    run(retriever, work, wait=0)
    assert [queries for queries, _ in retriever.asked] == [["1", "broken"], ["1"], ["broken"], ["broken"]]


def test_answers_that_do_not_match_the_queries_are_an_error(retriever):
    retriever.retrieve = lambda queries, k: []
    with pytest.raises(RuntimeError, match="the retriever gave 0 answers to 1 queries"):
        run(retriever, lambda batcher: batcher.retrieve(["1"], 1), wait=0)


def test_a_client_that_leaves_takes_no_answer_with_it(retriever):
    async def work(batcher):
        leaving = asyncio.create_task(batcher.retrieve(["1"], 1))
        staying = asyncio.create_task(batcher.retrieve(["1"], 1))
        await asyncio.sleep(0)
        leaving.cancel()
        return ids(await staying)

    assert run(retriever, work, wait=0.05) == [["p1"]]


def test_a_full_queue_lets_nothing_of_a_request_in(retriever):
    async def work(batcher):
        retriever.pause.clear()
        first = asyncio.create_task(batcher.retrieve(["1"], 1))
        await asyncio.to_thread(retriever.entered.wait, 10)
        second = asyncio.create_task(batcher.retrieve(["2", "3"], 1))
        await asyncio.sleep(0.01)
        with pytest.raises(QueueFull, match="2 queries are waiting and 3 are let in"):
            await batcher.retrieve(["4", "5"], 1)
        joined = asyncio.create_task(batcher.retrieve(["1", "2", "4"], 1))  # Two are under way already.
        await asyncio.sleep(0.01)
        assert batcher.full
        retriever.pause.set()
        return [ids(await each) for each in (first, second, joined)]

    assert run(retriever, work, size=1, wait=0, queue=3) == [[["p1"]], [["p2"], ["p3"]], [["p1"], ["p2"], ["p4"]]]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"queue": 0}, {"wait": -1}, {"cache": -1}])
def test_numbers_out_of_range(wrong):
    with pytest.raises(ValueError, match="size and queue must be at least 1"):
        Batching(**wrong)
