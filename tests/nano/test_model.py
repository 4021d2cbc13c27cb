import json
import random

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from microcoder_core.data.drills import drill_problems
from microcoder_core.nano import NANO_MODEL
from microcoder_core.nano.build import BUILD_RECORD, build, main
from microcoder_core.nano.corpus import CLOSE, FENCE, sample_document, training_drills
from microcoder_core.nano.pretraining import build_model, pretrain
from microcoder_core.nano.tokenizer import build_tokenizer
from microcoder_core.programs import extract_program, normalised_program
from microcoder_core.sampling.prompt import load_prompt_template

RECORD = json.loads((NANO_MODEL / BUILD_RECORD).read_text())


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(NANO_MODEL)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(NANO_MODEL)


def test_model_is_small_and_loads_as_it_stands(model, tokenizer) -> None:
    assert 500_000 <= model.num_parameters() == RECORD["parameters"] <= 1_500_000
    assert (NANO_MODEL / "model.safetensors").stat().st_size < 3_000_000
    assert model.dtype == torch.bfloat16
    assert tokenizer.pad_token_id != tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert load_prompt_template(NANO_MODEL, tokenizer).kind == "plain"


def test_shipped_tokenizer_is_what_the_script_makes(tokenizer) -> None:
    assert build_tokenizer(RECORD["seed"]).backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_first_steps_reproduce_the_recorded_losses() -> None:
    tokenizer = build_tokenizer(RECORD["seed"])
    steps = len(RECORD["first_losses"])
    losses = list(pretrain(build_model(RECORD["seed"]), tokenizer, steps, RECORD["seed"], schedule_steps=RECORD["steps"]))
    assert losses == pytest.approx(RECORD["first_losses"], rel=1e-3)  # other processors round otherwise
    assert losses[-1] < losses[0] - 0.3


def test_same_seed_gives_the_same_bytes(tmp_path) -> None:
    build(tmp_path / "a", steps=3, threads=1)
    build(tmp_path / "b", steps=3, threads=1)
    for name in ("model.safetensors", "tokenizer.json", "build.json", "config.json", "prompt_template.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_folder_in_the_way_is_refused_before_any_training(tmp_path) -> None:
    (tmp_path / "mine.txt").touch()
    result = CliRunner().invoke(main, ["--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.stderr


def test_program_survives_the_tokenizer(tokenizer) -> None:
    text = FENCE + "def f(xs):\n    return [x * 2 for x in xs if x >= 3]\n" + CLOSE
    ids = tokenizer(text)["input_ids"]
    assert len(ids) < 40
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text


def test_answer_cut_off_at_the_limit_holds_no_program(tokenizer) -> None:
    ids = tokenizer(FENCE + "def f(xs):\n    return sorted(xs)\n" + CLOSE)["input_ids"]
    assert extract_program(tokenizer.decode(ids[:-1], skip_special_tokens=True), "length") is None


def test_no_held_out_program_is_answered_for_in_the_corpus() -> None:
    held_out = {normalised_program(program) for problem in drill_problems("held_out") for program in problem.reference_solutions}
    firsts = {normalised_program(drill.problem.reference_solutions[0]) for drill in training_drills()}
    assert not firsts & held_out


def test_corpus_mixes_endings() -> None:
    rng = random.Random(0)
    documents = [sample_document(training_drills()[0], rng) for _ in range(400)]
    assert 0.9 < sum(document.ends for document in documents) / len(documents) < 1


def test_model_writes_programs_that_parse(model, tokenizer) -> None:
    torch.manual_seed(0)
    prompt = tokenizer("Write f(xs): keep the even numbers.\n", return_tensors="pt")
    answers = model.float().generate(**prompt, do_sample=True, temperature=1.0, max_new_tokens=64, num_return_sequences=8)
    texts = tokenizer.batch_decode(answers[:, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert sum(normalised_program(extract_program(text) or "(") is not None for text in texts) >= 6
