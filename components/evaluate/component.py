"""The evaluate stage as a component."""

from typing import Optional

from kfp import dsl

from components.images import IMAGE_GPU


@dsl.component(base_image=IMAGE_GPU, install_kfp_package=False)
def evaluate(
    role: str,
    model: str,
    problems: dsl.Input[dsl.Dataset],
    overrides: list[str],
    seed: int,
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
    trained: Optional[dsl.Input[dsl.Model]] = None,  # noqa: UP045 - what KFP reads
) -> None:
    """Measures pass@k of a model on the held-out problems.

    Args:
        role: Which model this is: `base` or `trained`.
        model: The base model: `nano`, a folder, or a name on the Hugging Face hub.
        problems: Problems to solve.
        overrides: Settings of the stage, each `key=value`.
        seed: Seeds the stage, unless the overrides do.
        evaluation: Scores by problem, completions with their verdicts, and pass@k.
        metrics: pass@k and diversity.
        summary: pass@k over all problems and by difficulty.
        trained: A model to evaluate in place of `model`.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task
    from microcoder_core.stages import evaluate as stage

    with stage_task(f"evaluate_{role}", [evaluation], metrics, summary) as task:
        config = settings.of_evaluation(overrides, seed)
        chosen = trained.path if trained else model
        result = stage.evaluate(config, model=chosen, problems=Path(problems.path), out=Path(evaluation.path), tracker=task.tracker)
        task.finish(summaries.of_evaluation(result))
