"""The training pipeline.

import(train), import(held out) -> curate -> probe -> train -> evaluate(base), evaluate(trained) -> promote -> report
"""

from typing import NamedTuple

from kfp import dsl, kubernetes
from kfp.dsl.pipeline_task import PipelineTask

from components.curate.component import curate
from components.evaluate.component import evaluate
from components.import_problems.component import import_problems
from components.open_run.component import open_run
from components.probe.component import probe
from components.promote.component import promote
from components.report.component import report
from components.train.component import train

NAME = "microcoder-train"
TRACKING_CONFIG_MAP = "microcoder-tracking"
"""Optional ConfigMap whose key MLFLOW_TRACKING_URI names the MLflow server."""

TITLES = {
    "open-run": "open run",
    "import-problems": "import",
    "import-problems-2": "import held-out",
    "curate": "curate",
    "evaluate": "evaluate base",
    "probe": "probe",
    "train": "train",
    "evaluate-2": "evaluate trained",
    "promote": "promote",
    "report": "report",
}
"""Title of each task by KFP's name for it (a component's second use gets `-2`), in the order in which one machine runs them."""


class Outputs(NamedTuple):
    """What a run of the pipeline leaves."""

    problems: dsl.Dataset
    held_out: dsl.Dataset
    curated: dsl.Dataset
    probe: dsl.Artifact
    model: dsl.Model
    base_evaluation: dsl.Artifact
    trained_evaluation: dsl.Artifact
    promotion: dsl.Artifact
    report: dsl.Artifact


def _in_every_task(task: PipelineTask) -> None:
    """Names the task, and tells it which pipeline run it is in.

    The run's id goes in by environment: as a parameter it would enter the cache key, and no stage would ever be cached.
    """
    task.set_display_name(TITLES[task.name])
    kubernetes.use_field_path_as_env(task, "KFP_RUN_ID", "metadata.labels['pipeline/runid']")
    kubernetes.use_config_map_as_env(task, TRACKING_CONFIG_MAP, {"MLFLOW_TRACKING_URI": "MLFLOW_TRACKING_URI"}, optional=True)


@dsl.pipeline(name=NAME, description="Trains a code model with MicroCoder-GRPO, and promotes it if it got better.")
def training(
    model: str = "nano",
    data_format: str = "drills",
    data_source: str = "train",
    data_overrides: list[str] = [],  # noqa: B006 - how KFP declares a default
    probe_overrides: list[str] = [],  # noqa: B006
    train_presets: list[str] = ["microcoder"],  # noqa: B006
    train_overrides: list[str] = [],  # noqa: B006
    eval_format: str = "drills",
    eval_source: str = "held_out",
    eval_overrides: list[str] = [],  # noqa: B006
    promote_model_name: str = "microcoder",
    promote_overrides: list[str] = [],  # noqa: B006
    seed: int = 0,
) -> Outputs:
    """Curates problems, chooses the temperature, trains, evaluates before and after, promotes, reports.

    Args:
        model: Base model: `nano`, a folder, or a name on the Hugging Face hub.
        data_format: Format of the problems to train on.
        data_source: Where they are: a file, a folder, or the name of a split.
        data_overrides: Settings of curate, each `key=value`.
        probe_overrides: Settings of probe, each `key=value`.
        train_presets: Names of training configurations, merged left to right.
        train_overrides: Settings of train above the presets, each `key=value`.
        eval_format: Format of the held-out problems.
        eval_source: Where they are.
        eval_overrides: Settings of both evaluations, each `key=value`.
        promote_model_name: Name of the model in the MLflow registry.
        promote_overrides: Settings of promote, each `key=value`, such as `margin=0.02`.
        seed: Seeds probe, train and both evaluations.
    """
    opened = open_run(
        name=NAME, model=model, data_source=data_source, train_presets=train_presets, train_overrides=train_overrides, seed=seed
    ).set_caching_options(enable_caching=False)
    imported = import_problems(role="train", format=data_format, source=data_source).after(opened)
    held_out = import_problems(role="held_out", format=eval_format, source=eval_source).after(opened)
    curated = curate(problems=imported.outputs["problems"], held_out=held_out.outputs["problems"], overrides=data_overrides)
    probed = probe(
        model=model,
        problems=curated.outputs["curated"],
        train_presets=train_presets,
        train_overrides=train_overrides,
        overrides=probe_overrides,
        seed=seed,
    )
    trained = train(
        model=model,
        problems=curated.outputs["curated"],
        probe=probed.outputs["measured"],
        presets=train_presets,
        overrides=train_overrides,
        seed=seed,
    )
    base = evaluate(role="base", model=model, problems=held_out.outputs["problems"], overrides=eval_overrides, seed=seed)
    better = evaluate(
        role="trained",
        model=model,
        problems=held_out.outputs["problems"],
        overrides=eval_overrides,
        seed=seed,
        trained=trained.outputs["trained"],
    )
    promoted = promote(
        base=base.outputs["evaluation"],
        evaluation=better.outputs["evaluation"],
        trained=trained.outputs["trained"],
        model_name=promote_model_name,
        overrides=promote_overrides,
    )
    reported = report(
        problems=imported.outputs["problems"],
        held_out=held_out.outputs["problems"],
        curated=curated.outputs["curated"],
        probe=probed.outputs["measured"],
        trained=trained.outputs["trained"],
        base_evaluation=base.outputs["evaluation"],
        trained_evaluation=better.outputs["evaluation"],
        promotion=promoted.outputs["promotion"],
    ).set_caching_options(enable_caching=False)
    for task in (opened, imported, held_out, curated, probed, trained, base, better, promoted, reported):
        _in_every_task(task)
    return Outputs(
        problems=imported.outputs["problems"],
        held_out=held_out.outputs["problems"],
        curated=curated.outputs["curated"],
        probe=probed.outputs["measured"],
        model=trained.outputs["trained"],
        base_evaluation=base.outputs["evaluation"],
        trained_evaluation=better.outputs["evaluation"],
        promotion=promoted.outputs["promotion"],
        report=reported.outputs["written"],
    )
