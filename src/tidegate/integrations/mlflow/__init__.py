"""A sink for MLflow."""

import time
from collections.abc import Mapping

from tidegate.runs.sinks import Moment, Source

try:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "mlflow is not installed; pip install 'tidegate[mlflow]'", name="mlflow"
    ) from missing


class MLflow:
    """Logs to one run of an experiment.

    Args:
        experiment: the experiment's name; created if it does not exist.
        tracking_uri: of the tracking server; MLflow's own default, ``MLFLOW_TRACKING_URI``, if
            None.
        run_name: shown in the list of runs.
        run_id: of an earlier MLflow run to continue; a new one if None.
    """

    def __init__(
        self,
        experiment: str,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._client = MlflowClient(tracking_uri)
        known = self._client.get_experiment_by_name(experiment)
        place = known.experiment_id if known else self._client.create_experiment(experiment)
        if run_id is None:
            run_id = self._client.create_run(place, run_name=run_name).info.run_id
        else:
            self._client.update_run(run_id, status="RUNNING")
        self.run_id: str = run_id
        """MLflow's own id of the run."""

    def decided(self, round_number: int, price: float) -> None:
        """Do nothing: the price is logged when the round is settled."""

    def settled(self, moment: Moment) -> None:
        """Log one step of each metric."""
        self._log(moment.done.round_number, moment.numbers(), "tidegate")

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Log one step of each metric."""
        self._log(round_number, metrics, source)

    def close(self, *, failed: bool) -> None:
        """End the MLflow run."""
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")

    def _log(self, step: int, values: Mapping[str, float], group: str) -> None:
        now = int(1000 * time.time())
        metrics = [Metric(f"{group}/{name}", value, now, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics)
