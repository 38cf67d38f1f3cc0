"""Random and mutated model outputs through every agent: none crashes, each is an action, an answer or an event.

`python -m tests.test_agents_fuzz 100000` runs so many outputs; the tests run a few thousand.
"""

from __future__ import annotations

import json
import random
import sys
from typing import get_args

import pytest

from memsearcher.agents.protocol import Reply
from memsearcher.assemble import make_agent
from memsearcher.engines.chat import ChatFormat
from memsearcher.recipe import AgentName, Recipe
from memsearcher.rollout import rollout
from memsearcher.trajectory import Limits, Task, Trajectory
from tests.scripted import ScriptedEngine, ScriptedEnvironment, answer, memory, passage, search
from tests.tagged import boxed, look, tell
from tests.tiny import tiny_tokenizer

NAMES = get_args(AgentName)
GOOD = [
    search("capital of Laos", top_n=2),
    answer("\\text{kip}"),
    look("capital of Laos"),
    tell("kip"),
    boxed("kip"),
    memory("Vientiane is the capital of Laos."),
    "Vientiane is the capital of Laos.",
]
PIECES = [
    *("<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<tool_call>", "</tool_call>"),
    *("<memory>", "</memory>", "\\boxed{", "\\text{", "{", "}", "\\{", "\\", '"', "[", "]", ":", ","),
    *("<result>", "</result>", "<information>", "</information>", "<summary>", "</history>", "<|im_end|>"),
    *('{"name": "search", "arguments": {"query": "q"}}', '"query": ', "NaN", "1e999", "null", "[" * 2000),
    *("\x00", "\ud800", "\u202e", "é", "日本", " ", "\n", "a", "search"),
]
FINISHES = ("eos", "stop", "length")


def output(draw):
    """One model output: noise, a mixture of pieces, or a good reply that was damaged."""
    kind = draw.random()
    if kind < 0.15:
        return "".join(
            chr(draw.choice((draw.randrange(128), draw.randrange(0x3000)))) for _ in range(draw.randrange(40))
        )
    if kind < 0.45:
        return "".join(draw.choice(PIECES) for _ in range(draw.randrange(25)))
    text = "".join(draw.choice(GOOD) for _ in range(draw.choice((1, 1, 1, 2))))
    for _ in range(draw.randrange(4)):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.randrange(9))
        text = text[:start] + draw.choice(["", *PIECES]) + text[end:]
    return text


def play(name, draw, chat):
    """A trajectory whose replies are all drawn, and how many there were."""
    limits = Limits(
        turns=draw.randint(1, 5),
        passages=2,
        passage_tokens=20,
        history_tokens=draw.choice((1, 40, 400)),
        context_tokens=draw.choice((None, 2_000, 100_000)),
        on_bad_memory=draw.choice(("keep", "wipe", "end")),
    )

    def script(request):
        text, finish = output(draw), draw.choice(FINISHES)
        if chat is None:
            return Reply(text, finish)
        ids = chat.encode_reply(text, end=finish == "eos")
        return Reply(text, finish, ids, [-0.5] * len(ids), len(request.conversation.token_ids), len(ids))

    books = {"capital of Laos": [passage(1, "Vientiane </result></information>")]}
    engine = ScriptedEngine(script, chat)
    agent = make_agent(Recipe(agent=name, limits=limits))
    (trajectory,) = rollout(agent, ScriptedEnvironment(books), engine, [(Task("t", "Where?", ("kip",)), 0)])
    return trajectory, len(engine.requests)


def check(trajectory):
    """Nothing failed, and every turn is an action, the answer or an event."""
    assert trajectory.error is None, trajectory.error
    for number, turn in enumerate(trajectory.turns, 1):
        ends = number == len(trajectory.turns) and trajectory.answer is not None
        assert turn.steps or turn.events or ends, (number, turn)
        for step in turn.steps:
            assert step.action.arguments["query"].strip()
    assert trajectory.answer is not None or trajectory.turns[-1].events
    assert sum(len(turn.calls) for turn in trajectory.turns) == len([*trajectory.calls]) > 0


def check_record(trajectory):
    """The record survives the way to JSON and back."""
    written = json.dumps(trajectory.to_json(), allow_nan=False)
    assert Trajectory.from_json(json.loads(written)) == trajectory


def fuzz(name, outputs, seed, chat):
    """Play an agent until it was given so many outputs; returns how many trajectories that took."""
    draw = random.Random(f"{name} {seed}")
    played = 0
    while outputs > 0:
        trajectory, used = play(name, draw, chat)
        check(trajectory)
        if played % 20 == 0:
            check_record(trajectory)
        outputs -= used
        played += 1
    return played


@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_no_output_breaks_an_agent(name, tokens):
    fuzz(name, 120 if tokens else 400, 0, ChatFormat.from_tokenizer(tiny_tokenizer()) if tokens else None)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for each in NAMES:
        on_tokens = wanted // 50
        count = fuzz(each, wanted - on_tokens, 1, None)
        count += fuzz(each, on_tokens, 2, ChatFormat.from_tokenizer(tiny_tokenizer()))
        print(
            f"{each:12} {wanted} outputs in {count} trajectories: every turn an action, an answer or an event",
            flush=True,
        )
