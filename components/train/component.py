"""The train stage as a component."""

from kfp import dsl

from components.images import IMAGE_GPU


@dsl.component(base_image=IMAGE_GPU, install_kfp_package=False)
def train(
    model: str,
    problems: dsl.Input[dsl.Dataset],
    probe: dsl.Input[dsl.Artifact],
    presets: list[str],
    overrides: list[str],
    seed: int,
    trained: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """Trains the model with MicroCoder-GRPO; goes on from its checkpoints where an earlier try was killed.

    Args:
        model: Base model: `nano`, a folder, or a name on the Hugging Face hub.
        problems: Problems to train on.
        probe: Output of probe, whose temperature training takes.
        presets: Names of configurations, merged left to right, such as `microcoder`.
        overrides: Settings above the presets, each `key=value`.
        seed: Seeds the stage, unless the overrides do.
        trained: The model, as `from_pretrained` loads it, with its card and its training metrics.
        metrics: Steps, samples, tokens, and each metric over the last tenth of the steps.
        summary: Each metric over the first and the last tenth of the steps.
    """
    from pathlib import Path

    from components import settings, summaries
    from components.stage_task import stage_task, work_folder
    from microcoder_core.stages import train as stage

    with stage_task("train", [trained], metrics, summary, model_uri=trained.uri) as task:
        result = stage.train(
            settings.of_training(presets, overrides, seed),
            model=model,
            problems=Path(problems.path),
            probe=Path(probe.path),
            out=Path(trained.path),
            work=work_folder("train"),
            resume=True,
            tracker=task.tracker,
        )
        task.finish(summaries.of_training(result))
