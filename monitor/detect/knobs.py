"""What a remedy is called where the run's framework is configured. Names as of TRL 1.16, verl 0.6 to 0.9, slime 0.2, tinker-cookbook 0.6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KNOBS: Mapping[str, Mapping[str, str]] = {
    "lr": {
        "trl": "learning_rate",
        "verl": "actor_rollout_ref.actor.optim.lr",
        "slime": "--lr",
        "tinker": "learning_rate",
        "rlvitals": "lr",
    },
    "kl": {
        "trl": "beta",
        "verl": "actor_rollout_ref.actor.kl_loss_coef",
        "slime": "--kl-loss-coef",
        "tinker": "kl_penalty_coef",
        "rlvitals": "kl",
    },
    "clip high": {
        "trl": "epsilon_high",
        "verl": "actor_rollout_ref.actor.clip_ratio_high",
        "slime": "--eps-clip-high",
        "rlvitals": "clip_high",
    },
    "entropy": {
        "trl": "entropy_coef",
        "verl": "actor_rollout_ref.actor.entropy_coeff",
        "slime": "--entropy-coef",
        "rlvitals": "entropy",
    },
    "weights": {
        "trl": "vllm_importance_sampling_cap",
        "verl": "algorithm.rollout_correction.rollout_is_threshold",
        "slime": "--use-tis",
        "rlvitals": "correction",
    },
    "epochs": {"trl": "num_iterations", "verl": "actor_rollout_ref.actor.ppo_epochs", "tinker": "num_substeps", "rlvitals": "epochs"},
    "grad clip": {"trl": "max_grad_norm", "verl": "actor_rollout_ref.actor.grad_clip", "slime": "--clip-grad", "rlvitals": "grad_clip"},
    "length": {
        "trl": "max_completion_length",
        "verl": "data.max_response_length",
        "slime": "--rollout-max-response-len",
        "tinker": "max_tokens",
        "rlvitals": "max_length",
    },
    "mask truncated": {"trl": "mask_truncated_completions"},
    "temperature": {
        "trl": "temperature",
        "verl": "actor_rollout_ref.rollout.temperature",
        "slime": "--rollout-temperature",
        "tinker": "temperature",
        "rlvitals": "temperature",
    },
    "filter": {"verl": "algorithm.filter_groups.enable", "slime": "--dynamic-sampling-filter-path", "tinker": "remove_constant_reward_groups"},
    "aux weight": {"trl": "reward_weights", "rlvitals": "aux"},
    "scale": {"trl": "scale_rewards", "verl": "algorithm.norm_adv_by_std_in_grpo"},
    "lag": {"verl": "async_training.staleness_threshold", "tinker": "async_config.max_steps_off_policy", "rlvitals": "lag"},
}
"""Knob -> framework -> setting. A framework without an entry has no such setting, or none that we know."""


def named(knobs: Iterable[str], framework: str | None) -> str:
    """`` Settings: `a`, `b`.`` for the run's framework; empty when it is unknown or has none of them."""
    if framework is None:
        return ""
    base = framework.split("-")[0]
    found = [f"`{name}`" for knob in knobs if (name := KNOBS[knob].get(base)) is not None]
    return f" Settings: {', '.join(found)}." if found else ""
