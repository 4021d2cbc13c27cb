"""The trainer on a tiny model: it moves weights, resumes bit for bit, stops cleanly, and refuses what cannot work."""

import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from microcoder_core.errors import InputError, JudgeError, StageStopped, TrainingError
from microcoder_core.grpo.checkpoint import Checkpoints, discard_work, fingerprint, open_checkpoints
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.grpo.metrics import METRICS
from microcoder_core.grpo.rollout import Rewarder
from microcoder_core.grpo.trainer import Trainer
from microcoder_core.records import Completion, Judgement, Problem, Verdict
from microcoder_core.sampling.transformers_sampler import TransformersSampler
from microcoder_core.storage.rows import read_rows
from microcoder_core.tracking import NullTracker
from tests.tiny import EvenRewarder, TinyTokenizer, tiny_config, tiny_model, tiny_tasks


def trainer(config: TrainConfig, work: Path | None = None, rewarder: Rewarder | None = None, dtype: torch.dtype = torch.float32) -> Trainer:
    torch.set_num_threads(1)
    model = tiny_model()
    return Trainer(
        config,
        model=model,
        pad_id=0,
        tasks=tiny_tasks(),
        sampler=TransformersSampler(model, TinyTokenizer(), compute_dtype=dtype),
        rewarder=rewarder or EvenRewarder(),
        checkpoints=None if work is None else Checkpoints(work, 2),
        compute_dtype=dtype,
    )


def weights(one: Trainer) -> bytes:
    return b"".join(weight.detach().numpy().tobytes() for weight in one._model.state_dict().values())


class Always:
    """Gives every completion one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        future: Future[Judgement] = Future()
        future.set_result(Judgement(problem_id=problem.problem_id, verdict=self.verdict, detail="the judge is ill"))
        return future


class Raising(EvenRewarder):
    """Raises at a call, as a signal's arrival does."""

    def __init__(self, call: int, error: BaseException) -> None:
        super().__init__()
        self._call, self._error = call, error

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        if self.calls == self._call:
            self.calls += 1
            raise self._error
        return super().submit(problem, completion)


def test_training_moves_weights_and_logs_only_documented_metrics(tmp_path: Path) -> None:
    one = trainer(tiny_config(loss={"kl_coef": 0.1}), tmp_path)
    before = weights(one)
    one.train()
    assert weights(one) != before
    rows = [row for _, row in read_rows(tmp_path / "metrics.jsonl")]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert {name for row in rows for name in row} - {"step"} <= set(METRICS)
    assert all(row["kl"] >= 0 for row in rows)


def test_reward_rises_when_a_token_is_rewarded() -> None:
    class LikesSevens(EvenRewarder):
        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            future: Future[Judgement] = Future()
            verdict = Verdict.ACCEPTED if 7 in completion.token_ids else Verdict.WRONG_ANSWER
            future.set_result(Judgement(problem_id=problem.problem_id, verdict=verdict))
            return future

    one = trainer(tiny_config(max_steps=25), rewarder=LikesSevens())
    one.train()
    rewards = [metrics["reward"] for metrics in one.history]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3


def test_same_seed_same_weights_and_another_seed_others() -> None:
    runs = []
    for seed in (0, 0, 1):
        one = trainer(tiny_config(seed=seed))
        one.train()
        runs.append(weights(one))
    assert runs[0] == runs[1] != runs[2]


def test_micro_batch_size_does_not_change_the_training(tmp_path: Path) -> None:
    losses = []
    for tokens in (24, 100_000):
        one = trainer(tiny_config(max_steps=2, optimizer={"micro_batch_tokens": tokens, "learning_rate": 1e-4}))
        one.train()
        losses.append([metrics["loss"] for metrics in one.history])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("verdict", [Verdict.ACCEPTED, Verdict.WRONG_ANSWER])
def test_equal_rewards_leave_the_weights_alone_whatever_adam_remembers(verdict: Verdict) -> None:
    one = trainer(tiny_config(max_steps=2, optimizer={"weight_decay": 0.1}))
    one.train()
    before = weights(one)
    one._rewarder = Always(verdict)
    one.config = one.config.model_copy(update={"max_steps": 4})
    one.train()
    assert weights(one) == before
    assert one.history[-1]["microcoder/update_skipped_frac"] == 1


def test_a_judge_that_grades_nothing_stops_the_run_with_its_word() -> None:
    with pytest.raises(JudgeError, match="the judge is ill"):
        trainer(tiny_config(), rewarder=Always(Verdict.JUDGE_ERROR)).train()


def test_a_judge_that_is_silent_stops_the_run_at_the_deadline_after_saving(tmp_path: Path) -> None:
    class Silent(EvenRewarder):
        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            return super().submit(problem, completion) if self.calls < 16 else Future()

    one = trainer(tiny_config(judge_deadline_s=0.1, checkpoint={"every_steps": 100}), tmp_path, Silent())
    with pytest.raises(JudgeError, match=r"no answer for 0\.1 s"):
        one.train()
    assert one._checkpoints is not None
    assert one._checkpoints.newest_step == 1


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    one = trainer(tiny_config(optimizer={"learning_rate": 1e30}))
    with pytest.raises(TrainingError, match="finite"):
        one.train()


@pytest.mark.parametrize("call", [0, 20, 40, 57])
def test_ctrl_c_saves_and_the_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, call: int) -> None:
    whole = trainer(tiny_config())
    whole.train()
    config = tiny_config(checkpoint={"every_steps": 100})
    with pytest.raises(StageStopped, match="--resume") as stopped:
        trainer(config, tmp_path, Raising(call, KeyboardInterrupt())).train()
    assert stopped.value.exit_code == 3
    again = trainer(config, tmp_path)
    again.train()
    assert weights(again) == weights(whole)
    assert [row["step"] for _, row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]


def test_kept_verdicts_are_used_instead_of_judging_again(tmp_path: Path) -> None:
    config = tiny_config(checkpoint={"every_steps": 100})
    first = trainer(config, tmp_path, Raising(48, KeyboardInterrupt()))
    with pytest.raises(StageStopped):
        first.train()
    kept = tmp_path / "checkpoints"
    assert [folder.name for folder in kept.iterdir()] == ["step-000003"]
    again = EvenRewarder()
    trainer(config, tmp_path, again).train()
    assert again.calls == 16


def identity(config: TrainConfig) -> dict[str, str]:
    return fingerprint(config, dataset_sha256="d", model="tiny")


def begin(work: Path, config: TrainConfig, *, resume: bool) -> None:
    with open_checkpoints(work, identity(config), 2, resume=resume):
        pass


def test_resume_refuses_another_configuration_and_allows_more_steps(tmp_path: Path) -> None:
    with open_checkpoints(tmp_path, identity(tiny_config()), 2, resume=False):
        trainer(tiny_config(), tmp_path).train()
    with pytest.raises(InputError, match=r"another configuration \(loss\.clip_high: 0\.28, got 0\.5\)"):
        begin(tmp_path, tiny_config(loss={"clip_high": 0.5}), resume=True)
    with pytest.raises(InputError, match="add --resume"):
        begin(tmp_path, tiny_config(), resume=False)
    longer = tiny_config(max_steps=6)
    with open_checkpoints(tmp_path, identity(longer), 2, resume=True):
        one = trainer(longer, tmp_path)
        one.train()
    assert one.state.step == 6


def test_another_configuration_is_refused_before_the_first_checkpoint_too(tmp_path: Path) -> None:
    config = tiny_config(optimizer={"learning_rate": 1e30})
    with open_checkpoints(tmp_path, identity(config), 2, resume=True), pytest.raises(TrainingError):
        trainer(config, tmp_path).train()
    assert not (tmp_path / "checkpoints").exists()
    with pytest.raises(InputError, match="another configuration"):
        begin(tmp_path, tiny_config(), resume=True)


def test_a_run_that_did_nothing_leaves_nothing(tmp_path: Path) -> None:
    begin(tmp_path / "work", tiny_config(), resume=False)
    assert not (tmp_path / "work").exists()


def test_what_is_no_work_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no training run"):
        begin(tmp_path, tiny_config(), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_only_what_a_run_made_is_removed(tmp_path: Path) -> None:
    config = tiny_config()
    with open_checkpoints(tmp_path / "work", identity(config), 2, resume=False):
        (tmp_path / "work" / "notes.txt").write_text("mine")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["notes.txt"]
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="holds no training run"):
        begin(tmp_path / "pipeline", config, resume=True)
    discard_work(tmp_path / "pipeline", identity(config))
    assert [path.name for path in (tmp_path / "pipeline").iterdir()] == ["run.json"]


def test_work_is_discarded_for_its_own_run_only(tmp_path: Path) -> None:
    with open_checkpoints(tmp_path / "work", identity(tiny_config()), 2, resume=False):
        trainer(tiny_config(), tmp_path / "work").train()
    discard_work(tmp_path / "work", identity(tiny_config(seed=1)))
    assert (tmp_path / "work" / "checkpoints").is_dir()
    discard_work(tmp_path / "work", identity(tiny_config()))
    assert not (tmp_path / "work").exists()


def test_two_runs_do_not_share_a_work_folder(tmp_path: Path) -> None:
    with open_checkpoints(tmp_path / "work", identity(tiny_config()), 2, resume=False), pytest.raises(InputError, match="another run"):
        begin(tmp_path / "work", tiny_config(), resume=True)


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "state.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, file: str) -> None:
    whole = trainer(tiny_config(), tmp_path)
    whole.train()
    (tmp_path / "checkpoints" / "step-000004" / file).write_bytes(b"cut")
    again = trainer(tiny_config(), tmp_path)
    again.train()
    assert weights(again) == weights(whole)
    assert [row["step"] for _, row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    last = trainer(tiny_config(), tmp_path)
    last.train()  # from the checkpoint that was saved again in the place of the damaged one
    assert last.history == []
    assert weights(last) == weights(whole)


def test_too_little_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer(tiny_config(), tmp_path).train()
    monkeypatch.setattr(torch, "load", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        trainer(tiny_config(), tmp_path).train()
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir() if "damaged" in folder.name] == []


def test_without_a_checkpoint_that_can_be_read_the_folder_is_named(tmp_path: Path) -> None:
    trainer(tiny_config(), tmp_path).train()
    for folder in (tmp_path / "checkpoints").iterdir():
        (folder / "optimizer.pt").write_bytes(b"cut")
    with pytest.raises(InputError, match=r"step-000002: cannot be read .*, nor can an older checkpoint; delete"):
        trainer(tiny_config(), tmp_path).train()


def test_the_tracked_run_of_a_resumed_training_has_every_step(tmp_path: Path) -> None:
    class Steps(NullTracker):
        seen: ClassVar[list[int]] = []

        def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
            self.seen.append(step)

    with pytest.raises(StageStopped):
        trainer(tiny_config(), tmp_path, Raising(40, KeyboardInterrupt())).train()
    again = trainer(tiny_config(), tmp_path)
    again._tracker = Steps()
    again.train()
    assert Steps.seen == [1, 2, 3, 4]


def test_a_run_killed_before_its_first_checkpoint_starts_its_files_anew(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"reward":0.5}\n{"step":2,"rew')
    trainer(tiny_config(), tmp_path).train()
    assert [row["step"] for _, row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]


def test_old_checkpoints_are_deleted(tmp_path: Path) -> None:
    trainer(tiny_config(max_steps=8), tmp_path).train()
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == ["step-000006", "step-000008"]


def test_epochs_cover_every_problem_as_often_as_said() -> None:
    one = trainer(tiny_config(max_steps=None, epochs=1.5))  # 6 problems, 4 a step: 9 problems in 3 steps
    one.train()
    assert (one.state.step, one.state.position, one.state.samples) == (3, 9, 36)


class ByProblem(EvenRewarder):
    """Mixes verdicts within the groups of some problems only."""

    def __init__(self, mixed: set[str]) -> None:
        super().__init__()
        self.mixed = mixed

    def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
        verdict = super().submit(problem, completion)
        if problem.problem_id in self.mixed:
            return verdict
        future: Future[Judgement] = Future()
        future.set_result(Judgement(problem_id=problem.problem_id, verdict=Verdict.WRONG_ANSWER))
        return future


def test_dynamic_sampling_draws_until_enough_groups_are_mixed() -> None:
    config = tiny_config(max_steps=1, rollout={"dynamic_sampling_rounds": 9})
    one = trainer(config, rewarder=ByProblem({"p0", "p1", "p2"}))  # half of the six problems: two rounds of four bring four, or so
    one.train()
    (metrics,) = one.history
    assert metrics["microcoder/rounds"] >= 2
    assert metrics["microcoder/groups_used"] == 4
    assert one.state.position == 4 * metrics["microcoder/rounds"]
    assert 0 < metrics["frac_reward_zero_std"] < 1  # the metrics are of all that was sampled
    assert metrics["microcoder/update_skipped_frac"] == 0


def test_dynamic_sampling_that_finds_too_little_trains_on_that(caplog: pytest.LogCaptureFixture) -> None:
    config = tiny_config(max_steps=2, rollout={"dynamic_sampling_rounds": 1})
    few = trainer(config, rewarder=ByProblem({"p0", "p1"}))
    few.train()
    assert all(metrics["microcoder/rounds"] == 2 for metrics in few.history)
    used = [metrics["microcoder/groups_used"] for metrics in few.history]
    assert 1 <= max(used) < 4
    assert [metrics["microcoder/update_skipped_frac"] for metrics in few.history] == [0, 0]
    assert "the others, of 8 sampled, are all right or all wrong" in caplog.text
    none = trainer(config, rewarder=ByProblem(set()))
    before = weights(none)
    none.train()
    assert (weights(none), none.state.step) == (before, 2)


class FixedDiversity:
    """A watcher that says what it is told."""

    def __init__(self, value: float) -> None:
        self.value = value

    def observe(self, groups: object) -> dict[str, float]:
        return {"microcoder/diversity": self.value}


def test_automatic_temperature_jumps_and_is_part_of_the_checkpoint(tmp_path: Path) -> None:
    auto = {"temperatures": [1.8], "patience_steps": 2, "hold_steps": 20}
    config = tiny_config(max_steps=24, rollout={"train_batch_size": 2, "group_size": 2, "max_new_tokens": 4, "temperature_auto": auto})

    def with_watcher(work: Path | None) -> Trainer:
        one = trainer(config, work)
        one._watchers = (FixedDiversity(0.2),)
        return one

    whole = with_watcher(None)
    whole.train()
    assert [metrics["microcoder/temperature"] for metrics in whole.history] == [1.2] * 20 + [1.8] * 4
    assert [metrics["microcoder/temperature_stage"] for metrics in whole.history][19:21] == [0, 1]
    assert whole.temperature_stages == ((0, 1.2), (20, 1.8))
    first = with_watcher(tmp_path)
    first.config = config.model_copy(update={"max_steps": 22})
    first.train()
    resumed = with_watcher(tmp_path)
    resumed.train()
    assert (weights(resumed), resumed.state) == (weights(whole), whole.state)


def test_automatic_temperature_needs_a_measure() -> None:
    one = trainer(tiny_config(rollout={"temperature_auto": {"temperatures": [1.8]}}))
    with pytest.raises(InputError, match="needs a watcher that measures microcoder/diversity"):
        one.train()


def test_without_dynamic_sampling_every_group_is_kept() -> None:
    one = trainer(tiny_config(max_steps=1), rewarder=ByProblem({"p0"}))
    one.train()
    assert (one.history[0]["microcoder/rounds"], one.history[0]["microcoder/groups_used"]) == (1, 4)


def test_dynamic_sampling_ends_with_the_problems_and_saves(tmp_path: Path) -> None:
    config = tiny_config(max_steps=None, epochs=2, rollout={"dynamic_sampling_rounds": 9}, checkpoint={"every_steps": 100})
    one = trainer(config, tmp_path, rewarder=ByProblem({"p0"}))  # 12 problems, of which 2 are mixed: one step takes them all
    one.train()
    assert (one.state.step, one.state.position) == (1, 12)
    assert [folder.name for folder in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


def test_a_run_with_dynamic_sampling_goes_on_bit_for_bit_from_any_rollout(tmp_path: Path) -> None:
    config = tiny_config(max_steps=4, rollout={"dynamic_sampling_rounds": 3})
    whole = trainer(config, rewarder=ByProblem({"p0", "p3"}))
    whole.train()
    for calls in (1, 2, 3, 5, 8):
        work = tmp_path / str(calls)
        stopped = trainer(config, work, rewarder=ByProblem({"p0", "p3"}))
        sample, left = stopped._sampler.sample, [calls]

        def sample_or_stop(*arguments: object, _sample=sample, _left=left, **keywords: object):  # type: ignore[no-untyped-def]
            _left[0] -= 1
            if _left[0] < 0:
                raise KeyboardInterrupt
            return _sample(*arguments, **keywords)

        stopped._sampler.sample = sample_or_stop  # type: ignore[method-assign]
        with pytest.raises(StageStopped):
            stopped.train()
        resumed = trainer(config, work, rewarder=ByProblem({"p0", "p3"}))
        resumed.train()
        assert weights(resumed) == weights(whole)
        assert resumed.state == whole.state


def test_sigterm_saves_and_exits_143(tmp_path: Path) -> None:
    one = trainer(tiny_config(max_steps=1000), tmp_path)

    class Terminating(EvenRewarder):
        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            if self.calls == 40:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().submit(problem, completion)

    one._rewarder = Terminating()
    with pytest.raises(StageStopped, match="saved at step 2 of 1000") as stopped:
        one.train()
    assert stopped.value.exit_code == 143


@pytest.mark.parametrize("moment", ["update", "record"])
def test_a_signal_while_the_weights_move_waits_until_the_step_is_saved_whole(tmp_path: Path, moment: str) -> None:
    one = trainer(tiny_config(max_steps=4, checkpoint={"every_steps": 100}), tmp_path)
    target, name = (one._updater, "update") if moment == "update" else (one._checkpoints, "append")
    called, sent = getattr(target, name), []

    def interrupted(*arguments: object, **keywords: object) -> object:
        if not sent:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))
        return called(*arguments, **keywords)

    setattr(target, name, interrupted)
    with pytest.raises(StageStopped, match="saved at step 1 of 4") as stopped:
        one.train()
    assert stopped.value.exit_code == 143
    again = trainer(one.config, tmp_path)
    again.train()
    assert [row["step"] for _, row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    whole = trainer(tiny_config())
    whole.train()
    assert weights(again) == weights(whole)


def test_a_second_ctrl_c_does_not_wait_for_the_update(tmp_path: Path) -> None:
    one = trainer(tiny_config(), tmp_path)

    def interrupted(*arguments: object, **keywords: object) -> object:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second one is to stop this")

    one._updater.update = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(StageStopped, match="no step was saved") as stopped:
        one.train()
    assert stopped.value.exit_code == 3


def test_a_slow_judge_is_waited_for_as_long_as_it_answers() -> None:
    class Slow(EvenRewarder):
        def submit(self, problem: Problem, completion: Completion) -> Future[Judgement]:
            verdict = super().submit(problem, completion).result()
            late: Future[Judgement] = Future()
            threading.Timer(0.1 * self.calls, late.set_result, (verdict,)).start()
            return late

    one = trainer(tiny_config(max_steps=1, judge_deadline_s=0.8), rewarder=Slow())  # 16 answers, 1.6 s in all
    one.train()
    assert one.state.step == 1


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_bfloat16_computes_with_float32_weights_that_keep_small_steps(kl_coef: float) -> None:
    config = tiny_config(max_steps=2, optimizer={"learning_rate": 1e-6}, loss={"kl_coef": kl_coef})
    one = trainer(config, dtype=torch.bfloat16)
    computed = set()
    one._model.model.layers[0].mlp.register_forward_hook(lambda module, inputs, output: computed.add(output.dtype))
    before = {name: weight.clone() for name, weight in one._model.state_dict().items()}
    one.train()
    assert computed == {torch.bfloat16}
    moved = {name: (weight - before[name]).abs().max().item() for name, weight in one._model.state_dict().items()}
    assert all(0 < step < 1e-5 for step in moved.values())
    every = torch.cat([weight.flatten() for weight in before.values()]).bfloat16()
    assert (every - 1e-6 == every).float().mean() > 0.9  # what weights of bfloat16 would have made of such a step


def test_bfloat16_weights_are_not_trained() -> None:
    model = tiny_model().bfloat16()
    sampler = TransformersSampler(model, TinyTokenizer())
    with pytest.raises(InputError, match="must be float32 while training"):
        Trainer(tiny_config(), model=model, pad_id=0, tasks=tiny_tasks(), sampler=sampler, rewarder=EvenRewarder())


def test_a_pilot_that_is_stopped_promises_no_resume() -> None:
    with pytest.raises(StageStopped, match=r"^train stopped after step 1 of 4$"):
        trainer(tiny_config(), None, Raising(20, KeyboardInterrupt())).train()
