"""Choose the sample trajectories of `data/samples` from run folders: one of each kind, all real.

    python -m scripts.samples RUN [RUN ...] --out data/samples

Kinds that no trajectory of the runs shows are named and left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from memsearcher import jsonl
from memsearcher.scoring import exact_match, normalize
from memsearcher.trajectory import Trajectory, read_trajectories

MALFORMED_MEMORY = {"missing_memory", "unclosed_memory", "memory_cut"}


def has_event(trajectory: Trajectory, *names: str) -> bool:
    return any(event.name in names for _, event in trajectory.events)


def is_right(trajectory: Trajectory) -> bool:
    return trajectory.answer is not None and exact_match(trajectory.answer, trajectory.task.golds) == 1


def is_good(trajectory: Trajectory) -> bool:
    """Right in three hops or more, and nothing out of the ordinary on the way but passages cut as they always are."""
    odd = {event.name for _, event in trajectory.events} - {"passage_cut"}
    return is_right(trajectory) and not odd and trajectory.task.metadata["hops"] >= 3


def lost_a_fact(trajectory: Trajectory) -> bool:
    """An answer of a step stood in one memory and is gone from a later one."""
    memories = [normalize(turn.memory_after or "") for turn in trajectory.turns]
    for step in trajectory.task.metadata["steps"]:
        held = [normalize(step["answer"]) in memory for memory in memories]
        if True in held and not all(held[held.index(True) :]):
            return True
    return False


def wrong_from_right_memory(trajectory: Trajectory) -> bool:
    """The last memory holds a gold answer and the reply gives another."""
    memory = normalize(trajectory.turns[-1].memory_before or "")
    held = any(normalize(gold) in memory.split() for gold in trajectory.task.golds if " " not in normalize(gold))
    return held and trajectory.answer is not None and not is_right(trajectory)


def missed_by_retrieval(trajectory: Trajectory) -> bool:
    """A search brought back none of the passages that the question needs, and the answer is wrong."""
    wanted = set(trajectory.task.metadata["supporting_ids"])
    seen = [step.observation for turn in trajectory.turns for step in turn.steps if step.observation]
    return any(not wanted & {each.id for each in one.passages} for one in seen) and not is_right(trajectory)


KINDS: dict[str, Callable[[Trajectory], bool]] = {
    "malformed-memory": lambda each: has_event(each, *MALFORMED_MEMORY),
    "memory-lost-a-fact": lost_a_fact,
    "wrong-answer-from-a-right-memory": wrong_from_right_memory,
    "turn-limit": lambda each: has_event(each, "turn_limit"),
    "retrieval-miss": missed_by_retrieval,
    "good": is_good,
}


def choose(trajectories: list[Trajectory]) -> dict[str, Trajectory]:
    """The first trajectory of each kind that shows no other kind already chosen."""
    chosen: dict[str, Trajectory] = {}
    for kind, shows in KINDS.items():
        taken = {each.id for each in chosen.values()}
        found = next((each for each in trajectories if each.id not in taken and shows(each)), None)
        if found:
            chosen[kind] = found
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    trajectories = [each for run in arguments.runs for each in read_trajectories(run / "trajectories.jsonl")]
    chosen = choose([each for each in trajectories if each.error is None and each.turns])
    for kind in KINDS:
        if kind not in chosen:
            print(f"{kind}: none of {len(trajectories)} trajectories shows it")
            continue
        jsonl.write(arguments.out / f"{kind}.jsonl", [chosen[kind].to_json()])
        print(f"{kind}: {chosen[kind].id}")


if __name__ == "__main__":
    main()
