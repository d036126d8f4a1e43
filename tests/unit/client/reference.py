"""The catalogue's formulas, written down once more in numpy float64, one sequence and one token at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np

from monitor.metrics import HISTOGRAM_BY_NAME


def token_metrics(
    logp: np.ndarray,
    behaviour: np.ndarray,
    mask: np.ndarray,
    old: np.ndarray,
    ref: np.ndarray,
    entropy: np.ndarray,
    advantages: np.ndarray,
    removed: np.ndarray,
    eps_low: float,
    eps_high: float,
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Metrics of a whole batch [B, T] with boolean ``mask`` and ``advantages`` [B]."""
    out: dict[str, float] = {"batch.tokens": float(mask.sum())}
    if not mask.any():
        return out, {}
    w = np.exp(logp - behaviour)[mask]
    out["iw.max"], out["iw.mean"], out["iw.min"] = w.max(), w.mean(), w.min()
    out["iw.ess"] = w.sum() ** 2 / (len(w) * (w**2).sum())
    out["iw.clip_frac"] = (w > 2).mean()
    out["iw.mask_frac"] = removed[mask].mean()
    gaps = [(logp - behaviour)[i][mask[i]] for i in range(len(mask)) if mask[i].any()]
    out["iw.seq_max"] = np.max([np.exp(gap.mean()) for gap in gaps])
    out["iw.seq_log_absmax"] = np.max([abs(gap.sum()) for gap in gaps])
    out["entropy.mean"] = entropy[mask].mean()
    out["kl_ref.k1"] = (logp - ref)[mask].mean()
    out["kl_ref.k3"] = _k3((logp - ref)[mask]).mean()
    out["mismatch.kl.k3"] = _k3((behaviour - old)[mask]).mean()
    out["mismatch.logp_absdiff.mean"] = np.abs(old - behaviour)[mask].mean()
    out["mismatch.logp_absdiff.max"] = np.abs(old - behaviour)[mask].max()
    ratio = np.exp(logp - old)[mask]
    out["ratio.mean"], out["ratio.max"] = ratio.mean(), ratio.max()
    out["update.kl_old.k3"] = _k3((old - logp)[mask]).mean()
    sign = np.broadcast_to(advantages[:, None], mask.shape)[mask]
    low, high = (ratio < 1 - eps_low) & (sign < 0), (ratio > 1 + eps_high) & (sign > 0)
    out["update.clip_frac_low"], out["update.clip_frac_high"], out["update.clip_frac"] = low.mean(), high.mean(), (low | high).mean()
    return out, {"iw.hist": HISTOGRAM_BY_NAME["iw.hist"].count(w.tolist())}


def _k3(gap: np.ndarray) -> np.ndarray:
    return np.expm1(-gap) + gap


def repetition(ids: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    trained = int(mask.sum())
    if not trained:
        return {}
    same = sum(mask[i, t] and ids[i, t] == ids[i, t - 1] for i in range(len(ids)) for t in range(1, ids.shape[1]))
    out = {"rep.adjacent_frac": same / trained, "rep.top1_share": Counter(ids[mask].tolist()).most_common(1)[0][1] / trained}
    grams = [[tuple(ids[i, t : t + 4]) for t in range(ids.shape[1] - 3) if mask[i, t : t + 4].all()] for i in range(len(ids))]
    if total := sum(map(len, grams)):
        out["rep.ngram_frac"] = 1 - sum(len(set(one)) for one in grams) / total
    return out


def batch_metrics(
    task: np.ndarray, style: np.ndarray, groups: list[int], advantages: np.ndarray, lengths: np.ndarray, truncated: np.ndarray, stale: np.ndarray
) -> tuple[dict[str, float], dict[str, list[int]]]:
    total = task + style
    members = {g: [i for i, other in enumerate(groups) if other == g] for g in set(groups)}
    passed = np.mean([all(task[i] >= 1 for i in m) for m in members.values()])
    failed = np.mean([all(task[i] <= 0 for i in m) for m in members.values()])
    apart = np.concatenate([total[m] - total[m].mean() for m in members.values()])
    aux_apart = np.concatenate([style[m] - style[m].mean() for m in members.values()])
    out = {
        **({"reward.aux.share": (apart * aux_apart).sum() / (apart**2).sum()} if (apart**2).sum() else {}),
        "reward.task.mean": task.mean(),
        "reward.pass_rate": (task >= 1).mean(),
        "reward.aux.mean": style.mean(),
        "reward.aux.style.mean": style.mean(),
        "reward.total.mean": total.mean(),
        "reward.total.std": total.std(),
        "reward.total.max": total.max(),
        "reward.total.min": total.min(),
        "group.all_pass_frac": passed,
        "group.all_fail_frac": failed,
        "group.mixed_frac": 1 - passed - failed,
        "group.zero_var_frac": np.mean([len({total[i] for i in m}) == 1 for m in members.values()]),
        "group.reward_std": np.mean([total[m].std() for m in members.values()]),
        "adv.mean": advantages.mean(),
        "adv.abs_max": np.abs(advantages).max(),
        "adv.nonzero_frac": (np.abs(advantages) > 1e-8).mean(),
        "len.completion.mean": lengths.mean(),
        "len.completion.min": lengths.min(),
        "len.completion.max": lengths.max(),
        "len.completion.p05": np.percentile(lengths, 5),
        "len.completion.p50": np.percentile(lengths, 50),
        "len.completion.p95": np.percentile(lengths, 95),
        "len.truncated_frac": truncated.mean(),
        "stale.mean": stale.mean(),
        "stale.max": stale.max(),
        "batch.sequences": float(len(task)),
        "batch.groups": float(len(members)),
    }
    hists = {
        "adv.hist": HISTOGRAM_BY_NAME["adv.hist"].count(advantages.tolist()),
        "len.completion.hist": HISTOGRAM_BY_NAME["len.completion.hist"].count(lengths.tolist()),
    }
    return {name: float(value) for name, value in out.items()}, hists
