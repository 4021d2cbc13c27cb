"""The import stage as a component."""

from kfp import dsl

from components.images import IMAGE_CPU


@dsl.component(base_image=IMAGE_CPU, install_kfp_package=False)
def import_problems(
    role: str,
    format: str,
    source: str,
    problems: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Imports problems from a public format into a data set; counts each record that it leaves out.

    Args:
        role: What the problems are for: `train` or `held_out`.
        format: Format of the source, such as `humaneval`, `jsonl` or `drills`.
        source: A file, a folder or the name of a split, as the format says.
        problems: The data set.
        metrics: Problems in, kept, dropped by reason.
        summary: The same as a table.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task
    from microcoder_core.stages import import_problems as stage

    with stage_task(f"import_{role}", [problems], metrics, summary) as task:
        manifest = stage.import_problems(settings.of_import(format), source=source, out=Path(problems.path), tracker=task.tracker)
        task.finish(summaries.of_dataset(manifest))
