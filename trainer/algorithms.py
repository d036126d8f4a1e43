"""Which advantage, surrogate and mean make which algorithm: the family at a glance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Algorithm:
    """``advantage``: none, batch, to_go, grpo, centred, rloo, gae; one, success. ``surrogate``: reinforce, ppo, token, sequence, gspo, gspo_token,
    cispo, ctpo; forward_kl, reverse_kl.

    ``mean``: token, sequence, constant. ``low`` and ``high`` are the clip range, ``dual`` the floor for negative advantages; ``dynamic`` draws
    groups again that have no spread, ``overlong`` adds the soft length penalty. ``source``: who plays the episodes (policy, teacher,
    demonstrator). ``teacher``: whose distribution is the target (strong, informed), if any.
    """

    name: str
    advantage: str
    surrogate: str
    mean: str
    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    dynamic: bool = False
    overlong: bool = False
    source: str = "policy"
    teacher: str = ""
    about: str = ""


ALGORITHMS = (
    Algorithm("reinforce", "batch", "reinforce", "sequence", about="log-likelihood times reward less the batch mean (Williams 1992)"),
    Algorithm("reinforce-plain", "none", "reinforce", "sequence", about="the same without a baseline"),
    Algorithm("reward-to-go", "to_go", "reinforce", "sequence", about="each turn is weighed by the rewards that follow it, less their batch mean"),
    Algorithm("rloo", "rloo", "ppo", "constant", about="the others of the group as baseline (arXiv 2402.14740)"),
    Algorithm("grpo", "grpo", "ppo", "sequence", dual=3.0, about="group mean and spread (arXiv 2402.03300)"),
    Algorithm("drgrpo", "centred", "ppo", "constant", dual=3.0, about="GRPO without spread and length bias (arXiv 2503.20783)"),
    Algorithm("ppo", "gae", "ppo", "token", dual=3.0, about="a learned value as baseline, GAE, clipped ratio (arXiv 1707.06347)"),
    Algorithm(
        "dapo",
        "grpo",
        "ppo",
        "token",
        0.2,
        0.28,
        10.0,
        True,
        True,
        about="clip-higher, token mean, dynamic sampling, overlong penalty (arXiv 2503.14476)",
    ),
    Algorithm("gspo", "grpo", "gspo", "sequence", 3e-4, 4e-4, about="one length-normalised ratio per sequence (arXiv 2507.18071)"),
    Algorithm("gspo-token", "grpo", "gspo_token", "sequence", 3e-4, 4e-4, about="GSPO's ratio in value, the token's in gradient"),
    Algorithm("cispo", "grpo", "cispo", "token", 1.0, 0.28, about="the weight is clipped, the gradient kept (arXiv 2506.13585)"),
    Algorithm(
        "ctpo", "grpo", "ctpo", "token", 0.2, 0.28, about="cumulative ratio, bounds that widen with the root of the position (arXiv 2605.07331)"
    ),
    Algorithm("token-is", "grpo", "token", "token", about="the token's ratio without any clip"),
    Algorithm("sequence-is", "grpo", "sequence", "constant", about="the whole sequence's weight without any clip"),
    Algorithm("sft", "one", "reinforce", "token", source="demonstrator", about="imitation of good demonstrations"),
    Algorithm("rejection", "success", "reinforce", "token", source="teacher", about="a stronger model plays, only its successes are imitated"),
    Algorithm(
        "distill", "one", "forward_kl", "token", source="teacher", teacher="strong", about="the teacher's distribution on the teacher's states"
    ),
    Algorithm("on-policy-distill", "one", "reverse_kl", "token", teacher="strong", about="the teacher's distribution on the student's own states"),
    Algorithm("self-distill", "one", "reverse_kl", "token", teacher="informed", about="the same model, told the answer, teaches itself"),
)
BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}
