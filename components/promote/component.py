"""The promote stage as a component."""

from kfp import dsl

from components.images import IMAGE_CPU


@dsl.component(base_image=IMAGE_CPU, install_kfp_package=False)
def promote(
    base: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    trained: dsl.Input[dsl.Model],
    model_name: str,
    overrides: list[str],
    promotion: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Registers the trained model as challenger, and makes it champion if it is better than the base model by the margin.

    Args:
        base: Evaluation of the base model.
        evaluation: Evaluation of the trained model.
        trained: The trained model.
        model_name: Its name in the MLflow registry.
        overrides: Settings of the stage, each `key=value`.
        promotion: The decision with its numbers.
        metrics: pass@1 of both, their difference with its interval, 1 where promoted.
        summary: The decision and why.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task
    from microcoder_core.stages import promote as stage

    with stage_task("promote", [promotion], metrics, summary, model_uri=trained.uri) as task:
        result = stage.promote(
            settings.of_promotion(model_name, overrides),
            base=Path(base.path),
            trained=Path(evaluation.path),
            model=Path(trained.path),
            out=Path(promotion.path),
            tracker=task.tracker,
        )
        task.finish(summaries.of_promotion(result))
