"""Scores of an answer against its golds, and the rewards that training makes of them.

EM, F1 and cover-EM follow SQuAD's rule, as the field reports them. That rule knows only
ASCII: it takes `3.5` for `35` and `C++` for `C`, and tells `O’Brien` from `O'Brien`.
`em_unicode` stands beside it and judges such cases as a person would; where the two
differ, the strict one is what published tables hold. Every score lies between 0 and 1
and is the best over all golds. A blank answer scores 0, whatever the golds are.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memsearcher.trajectory import Task, Trajectory

MALFORMED: frozenset[str] = frozenset(
    {
        "answer_and_call",
        "bad_json",
        "call_cut",
        "empty_answer",
        "empty_query",
        "memory_cut",
        "missing_box",
        "missing_memory",
        "missing_query",
        "no_action",
        "no_thought",
        "several_calls",
        "unclosed_memory",
        "unclosed_tag",
        "unknown_tool",
    }
)
"""Events that say a reply broke the format. Any other event is information."""

FORMAT_REWARD = 0.1

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})

# Letters that Unicode does not take apart into a letter and a mark, and typographic signs.
_FOLDS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´ʼ＇", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
        "⁄": "/",
        **{"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"},
    }
)
_DIACRITICS = re.compile("[\u0300-\u036f]")
_CJK = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af]"
_MEANT = re.compile(r"((?<=\d)[.:/-](?=\d)|(?<!\w)-(?=\d)|(?<=\w)[+#]++(?!\w))")
_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"


@dataclass(frozen=True, slots=True)
class Scores:
    """How right an answer is, each from 0 to 1."""

    em: float
    f1: float
    cover_em: float
    em_unicode: float


def score(prediction: str | None, golds: Sequence[str]) -> Scores:
    """Score an answer; None, no answer at all, scores 0.

    Raises:
        ValueError: there is no gold, or one of them is blank.
    """
    answer = prediction or ""
    return Scores(
        exact_match(answer, golds),
        f1(answer, golds),
        cover_exact_match(answer, golds),
        exact_match_unicode(answer, golds),
    )


def score_trajectory(trajectory: Trajectory) -> Scores | None:
    """Score the answer of a trajectory.

    One that ended without an answer, at a limit, is wrong and scores 0. One that failed
    (`error` is set) was never an attempt: it has no score, and None must not be counted as 0.

    Raises:
        ValueError: the task has no golds, or a blank one; the message names the task.
    """
    if trajectory.error is not None:
        return None
    try:
        return score(trajectory.answer, trajectory.task.golds)
    except ValueError as error:
        raise ValueError(f"task {trajectory.task.id}: {error}") from None


def has_goal(task: Task) -> bool:
    """Whether a task is a goal of an environment with an end, as its metadata say, and is judged by its outcome."""
    return isinstance(task.metadata.get("goal"), dict) and not task.golds


def score_outcome(trajectory: Trajectory) -> float | None:
    """The reward that the environment gave at the end of an episode.

    One that came to no end within its limits earned nothing and scores 0; one that failed has no score.

    Raises:
        ValueError: the task is no goal, so no environment would judge it; the message names it.
    """
    if trajectory.error is not None:
        return None
    if not has_goal(trajectory.task):
        raise ValueError(f"task {trajectory.task.id}: no goal of an environment with an end, so it has no outcome")
    return trajectory.outcome.reward if trajectory.outcome else 0.0


def check_golds(golds: Sequence[str]) -> None:
    """Refuse golds that nothing can be compared with.

    Raises:
        ValueError: there is none, one is blank, or they are one string and not a list.
    """
    if isinstance(golds, str):
        raise ValueError(f"golds must be a list of answers, not the single text {golds!r}")
    if not golds:
        raise ValueError("there are no golds, so no answer can be scored")
    for place, gold in enumerate(golds):
        if not gold.strip():
            raise ValueError(f"golds[{place}] is blank: every answer, or none, would match it; take it out")


def normalize(text: str) -> str:
    """SQuAD's normal form: lower case, ASCII punctuation and a/an/the taken out, single spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def normalize_unicode(text: str) -> str:
    """A normal form under which two answers are equal where a reader would say so.

    On top of SQuAD's rule: compatibility forms (NFKC), diacritics, curly quotes and dashes
    are folded; punctuation goes in any script, but for a point, colon, slash or dash between
    digits (`3.5`, `2:1`, `1/2`, `1914-1918`), a number's minus, and the plus or sharp behind
    a word (`C++`); a currency sign is a word, so that `€5` is not `$5`, but for the dollar's,
    which SQuAD drops; thousands lose their comma; `5km` is `5 km`; `July 4, 1776` is
    `4 July 1776`; spaces between CJK characters do not count. An article goes only before a
    word of its own (not in `Serie A`, `The The`), and punctuation stays where it is all there
    is (`!!!`), so no text but a blank one comes out empty.
    """
    folded = _fold(text)
    bare = _take_out_punctuation(folded)
    dated = re.sub(rf"\b({_MONTH}) 0?(\d{{1,2}})(?:st|nd|rd|th)?\b", r"\2 \1", bare)
    dated = re.sub(rf"\b0?(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_MONTH})\b", r"\1 \2", dated)
    words = re.sub(r"\b(?:a|an|the) (?!(?:a|an|the)\b)", "", dated)
    words = re.sub(r"\b(\d+(?:\.\d+)?)(?=[^\W\d_])", r"\1 ", words)
    words = re.sub(rf"(?<={_CJK})\s+(?={_CJK})", "", words)
    return " ".join(words.split()) or folded or text.strip()


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1 where the answer equals a gold in SQuAD's normal form, else 0.

    Raises:
        ValueError: golds that `check_golds` refuses; so do the other metrics.
    """
    return _best(prediction, golds, lambda answer, gold: float(normalize(answer) == normalize(gold)))


def exact_match_unicode(prediction: str, golds: Sequence[str]) -> float:
    """1 where the answer equals a gold in the normal form of `normalize_unicode`, else 0."""
    return _best(prediction, golds, _equal_unicode)


def cover_exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1 where a gold is a substring of the answer, both in SQuAD's normal form, else 0.

    Letters are compared and not words, as in the field: `Germany` covers `man`. A gold that
    SQuAD's rule empties (`A`, `The The`) would be covered by everything: an answer must equal
    it in the normal form of `normalize_unicode`, which keeps it.
    """
    return _best(prediction, golds, _cover)


def f1(prediction: str, golds: Sequence[str]) -> float:
    """The harmonic mean of token precision and recall in SQuAD's normal form.

    `yes`, `no` and `noanswer` earn all or nothing, as HotpotQA has it. A gold that SQuAD's
    rule empties has no tokens: an answer must equal it in the normal form of
    `normalize_unicode`. (SQuAD 2 gives such a gold 1 for any answer that is emptied too,
    HotpotQA always 0.)
    """
    return _best(prediction, golds, _token_f1)


def reward(name: str, trajectory: Trajectory) -> float | None:
    """The reward of a trajectory by the rule `name`: `em`, `f1`, `format_f1` or `outcome`; None for one that failed.

    `em` and `f1` are those scores, 0 without an answer. `outcome` is what the environment gave
    (see `score_outcome`).

    `format_f1` is 0 without an answer or where any turn has a `MALFORMED` event, and
    0.1 + 0.9 F1 otherwise. It is the MemSearcher paper's idea; the official code gives F1,
    or 0.1 where that is 0. The differences:

    - it rises with F1: theirs puts an answer with F1 0.05 below a wrong one;
    - an empty box is no answer: theirs gives it 0.1;
    - the answer is the one the agent took from the model's act reply: theirs looks for a box
      in the last conversation, where one inside the memory reply, or in an example of the
      prompt, earns the full reward;
    - the format of every conversation counts: theirs reads the last one only. A call to an
      unknown tool, an empty query, several calls, a call beside an answer and a reply cut at
      its limit break the format here.

    Raises:
        ValueError: an unknown name, or a task without golds, of `outcome` without a goal.
    """
    if name not in REWARDS:
        raise ValueError(f"unknown reward {name!r}; there are: {', '.join(REWARDS)}")
    if name == "outcome":
        return score_outcome(trajectory)
    scores = score_trajectory(trajectory)
    return None if scores is None else _ANSWER_REWARDS[name](trajectory, scores)


def _format_f1(trajectory: Trajectory, scores: Scores) -> float:
    broken = any(event.name in MALFORMED for _, event in trajectory.events)
    if broken or _blank(trajectory.answer or ""):
        return 0.0
    return FORMAT_REWARD + (1 - FORMAT_REWARD) * scores.f1


_ANSWER_REWARDS: dict[str, Callable[[Trajectory, Scores], float]] = {
    "em": lambda _, scores: scores.em,
    "f1": lambda _, scores: scores.f1,
    "format_f1": _format_f1,
}
REWARDS: tuple[str, ...] = (*_ANSWER_REWARDS, "outcome")


def _blank(text: str) -> bool:
    return not text.strip()


def _best(prediction: str, golds: Sequence[str], metric: Callable[[str, str], float]) -> float:
    check_golds(golds)
    return 0.0 if _blank(prediction) else max(metric(prediction, gold) for gold in golds)


def _equal_unicode(prediction: str, gold: str) -> float:
    return float(normalize_unicode(prediction) == normalize_unicode(gold))


def _cover(prediction: str, gold: str) -> float:
    wanted = normalize(gold)
    return float(wanted in normalize(prediction)) if wanted else _equal_unicode(prediction, gold)


def _token_f1(prediction: str, gold: str) -> float:
    answer, wanted = normalize(prediction), normalize(gold)
    if not wanted:
        return _equal_unicode(prediction, gold)
    if answer != wanted and not _ALL_OR_NOTHING.isdisjoint((answer, wanted)):
        return 0.0
    answer_tokens, wanted_tokens = answer.split(), wanted.split()
    shared = sum((Counter(answer_tokens) & Counter(wanted_tokens)).values())
    return 2 * shared / (len(answer_tokens) + len(wanted_tokens))


def _fold(text: str) -> str:
    """Lower case without diacritics, compatibility forms, typographic quotes and dashes; single spaces."""
    # A superscript or a fraction behind a number is not one more digit of it: 10² is not 102.
    text = re.sub(r"(?<=\d)(?=[²³¹⁰⁴-⁹¼-¾⅐-⅞])", " ", text)
    # Quotes before NFKC, which takes ´ for a space and a mark. Only the marks of Latin, Greek and
    # Cyrillic are taken off: in other scripts (Hindi vowels, Japanese voicing) they make the word.
    apart = unicodedata.normalize("NFKD", text.translate(_FOLDS))
    plain = unicodedata.normalize("NFKC", _DIACRITICS.sub("", apart)).casefold()
    return " ".join(plain.translate(_FOLDS).split())


def _take_out_punctuation(text: str) -> str:
    """Text without the signs that carry no meaning; `text` is folded."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace(",", " ")
    text = re.sub(r"(?<=\d) ?- ?(?=\d)", "-", text)
    # Splitting by a group leaves what it matched at the odd places.
    pieces = (piece if place % 2 else "".join(map(_bare, piece)) for place, piece in enumerate(_MEANT.split(text)))
    return " ".join("".join(pieces).split())


def _bare(character: str) -> str:
    """What is left of a character: nothing of punctuation and invisible signs."""
    kind = unicodedata.category(character)
    if character in string.punctuation or kind[0] == "P" or kind == "Cf":
        return ""
    return f" {character} " if kind == "Sc" else character
