"""The stage `train` on the nano model, with the real judge."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from microcoder_core.errors import InputError, StageStopped
from microcoder_core.nano import NANO_MODEL
from microcoder_core.sampling.models import load_model
from microcoder_core.stages.model_source import model_sha256
from microcoder_core.stages.presets import load_train_config
from microcoder_core.stages.results import ProbeResult, TrainResult
from microcoder_core.stages.train import TrainStageConfig, train, with_probed_temperature
from microcoder_core.storage.rows import read_rows
from microcoder_core.storage.stage_output import StageRecord, read_stage_result, write_stage_record
from microcoder_core.tracking import NullTracker

CONFIG = load_train_config(
    ["microcoder", "nano"], ["max_steps=2", "torch_threads=1", "rollout.group_size=4", "optimizer.learning_rate=1e-4"]
)


def run(drills: Path, out: Path, config: TrainStageConfig = CONFIG, **options: object) -> TrainResult:
    return train(config, model="nano", problems=drills, out=out, tracker=NullTracker(), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(drills: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "model"
    run(drills, out)
    return out


def test_the_output_loads_with_from_pretrained_as_it_stands(trained: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(trained)
    model = AutoModelForCausalLM.from_pretrained(trained)
    assert model.generate(**tokenizer("x", return_tensors="pt"), max_new_tokens=2).shape[1] > 1


def test_the_output_holds_template_card_history_and_record(trained: Path) -> None:
    assert (trained / "prompt_template.json").is_file()
    assert "MicroCoder-GRPO" in (trained / "README.md").read_text()
    assert [row["step"] for _, row in read_rows(trained / "training" / "metrics.jsonl")] == [1, 2]
    samples = [row for _, row in read_rows(trained / "training" / "samples.jsonl")]
    assert {"prompt", "completion", "verdict", "reward", "advantage", "masked"} <= set(samples[0])
    result = read_stage_result(trained, "train", TrainResult)
    assert (result.steps, result.samples) == (2, 64)
    assert "step_time_s" not in result.first


def test_tensorboard_has_every_step(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained / "training" / "tensorboard"))
    events.Reload()
    rows = [row for _, row in read_rows(trained / "training" / "metrics.jsonl")]
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [
        (row["step"], pytest.approx(row["reward"])) for row in rows
    ]


def test_nothing_is_left_beside_the_output(trained: Path) -> None:
    assert [path.name for path in trained.parent.iterdir()] == ["model"]


def test_same_input_config_and_seed_give_the_same_bytes(drills: Path, trained: Path, tmp_path: Path) -> None:
    run(drills, tmp_path / "again")
    for name in ("model.safetensors", "stage.json", "README.md", "training/config.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / name).read_bytes()


def test_an_unfinished_run_is_neither_overwritten_nor_taken_for_done(drills: Path, tmp_path: Path) -> None:
    class Interrupted(NullTracker):
        def log_metrics(self, metrics: object, step: int = 0) -> None:
            if step == 1:
                raise KeyboardInterrupt

    with pytest.raises(StageStopped, match="saved at step 1 of 2"):
        train(CONFIG, model="nano", problems=drills, out=tmp_path / "m", tracker=Interrupted())
    assert not (tmp_path / "m").exists()
    with pytest.raises(InputError, match="add --resume"):
        run(drills, tmp_path / "m")
    assert run(drills, tmp_path / "m", resume=True).steps == 2


def test_a_finished_run_is_not_repeated_by_resume(drills: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Path(shutil.copytree(trained, tmp_path / "m"))
    monkeypatch.setattr("microcoder_core.stages.train.load_model", None)
    assert run(drills, out, resume=True) == read_stage_result(trained, "train", TrainResult)
    free = {"judge": CONFIG.judge.model_copy(update={"workers": 1}), "torch_threads": 2}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("mine")
    run(drills, out, CONFIG.model_copy(update=free), resume=True, work=tmp_path / "theirs")
    assert (tmp_path / "theirs" / "thesis.txt").exists()
    for change in ({"seed": 1}, {"max_steps": 3}):
        with pytest.raises(InputError, match="finished run of other settings; give another folder"):
            run(drills, out, CONFIG.model_copy(update=change), resume=True)


def test_a_trained_model_is_never_replaced_unasked(drills: Path, trained: Path) -> None:
    before = (trained / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="holds a trained model; give another folder, or delete this one"):
        run(drills, trained)
    assert (trained / "model.safetensors").read_bytes() == before


def test_the_same_model_under_another_name_may_go_on(drills: Path, tmp_path: Path) -> None:
    assert model_sha256("nano") == model_sha256(str(shutil.copytree(NANO_MODEL, tmp_path / "copy")))
    (tmp_path / "copy" / "README.md").write_text("about it")
    assert model_sha256("nano") == model_sha256(str(tmp_path / "copy"))
    (tmp_path / "copy" / "model.safetensors").write_bytes(b"other")
    assert model_sha256("nano") != model_sha256(str(tmp_path / "copy"))
    assert model_sha256("Qwen/Qwen3-1.7B") == "hub:Qwen/Qwen3-1.7B"


@pytest.mark.parametrize("place", ["file/m", "file/deeper/m", "deep/er/../../file"])
def test_an_output_that_cannot_be_made_is_refused_before_the_work(
    drills: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("microcoder_core.stages.train.load_model", None)
    with pytest.raises(InputError, match="is a file"):
        run(drills, tmp_path / place, work=tmp_path / "work")


def test_a_folder_of_the_user_is_not_replaced(drills: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not an output of microcoder"):
        run(drills, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_missing_model_is_named(drills: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        train(CONFIG, model="./nowhere", problems=drills, out=tmp_path / "m", tracker=NullTracker())


def test_the_probed_temperature_takes_the_first_stage(tmp_path: Path) -> None:
    result = ProbeResult(temperature=0.9, reason="", grid=(), pilots=())
    write_stage_record(tmp_path, StageRecord(stage="probe", result=result.model_dump(mode="json")))
    staged = load_train_config(["microcoder"], ["rollout.temperature_stages=[[0, 0.6], [140, 1.2]]"])
    assert with_probed_temperature(staged, tmp_path).rollout.temperature_stages == ((0, 0.9), (140, 1.2))
    fixed = load_train_config(["microcoder"], ["rollout.temperature_from_probe=false"])
    assert with_probed_temperature(fixed, tmp_path) == fixed
    assert with_probed_temperature(staged, None) == staged
    assert json.loads((tmp_path / "stage.json").read_text())["stage"] == "probe"


def test_a_bfloat16_model_is_published_as_such(drills: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(NANO_MODEL, tmp_path / "base")
    AutoModelForCausalLM.from_pretrained(NANO_MODEL, dtype=torch.bfloat16).save_pretrained(tmp_path / "base")
    config = CONFIG.model_copy(update={"max_steps": 1, "dtype": "bfloat16"})
    train(config, model=str(tmp_path / "base"), problems=drills, out=tmp_path / "m", tracker=NullTracker())
    loaded = load_model(str(tmp_path / "m"), trainable=True)
    assert (loaded.stored_dtype, loaded.model.dtype) == (torch.bfloat16, torch.float32)
