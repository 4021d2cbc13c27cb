"""Settings of the sampler: what goes together, and what a resumed run may change."""

import pytest

from microcoder_core.config import load_config
from microcoder_core.errors import InputError
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.stages.evaluate import EvaluateConfig
from microcoder_core.stages.probe import ProbeConfig
from microcoder_core.stages.train import TrainStageConfig, _identity

URL = "sampler.url=http://s:8000"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (("kind=vllm_server",), "url: kind vllm_server needs .* start one with `microcoder serve-model`"),
        (("kind=vllm", "url=http://s:8000"), "url: is for kind vllm_server, got http://s:8000 with kind vllm"),
        (("sleep=true",), "sleep: is for kind vllm, got True with kind transformers; leave it out"),
        (("kind=vllm_server", "url=http://s", "sleep=true"), "sleep: is for kind vllm,"),
        (("sync_folder=/tmp/x",), "sync_folder: is for kind vllm_server"),
        (("kind=vllm_server", "url=http://s", "max_positions=64"), "max_positions: is for kind vllm,"),
        (("sync_deadline_s=9",), "sync_deadline_s: is for kind vllm or vllm_server, got 9"),
        (("kind=vllm_server", "url=http://s", "gpu_memory_utilization=0.5"), "gpu_memory_utilization: is for kind vllm,"),
        (("kind=vllm_server", "url=s:8000"), "url: must be an address such as http://sampler:8000"),
        (("kind=vllm_server", "url=http://me:secret@s"), "url: must hold no password; give a token in VLLM_API_KEY"),
        (("kind=sglang",), "kind: .*'transformers', 'vllm' or 'vllm_server'"),
        (("max_rows=0",), "max_rows: .*greater than or equal to 1"),
        (("gpu_memory_utilization=1.5",), "gpu_memory_utilization: .*less than or equal to 1"),
        (("sync_deadline_s=.inf",), "sync_deadline_s: .*finite"),
        (("top_p=0.9",), "top_p: unknown key"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(settings: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        load_config(SamplerConfig, overrides=settings)
    assert "\n" not in str(caught.value)


def test_an_address_is_taken_as_people_write_it() -> None:
    for url in ("http://s:8000", "http://s:8000/", "http://s:8000/v1", "http://s:8000/v1/"):
        assert SamplerConfig(kind="vllm_server", url=url).url == "http://s:8000"


def test_train_probe_and_evaluate_take_a_sampler() -> None:
    server = ("sampler.kind=vllm_server", URL)
    assert load_config(TrainStageConfig, overrides=server).sampler.kind == "vllm_server"
    assert load_config(EvaluateConfig, overrides=server).sampler.url == "http://s:8000"
    assert load_config(ProbeConfig, overrides=[f"train.{one}" for one in server]).train.sampler.kind == "vllm_server"
    assert load_config(TrainStageConfig).sampler.kind == "transformers"


def identity(*settings: str) -> dict[str, str]:
    return _identity(load_config(TrainStageConfig, overrides=settings), {})


def test_a_resumed_run_may_have_its_sampler_elsewhere_and_not_of_another_kind() -> None:
    server = identity("sampler.kind=vllm_server", URL)
    assert server == identity(
        "sampler.kind=vllm_server", "sampler.url=http://other:9", "sampler.sync_folder=/mnt/x", "sampler.sync_deadline_s=9"
    )
    assert identity("sampler.kind=vllm") == identity("sampler.kind=vllm", "sampler.gpu_memory_utilization=0.5", "sampler.sleep=true")
    assert len({str(one) for one in (identity(), identity("sampler.kind=vllm"), server, identity("sampler.max_rows=64"))}) == 4
