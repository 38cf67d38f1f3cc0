"""Conversations as rows of a batch: ragged, weighted, and run a few at a time.

A row is one conversation: the tokens up to the first one that was sampled are its prompt,
the rest is its completion. Rows of one trajectory share an owner and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from memsearcher.engines.prefix import common
from memsearcher.trajectory import Conversation, Segment, Trajectory

NOBODY = -1
"""The owner of a filler row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation as the loss sees it.

    Attributes:
        owner: place of its trajectory in this process's batch.
        prompt_ids: tokens before the first sampled one.
        completion_ids: the sampled tokens and what stands between them, up to the last sampled one.
        mask: 1 for each sampled token of the completion, 0 for every other.
        logprobs: log-probability of each sampled token when it was sampled, 0.0 for every other
            token; None where the backend gave none.
    """

    owner: int
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None

    @property
    def trained(self) -> int:
        """Sampled tokens; 0 in a filler row."""
        return sum(self.mask)


def rows_of(trajectory: Trajectory, owner: int, leave_out_cut: bool = False, train_memory: bool = True) -> list[Row]:
    """The rows of a trajectory, in order; a failed trajectory has none.

    Args:
        leave_out_cut: leave out conversations in which a reply was cut at its token limit.
        train_memory: train calls that write a memory (`remember`) too. Without them, a conversation
            that holds no other call is left out.

    Raises:
        ValueError: a conversation in which nothing was sampled, which no loss can train.
    """
    if trajectory.error is not None:
        return []
    cut = {call.conversation for call in trajectory.calls if call.finish == "length"} if leave_out_cut else set()
    left_out: defaultdict[int, set[int]] = defaultdict(set)
    for call in trajectory.calls:
        if call.purpose == "remember" and not train_memory:
            left_out[call.conversation].add(call.segment)
    rows = []
    for number, conversation in enumerate(trajectory.conversations):
        ids, mask = conversation.token_ids, conversation.loss_mask
        if ids is None or mask is None or 1 not in mask:
            raise ValueError(
                f"agent {trajectory.agent!r} left conversation {number + 1} of {trajectory.id} without a sampled "
                "token; an agent must ask the model in every conversation that it starts"
            )
        if number in left_out:
            mask = conversation.mask_without(left_out[number]) or []
        if number in cut or 1 not in mask:
            continue
        first = mask.index(1)
        last = len(mask) - mask[::-1].index(1)
        logprobs = _logprobs(conversation)
        rows.append(
            Row(
                owner,
                ids[:first],
                ids[first:last],
                mask[first:last],
                None if logprobs is None else logprobs[first:last],
            )
        )
    return rows


def filler(token: int, logprobs: bool) -> Row:
    """A row that weighs nothing: two tokens, none of them trained."""
    return Row(NOBODY, [token], [token], [0], [0.0] if logprobs else None)


def row_weights(rows: Sequence[Row], average: str, counted: Sequence[bool]) -> list[float]:
    """What a trained token of each row weighs in the loss, before the division by their sum.

    With m_ij trained tokens in row j of the n_i rows of trajectory i: 1 for the mean over
    tokens, 1/m_ij over conversations, 1/(n_i m_ij) over trajectories and in each over its
    conversations, 1/sum_j m_ij over trajectories and in each over its tokens.

    Args:
        average: `token`, `conversation`, `trajectory` or `trajectory_token`.
        counted: of each trajectory, whether it takes part; rows of the others and fillers weigh 0.
    """
    rows_by_owner: Counter[int] = Counter()
    tokens_by_owner: Counter[int] = Counter()
    for row in rows:
        rows_by_owner[row.owner] += 1
        tokens_by_owner[row.owner] += row.trained
    shares: dict[str, Callable[[Row], float]] = {
        "token": lambda row: 1.0,
        "conversation": lambda row: 1 / row.trained,
        "trajectory": lambda row: 1 / (rows_by_owner[row.owner] * row.trained),
        "trajectory_token": lambda row: 1 / tokens_by_owner[row.owner],
    }
    share = shares[average]
    return [share(row) if row.owner != NOBODY and counted[row.owner] else 0.0 for row in rows]


def plan_evenly(
    rows: Sequence[Sequence[int]],
    idle: Sequence[bool],
    plan: Callable[[Sequence[Sequence[int]]], list[list[int]]],
    most: Callable[[int], int],
) -> list[list[int]]:
    """Rows of tokens in chunks, equally many on every process and at least one.

    Args:
        idle: rows that may be left out; the shortest of them make up for chunks that are missing.
        plan: puts rows into chunks (`plan_chunks`, `plan_trees`).
        most: gives the largest of a number over all processes.
    """
    busy = [row for row, rests in enumerate(idle) if not rests]
    spare = sorted(set(range(len(rows))).difference(busy), key=lambda row: len(rows[row]))
    chunks = [[busy[place] for place in chunk] for chunk in plan([rows[row] for row in busy])]
    count = most(max(1, len(chunks)))
    return split_chunks(chunks + [[row] for row in spare[: max(0, count - len(busy))]], count)


def plan_chunks(rows: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Rows of tokens in chunks of like length, each of at most `tokens` tokens when padded to its longest row.

    The longest rows come first, so that a run that lacks memory fails at once. A row that is
    longer than `tokens` is a chunk of its own.
    """
    chunks: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(rows)), key=lambda row: (-len(rows[row]), row)):
        if not chunks or longest * (len(chunks[-1]) + 1) > tokens:
            chunks.append([])
            longest = len(rows[row])
        chunks[-1].append(row)
    return chunks


def plan_trees(rows: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Rows of tokens in chunks of at most `tokens` tokens, those that rows begin with in common counted once.

    Rows that begin alike go together. A chunk's rows hold at most four times `tokens` when padded to
    its longest one, which is what attention sees. The largest chunks come first, so that a run that
    lacks memory fails at once. A row that is longer than `tokens` is a chunk of its own.
    """
    chunks: list[list[int]] = []
    sizes: list[int] = []
    longest = 0
    last: Sequence[int] = ()
    for row in sorted(range(len(rows)), key=lambda row: (list(rows[row]), row)):
        new = len(rows[row]) - common(last, rows[row])
        longest, last = max(longest, len(rows[row])), rows[row]
        if chunks and sizes[-1] + new <= tokens and longest * (len(chunks[-1]) + 1) <= 4 * tokens:
            chunks[-1].append(row)
            sizes[-1] += new
        else:
            chunks.append([row])
            longest = len(rows[row])
            sizes.append(longest)
    order = sorted(range(len(chunks)), key=lambda number: -sizes[number])
    return [chunks[number] for number in order]


def split_chunks(chunks: Sequence[list[int]], count: int) -> list[list[int]]:
    """The same rows in `count` chunks, the largest ones halved; so that all processes run equally many.

    Raises:
        ValueError: fewer rows than chunks are wanted.
    """
    if count > sum(map(len, chunks)):
        raise ValueError(f"{sum(map(len, chunks))} rows cannot be split into {count} chunks")
    chunks = list(chunks)
    while len(chunks) < count:
        place = max(range(len(chunks)), key=lambda number: len(chunks[number]))
        half = math.ceil(len(chunks[place]) / 2)
        chunks[place : place + 1] = [chunks[place][:half], chunks[place][half:]]
    return chunks


def padded(rows: Iterable[Sequence[float]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows as one tensor `[rows, longest]`, padded on the right with zeros."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=dtype) for row in rows], batch_first=True).to(
        device
    )


def whole_rows(inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Prompts with their completions of a batch of TRL's: the ids and their mask, `[rows, prompt + completion]`."""
    ids, mask = ([inputs[f"{part}_{kind}"] for part in ("prompt", "completion")] for kind in ("ids", "mask"))
    return torch.cat(ids, 1), torch.cat(mask, 1)


def unpadded(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The tokens of each row `[rows, length]` that its mask lets stand."""
    return [line[real].tolist() for line, real in zip(ids, mask.bool(), strict=True)]


def take(inputs: dict[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    """The rows of a batch of TRL's, without the padding that none of them needs.

    Prompts are padded on the left, completions and all that goes with them on the right.
    """
    index = torch.tensor(rows, device=inputs["prompt_mask"].device)
    prompt = int(inputs["prompt_mask"][index].sum(1).max())
    width = inputs["completion_mask"].shape[1]
    # TRL's metrics take a width of 1 for one value a row.
    completion = max(2, int(inputs["completion_mask"][index].sum(1).max()))
    taken = {}
    for name, value in inputs.items():
        if value.ndim == 0:
            taken[name] = value
        elif name.startswith("prompt"):
            taken[name] = value[index][:, value.shape[1] - prompt :]
        elif value.ndim == 2 and value.shape[1] == width:
            taken[name] = value[index][:, :completion]
        else:
            taken[name] = value[index]
    return taken


def _logprobs(conversation: Conversation) -> list[float] | None:
    """Sampling log-probabilities along a conversation; None if any reply lacks them."""
    parts = [_segment_logprobs(segment) for segment in conversation.segments]
    return [value for part in parts if part is not None for value in part] if None not in parts else None


def _segment_logprobs(segment: Segment) -> list[float] | None:
    return segment.logprobs if segment.trained else [0.0] * len(segment.token_ids or ())
