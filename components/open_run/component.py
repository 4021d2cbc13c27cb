"""First task of every pipeline run."""

from kfp import dsl

from components.images import IMAGE_CPU


@dsl.component(base_image=IMAGE_CPU, install_kfp_package=False)
def open_run(name: str, model: str, data_source: str, train_presets: list[str], train_overrides: list[str], seed: int) -> str:
    """Opens the tracked run that the stages of this pipeline run belong to; answers its id, empty where no server answers.

    It is opened here alone, before every other task: two stages that start at once would make two. Never cached.

    Args:
        name: What the run is called in MLflow.
        model: Shown with the run, as are the other parameters: the base model.
        data_source: Where the problems to train on are.
        train_presets: Names of training configurations.
        train_overrides: Settings above the presets.
        seed: Seed of the stages.
    """
    from components.stage_task import open_run

    params = {"model": model, "data_source": data_source, "seed": seed}
    return open_run(name, params | {"train_presets": " ".join(train_presets), "train_overrides": " ".join(train_overrides)})
