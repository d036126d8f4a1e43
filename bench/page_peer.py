"""Shows the same series in another tracker, inside that tracker's own environment: ``page_peer.py TOOL FOLDER METRICS STEPS PORT``.

Stores the series, prints ``ready PATH`` and serves until it is killed.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

from page_series import value


def trackio(folder: str, metrics: int, steps: int, port: int) -> None:
    os.environ["TRACKIO_DIR"] = folder
    import trackio as tool

    table = f"{folder}/series.csv"
    with Path(table).open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["step", *(f"metric_{m}" for m in range(metrics))])
        writer.writerows([step, *(value(m, step) for m in range(metrics))] for step in range(steps))
    tool.import_csv(table, project="bench", name="run")
    tool.show(project="bench", open_browser=False, block_thread=False, host="127.0.0.1", server_port=port)
    print("ready /?project=bench", flush=True)
    while True:
        time.sleep(1)


def mlflow(folder: str, metrics: int, steps: int, port: int) -> None:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(store)
    run = client.create_run(client.create_experiment("bench")).info
    points = [Metric(f"metric_{m}", value(m, step), 1_700_000_000_000 + 1000 * step, step) for step in range(steps) for m in range(metrics)]
    for at in range(0, len(points), 1000):
        client.log_batch(run.run_id, metrics=points[at : at + 1000])
    client.set_terminated(run.run_id)
    server = ["-m", "mlflow", "server", "--backend-store-uri", store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    print(f"ready /#/experiments/{run.experiment_id}/runs/{run.run_id}/model-metrics", flush=True)
    subprocess.run([sys.executable, *server], check=True)


if __name__ == "__main__":
    {"trackio": trackio, "mlflow": mlflow}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
