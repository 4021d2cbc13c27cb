"""The curate stage as a component."""

from kfp import dsl

from components.images import IMAGE_CPU


@dsl.component(base_image=IMAGE_CPU, install_kfp_package=False)
def curate(
    problems: dsl.Input[dsl.Dataset],
    held_out: dsl.Input[dsl.Dataset],
    overrides: list[str],
    curated: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Cleans problems, and leaves out repeats and what is also in the held-out problems.

    Args:
        problems: Problems to train on.
        held_out: Problems that no training problem may repeat.
        overrides: Settings of the stage, each `key=value`.
        curated: The data set to train on.
        metrics: Problems in, kept, dropped by reason.
        summary: The same as a table.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task
    from microcoder_core.stages import curate as stage

    with stage_task("curate", [curated], metrics, summary) as task:
        config = settings.of_curate(overrides)
        exclude = [Path(held_out.path)]
        manifest = stage.curate(config, problems=Path(problems.path), exclude=exclude, out=Path(curated.path), tracker=task.tracker)
        task.finish(summaries.of_dataset(manifest))
