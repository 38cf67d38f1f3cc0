"""Trajectories made by hand: three agents' dialects, groups with rewards, a gold answer that is lost."""

from __future__ import annotations

import json

from memsearcher.trajectory import (
    Action,
    Call,
    Conversation,
    Limits,
    Observation,
    Passage,
    Segment,
    Step,
    Task,
    Trajectory,
)

CAPITAL = Task("capital", "What is the capital of the main export partner of Cote d'Ivoire?", ("Accra",))
PARTNERS = Passage(
    "p1",
    "Cote d'Ivoire: Export partners",
    "Exports - partners of Cote d'Ivoire: Ghana 9.1%, US 8.5%, Nigeria 7.9%, Netherlands 7.4% (2014).",
    12.2,
    1,
)
ACCRA = Passage(
    "p2",
    "Ghana: Capital",
    "Capital of Ghana: Accra; Major urban areas - population: Kumasi 2.599 million; ACCRA (capital) 2.277 million.",
    5.3,
    1,
)
NIGER = Passage("p3", "Niger: Capital", "Capital of Niger: Niamey; Government type: republic.", 2.1, 2)
LINK = "The main export partner of Cote d'Ivoire is Ghana."
KNOWN = "The capital of Ghana is Accra."


def segment(role, part, text, **more):
    """A segment with a token a word, as good as any for what is counted."""
    return Segment(role, part, text, list(range(len(text.split()))), **more)


def turn(query, passages, memory, thought="I need to search.", events=()):
    return {"query": query, "passages": passages, "memory": memory, "thought": thought, "events": events}


def attempt(turns, answer=None, task=CAPITAL, sample=0, reward=None, advantage=None, agent="memsearcher", **more):
    """A MemSearcher trajectory: a fresh conversation a turn, the memory in it, two calls but for the last turn."""
    trajectory = _begin(task, agent, sample, reward, advantage, more)
    memory = ""
    for each in turns:
        now = trajectory.begin_turn(memory)
        now.thought = each["thought"]
        system = segment("system", "system", "You answer a question with a search tool and a memory.")
        user = [segment("user", "question", task.question), segment("user", "memory", memory)]
        talk = trajectory.converse(Conversation.start([system], user))
        _say(trajectory, talk, now, _act(each["thought"], each["query"]))
        _search(now, each)
        _show(talk, each)
        _say(trajectory, talk, now, f"<memory>{each['memory']}</memory>", "remember")
        memory = now.memory_after = each["memory"]
        for name in each["events"]:
            now.event(name, "a detail")
    if answer is not None:
        now = trajectory.begin_turn(memory)
        now.thought = "The memory has the answer."
        system = segment("system", "system", "You answer a question with a search tool and a memory.")
        user = [segment("user", "question", task.question), segment("user", "memory", memory)]
        talk = trajectory.converse(Conversation.start([system], user))
        _say(trajectory, talk, now, f"<think>{now.thought}</think>\n\\boxed{{{answer}}}")
        trajectory.answer = answer
    return trajectory


def react(turns, answer, task=CAPITAL, sample=0, reward=None, advantage=None, **more):
    """A ReAct trajectory: one conversation that grows, no memory."""
    trajectory = _begin(task, "react", sample, reward, advantage, more)
    system = segment("system", "system", "Think in <think>, search in <search>, answer in <answer>.")
    talk = trajectory.converse(Conversation.start([system], [segment("user", "question", task.question)]))
    for each in turns:
        now = trajectory.begin_turn()
        now.thought = each["thought"]
        _say(trajectory, talk, now, f"<think>{each['thought']}</think> <search>{each['query']}</search>")
        _search(now, each)
        _show(talk, each)
    now = trajectory.begin_turn()
    _say(trajectory, talk, now, f"<answer>{answer}</answer>")
    trajectory.answer = answer
    return trajectory


def mem1(turns, answer, task=CAPITAL, sample=0, **more):
    """A MEM1 trajectory: each turn sees the last state and observation; the state is its memory."""
    trajectory = _begin(task, "mem1", sample, None, None, more)
    state, last = "", None
    for each in turns:
        now = trajectory.begin_turn(state)
        user = [segment("user", "question", task.question), segment("user", "memory", state)]
        talk = trajectory.converse(Conversation.start([segment("system", "system", "Keep a state.")], user))
        if last:
            _show(talk, last)
        _say(trajectory, talk, now, f"<think>{each['memory']}</think> <search>{each['query']}</search>")
        _search(now, each)
        state = now.memory_after = each["memory"]
        last = each
    now = trajectory.begin_turn(state)
    talk = trajectory.converse(Conversation.start([], [segment("user", "memory", state)]))
    _say(trajectory, talk, now, f"<answer>{answer}</answer>")
    trajectory.answer = answer
    return trajectory


GOOD_TURNS = [
    turn("export partners of Cote d'Ivoire", [PARTNERS], LINK, "I need the export partners of Cote d'Ivoire."),
    turn("capital of Ghana", [ACCRA, NIGER], f"{LINK} {KNOWN}", "I need the capital of Ghana."),
]
LOSING_TURNS = [
    *GOOD_TURNS,
    turn(
        "largest city of Ghana",
        [NIGER],
        "The largest city of Ghana is Kumasi. The main trade partner of Cote d'Ivoire is Ghana.",
        "Is that the largest city?",
        ("memory_cut",),
    ),
]


def stories():
    """One run: a group with rewards that differ, a group with none that do, and other agents on the first question."""
    other = Task("wife", "Who was the first wife of the author?", ("Ann", "Anne"))
    blank = [turn("the author's wife", [], "", "Who is the author?", ("missing_memory",))]
    return [
        attempt(GOOD_TURNS, "Accra", sample=0, reward=1.0, advantage=1.21),
        attempt(LOSING_TURNS, "Kumasi", sample=1, reward=0.0, advantage=-0.57),
        attempt([GOOD_TURNS[0]], "Ghana", sample=2, reward=0.1, advantage=-0.44),
        attempt([GOOD_TURNS[0]], None, sample=3, error="EngineFailure: the server went away"),
        *(attempt(blank, "Mary", task=other, sample=sample, reward=0.0, advantage=0.0) for sample in range(3)),
        react([GOOD_TURNS[0], turn("capital of Ghana city", [ACCRA, NIGER], None)], "Accra", reward=1.0),
        mem1(GOOD_TURNS, "Accra"),
    ]


def _begin(task, agent, sample, reward, advantage, more):
    limits = Limits(turns=6)
    return Trajectory(task, agent, limits, sample, reward=reward, advantage=advantage, seconds=1.5, **more)


def _act(thought, query):
    call = json.dumps({"name": "search", "arguments": {"query": query}})
    return f"<think>{thought}</think>\n<tool_call>{call}</tool_call>"


def _search(now, each):
    observation = Observation("" if each["passages"] else "No passages found.", tuple(each["passages"]))
    now.steps.append(Step(Action("search", {"query": each["query"]}), observation))


def _show(talk, each):
    texts = [f"[{number}] {p.title}\n{p.text}" for number, p in enumerate(each["passages"], 1)]
    talk.tell([segment("user", "observation", text) for text in texts or ["No passages found."]])


def _say(trajectory, talk, now, text, purpose="act"):
    said = segment("assistant", "reply", text, trained=True)
    before = len(talk.token_ids)
    number = next(n for n, each in enumerate(trajectory.conversations) if each is talk)
    now.calls.append(Call(purpose, number, len(talk.segments), "stop", before, len(said.token_ids)))
    talk.segments.append(said)
