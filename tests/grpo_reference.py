"""The slow, obvious multi-context GRPO: one conversation at a time, no padding, no batches.

Written from the equation alone. It shares no code with the trainer; it reads trajectories.
"""

from __future__ import annotations

import math

import torch


def advantages(groups, scale="group"):
    """Of each trajectory, its advantage; None for one that takes no part."""
    judged = [[each.reward for each in group if each.error is None and each.reward is not None] for group in groups]
    batch = [reward for rewards in judged for reward in rewards]
    result = []
    for group, rewards in zip(groups, judged, strict=True):
        for each in group:
            if each.error is not None or each.reward is None or len(rewards) < 2:
                result.append(None)
                continue
            advantage = each.reward - sum(rewards) / len(rewards)
            if scale != "none":
                advantage /= deviation(rewards if scale == "group" else batch) + 1e-4
            result.append(advantage)
    return result


def deviation(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def token_logprobs(model, ids):
    """The log-probability of every token but the first, in its own context."""
    logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
    return torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]


def reference_loss(
    groups,
    policy,
    old=None,
    reference=None,
    *,
    average="token",
    scale="group",
    beta=0.0,
    epsilon=0.2,
    delta=None,
    correct_kl=True,
    leave_out_cut=False,
    correction=None,
):
    """The loss of a batch of groups of trajectories, and the share of tokens that were clipped."""
    terms, weights, clipped = [], [], []
    everyone = [each for group in groups for each in group]
    for trajectory, advantage in zip(everyone, advantages(groups, scale), strict=True):
        if advantage is None:
            continue
        kept = conversations(trajectory, leave_out_cut)
        for talk in kept:
            ids, mask = talk.token_ids, talk.loss_mask
            tokens = sum(mask)
            weight = {
                "token": 1,
                "conversation": 1 / tokens,
                "trajectory": 1 / (len(kept) * tokens),
                "trajectory_token": 1 / sum(sum(each.loss_mask) for each in kept),
            }[average]
            new = token_logprobs(policy, ids)
            with torch.no_grad():
                before = new.detach() if old is None else token_logprobs(old, ids)
                base = None if reference is None else token_logprobs(reference, ids)
                gaps = [0.0] * len(ids) if correction is None else sampling_gaps(talk, before)
            for place in range(1, len(ids)):
                if not mask[place]:
                    continue
                ratio = torch.exp(new[place - 1] - before[place - 1])
                bounded = ratio.clamp(1 - epsilon, 1 + epsilon)
                capped = ratio if delta is None else ratio.clamp(max=delta)
                term = torch.min(capped * advantage, bounded * advantage)
                if correction == "token_truncate":
                    term = term * min(math.exp(gaps[place]), 3.0)
                elif correction == "sequence_mask":
                    term = term * (math.exp(sum(gaps)) if math.exp(sum(gaps)) <= 3.0 else 0.0)
                clipped.append(bool((ratio - bounded).abs() > 0))
                if base is not None:
                    gap = base[place - 1] - new[place - 1]
                    kl = torch.exp(gap) - gap - 1
                    term = term - beta * kl * (ratio if correct_kl else 1)
                terms.append(weight * term)
                weights.append(weight)
    return -sum(terms) / sum(weights), sum(clipped) / len(clipped)


def sampling_gaps(talk, before):
    """Of each token, how much likelier the trainer takes it for than the sampler did; 0 where none was sampled."""
    sampled = [p for part in talk.segments for p in (part.logprobs or [None] * len(part.token_ids))]
    return [0.0 if p is None else float(before[place - 1]) - p for place, p in enumerate(sampled)]


def conversations(trajectory, leave_out_cut):
    cut = {call.conversation for turn in trajectory.turns for call in turn.calls if call.finish == "length"}
    return [talk for number, talk in enumerate(trajectory.conversations) if not (leave_out_cut and number in cut)]


def worst_error(gradients, model):
    """The largest relative error of any parameter's gradient, in the 2-norm."""
    worst = 0.0
    for name, parameter in model.named_parameters():
        wanted = parameter.grad
        worst = max(worst, float((gradients[name].double() - wanted).norm() / wanted.norm()))
    return worst
