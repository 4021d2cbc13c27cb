"""The report stage as a component."""

from kfp import dsl

from components.images import IMAGE_CPU


@dsl.component(base_image=IMAGE_CPU, install_kfp_package=False)
def report(
    problems: dsl.Input[dsl.Dataset],
    held_out: dsl.Input[dsl.Dataset],
    curated: dsl.Input[dsl.Dataset],
    probe: dsl.Input[dsl.Artifact],
    trained: dsl.Input[dsl.Model],
    base_evaluation: dsl.Input[dsl.Artifact],
    trained_evaluation: dsl.Input[dsl.Artifact],
    promotion: dsl.Input[dsl.Artifact],
    written: dsl.Output[dsl.Artifact],
    page: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Writes one self-contained HTML page about the run, and closes the tracked run. Never cached.

    Args:
        problems: Output of the import stage, to train on.
        held_out: Output of the import stage, to evaluate on.
        curated: Output of curate.
        probe: Output of probe.
        trained: Output of train.
        base_evaluation: Evaluation of the base model.
        trained_evaluation: Evaluation of the trained model.
        promotion: Output of promote.
        written: The page and its numbers.
        page: The page, as the KFP UI shows it.
        metrics: The seconds that each stage took.
        summary: The same as a table.
    """
    from pathlib import Path

    from components import summaries
    from components.stage_task import close_run, made_by, show_text, stage_task
    from microcoder_core.stages import report as stage

    stages = {"curated": curated, "probe": probe, "trained": trained}
    stages |= {"base_evaluation": base_evaluation, "trained_evaluation": trained_evaluation, "promotion": promotion}
    runs, seconds = made_by([problems, held_out, *stages.values()])
    with stage_task("report", [written], metrics, summary) as task:
        paths = {name: Path(artifact.path) for name, artifact in stages.items()} | {"out": Path(written.path)}
        file = stage.report(stage.ReportConfig(), **paths, seconds=seconds, tracker=task.tracker)
        show_text(page, file.read_text(encoding="utf-8"))
        task.finish(summaries.of_seconds(seconds))
    close_run(runs)
