"""The probe stage as a component."""

from kfp import dsl

from components.images import IMAGE_GPU


@dsl.component(base_image=IMAGE_GPU, install_kfp_package=False)
def probe(
    model: str,
    problems: dsl.Input[dsl.Dataset],
    train_presets: list[str],
    train_overrides: list[str],
    overrides: list[str],
    seed: int,
    measured: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Measures the diversity of the model's responses by temperature, and chooses the temperature to train at.

    Args:
        model: Base model: `nano`, a folder, or a name on the Hugging Face hub.
        problems: Problems to sample responses for.
        train_presets: How the pilots train: the presets of the training to come.
        train_overrides: Its settings above the presets, each `key=value`.
        overrides: Settings of the stage, each `key=value`.
        seed: Seeds the stage, unless the overrides do.
        measured: The measurements and the choice.
        metrics: The choice and its diversity.
        summary: Diversity, pass@1 and length by temperature, and why the choice fell.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task
    from microcoder_core.stages import probe as stage

    with stage_task("probe", [measured], metrics, summary) as task:
        config = settings.of_probe(train_presets, train_overrides, overrides, seed)
        result = stage.probe(config, model=model, problems=Path(problems.path), out=Path(measured.path), tracker=task.tracker)
        task.finish(summaries.of_probe(result))
