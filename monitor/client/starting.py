"""Opening a run: everything that can be wrong is found here, before training begins."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitor import wire
from monitor.client.checks import (
    SetupError,
    check_choice,
    check_config,
    check_folder,
    check_label,
    check_names,
    check_rank,
    check_requests,
    check_token,
    check_url,
)
from monitor.client.identity import new_id, remember, run_id
from monitor.client.run import Run
from monitor.client.spool import Spool, default_root

DEFAULT_URL = "http://127.0.0.1:8900"


def start(
    project: str,
    name: str,
    config: Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    *,
    signal: str = "reward",
    task_reward: str | None = None,
    aux_rewards: Sequence[str] = (),
    tags: Sequence[str] = (),
    resume: str = "auto",
    url: str | None = None,
    token: str | None = None,
    spool_dir: str | Path | None = None,
    accepts: Sequence[str] = (),
    rank: int | None = None,
) -> Run:
    """Open a run, or a further attempt of it, and return at once; the collector need not be up.

    ``config`` is what the experiment was asked to do. ``signal`` says what drives learning (``reward``, ``teacher_kl``,
    ``environment_loss``); ``task_reward`` and ``aux_rewards`` name the reward keys that are the task and those that only help.
    ``resume="auto"`` continues the last run of this project and name unless it finished or still lives, ``"never"`` begins a new one, a
    run's id continues that one. ``url`` and ``token`` default to VITALS_URL (else http://127.0.0.1:8900) and VITALS_TOKEN, ``spool_dir`` to
    VITALS_SPOOL_DIR (else the user's state folder). ``accepts`` lists the requests the run obeys (``stop``, ``checkpoint``, ``pause``,
    ``resume``). With ``rank=None`` only rank 0 of a distributed job (RANK, SLURM_PROCID) writes and the others get a disabled run; a given
    ``rank`` writes a run of its own, named ``NAME.rankN`` beyond 0.

    Raises SetupError, whose message says what to change.
    """
    if rank is None and _rank() != 0:
        return Run.disabled()
    place = 0 if rank is None else check_rank(rank)
    address = check_url(url if url is not None else os.environ.get("VITALS_URL") or DEFAULT_URL)
    secret = check_token(token if token is not None else os.environ.get("VITALS_TOKEN"))
    label = check_label("name", name if not place else f"{name}.rank{place}")
    root = check_folder(spool_dir) if spool_dir is not None else default_root()
    opening = wire.RunStart(
        run="",
        attempt=new_id(),
        project=check_label("project", project),
        name=label,
        started_at=time.time(),
        algorithm=None if algorithm is None else check_label("algorithm", algorithm),
        signal=check_choice("signal", signal, wire.SIGNALS),
        task_reward=None if task_reward is None else check_label("task_reward", task_reward),
        aux_rewards=check_names("aux_rewards", aux_rewards),
        config=check_config(config),
        tags=check_names("tags", tags),
        accepts=check_requests(accepts),
    )
    opening.run = run_id(root, opening.project, label, resume)
    try:
        spool = Spool.create(root, opening, address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(f"the spool {root} cannot be written ({reason}); pass spool_dir= or set VITALS_SPOOL_DIR to a folder of yours") from None
    remember(root, opening.project, label, run=opening.run, attempt=opening.attempt, state="running")
    return Run(spool, opening, secret)


def _rank() -> int:
    """This process's rank: torch.distributed when it is in use, else what the launcher put into the environment, else 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if (value := os.environ.get(variable, "")).isdecimal():
            return int(value)
    return 0
