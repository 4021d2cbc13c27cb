"""The report page: what is on it, what must not be, and that a browser shows it."""

import json
import os
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_folders import HOSTILE, completion_rows, make_evaluation, make_promotion, make_run, make_trained, step_metrics, write_rows

from microcoder_core.errors import InputError
from microcoder_core.stages.report import ReportConfig, report
from microcoder_core.stages.report_page.inputs import History, Series
from microcoder_core.stages.report_page.samples import choose_samples
from microcoder_core.stages.report_page.text import compact, degrees, duration, number, signed, visible
from microcoder_core.stages.report_page.training_plots import smoothed
from microcoder_core.tracking import NullTracker

SECONDS = {"import": 1.25, "train": 141.0}
PLOTS = [
    "pass@k before and after",
    "Verdicts before and after",
    "Difference of pass@1",
    "Reward and pass@1",
    "Diversity",
    "Response length",
    "Truncated and masked responses",
    "Entropy",
    "Clipped tokens",
    "Temperature stages",
    "Verdicts",
    "Loss",
    "Gradient norm",
    "Learning rate",
    "Groups of equal rewards",
    "Tokens a second",
    "Diversity by temperature",
    "Diversity over pilot updates",
    "Problems kept and dropped",
    "Time a stage",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, ids, attributes with addresses, and the text of a page; complains of tags that do not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.plots: dict[str, bool] = {}
        self.words = ""
        self._open: list[str] = []
        self._title = ""
        self.feed(source)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "data", "srcset", "xlink:href")]
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"]) > 20
            self.plots[self._title] = True
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if self._open and self._open[-1] == "h3" and data.strip():
            self._title = data


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page_file(folders, tmp_path_factory):
    return make_report(folders, tmp_path_factory.mktemp("report") / "out")


@pytest.fixture(scope="module")
def source(page_file):
    return page_file.read_text(encoding="utf-8")


def make_report(folders, out, seconds=SECONDS, tracker=None, **config):
    return report(ReportConfig(**config), **folders, out=out, tracker=tracker or NullTracker(), seconds=seconds)


def test_shows_every_plot(source):
    assert list(Page(source).plots) == PLOTS


def test_says_the_result_in_one_sentence(source):
    assert "pass@1 0.59 \u2192 0.87 on 150 evaluation problems; promoted" in Page(source).words


def test_holds_no_script_and_asks_for_nothing(source):
    page = Page(source)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert not re.search(r"https?:|@import|url\((?!#)", source)


def test_ids_are_unique_and_every_reference_has_its_target(source):
    page = Page(source)
    assert len(page.ids) == len(set(page.ids))
    targets = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', source))
    assert {first or second for first, second in targets} <= set(page.ids)


def test_foreign_text_is_shown_and_never_run(source):
    assert '<script>document.title="owned"' not in source
    assert visible(HOSTILE) in Page(source).words
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", source)


def test_names_and_title_stay_text_and_the_page_goes_to_the_tracker(folders, tmp_path):
    class Recorder(NullTracker):
        def log_artifact(self, path: Path, folder: str = "") -> None:
            logged.append((path.name, path.is_file()))

    logged: list[tuple[str, bool]] = []
    name = '</text></svg><script>alert("1")</script>$x$\x00'
    file = make_report(folders, tmp_path / "out", {name: 3.0}, Recorder(), title="<b>Run</b> & $1$")
    source = file.read_text(encoding="utf-8")
    assert "script" not in Page(source).tags
    assert '</text></svg><script>alert("1")</script>$x$\\x00' in Page(source).words
    assert "<h1>&lt;b&gt;Run&lt;/b&gt; &amp; $1$</h1>" in source
    assert ("report.html", True) in logged


def test_no_stand_in_colour_is_left(source):
    assert not re.search("#0101[0-9a-f]{2}", source)
    for variable in re.findall(r"var\(--([a-z0-9]+)\)", source):
        assert f"--{variable}:" in source


def test_tables_have_captions_and_rows_their_differences(source):
    assert source.count("<table>") == source.count("<caption>") == 6
    row = '<tr><th scope="row">pass@10</th><td>0.920</td><td>0.960</td><td class="better">+0.040</td></tr>'
    assert row in source
    assert '<th scope="row">mean length, tokens</th><td>28.4</td><td>25.3</td><td>\u22123.1</td>' in source


def test_problems_dropped_by_reason_and_hashes_are_told(source):
    words = Page(source).words
    assert "70 in, 40 kept, 30 dropped." in words
    assert '<th scope="row">dropped: too easy</th><td>11</td>' in source
    assert '<th scope="row">dropped: no tests</th><td>5</td>' in source  # one by curate, four by import
    for hash_ in ("ef" * 32, "cd" * 32, "12" * 32):
        assert hash_ in words
    assert "max_new_tokens: 64" in words
    assert "95 % confidence interval" in words


def test_five_samples_with_varied_verdicts(source):
    shown = re.findall(r'class="verdict"[^>]*>([^<]+)<', source)
    assert shown == ["accepted", "wrong answer", "runtime error", "no program", "accepted"]
    assert "Prompt of p3, as trained." in source  # its completion carries no prompt: taken from the samples of training
    assert "p4, sample 0, cut off at the length limit" in source


def test_same_inputs_give_the_same_bytes_quickly(folders, page_file, tmp_path):
    started = time.process_time()
    again = make_report(folders, tmp_path / "out")
    assert time.process_time() - started < 6
    for name in ("report.html", "summary.json", "stage.json"):
        assert (again.parent / name).read_bytes() == (page_file.parent / name).read_bytes()


def test_summary_tells_the_numbers(page_file):
    summary = json.loads((page_file.parent / "summary.json").read_text())
    assert summary["base_pass_at_1"] == pytest.approx(0.59)
    assert summary["trained_pass_at_10"] == pytest.approx(0.96)
    assert summary["diversity"] == {"base": pytest.approx(0.66), "trained": pytest.approx(0.58)}
    assert (summary["problems_in"], summary["problems_kept"], summary["dropped"]["too_easy"]) == (70, 40, 11)
    assert (summary["promoted"], summary["temperature"], summary["seconds"]) == (True, 1.0, SECONDS)


def test_stage_record_holds_no_times_and_names_its_inputs(page_file):
    record = json.loads((page_file.parent / "stage.json").read_text())
    assert record["stage"] == "report"
    assert "seconds" not in record["result"]
    assert set(record["inputs"]) == {"curated", "probe", "trained", "base_evaluation", "trained_evaluation", "promotion"}


def test_without_probe_promotion_and_times(folders, tmp_path):
    file = make_report(folders | {"probe": None, "promotion": None}, tmp_path / "out", seconds={})
    page, summary = Page(file.read_text(encoding="utf-8")), json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "promotion not decided" in page.words
    for missing in ("temperature grid", "pilot updates", "promotion decision", "time a stage"):
        assert f"Not recorded: {missing}." in page.words
    assert (summary["promoted"], summary["promotion_reason"], summary["temperature"]) == (None, None, 1.0)


def test_without_metrics_and_completions(folders, tmp_path):
    trained, evaluation = make_trained(tmp_path / "trained"), make_evaluation(tmp_path / "after", 1.0)
    shutil.rmtree(trained / "training")
    (evaluation / "completions.jsonl").unlink()
    (evaluation / "problems.jsonl").unlink()
    page = Page(make_report(folders | {"trained": trained, "trained_evaluation": evaluation}, tmp_path / "out").read_text(encoding="utf-8"))
    assert not {"Reward and pass@1", "Verdicts", "Loss"} & set(page.plots)
    assert "Not recorded: reward, pass@1." in page.words
    assert "Problem by problem" not in page.words


def test_one_step_with_nan_and_few_metrics(folders, tmp_path):
    trained = make_trained(tmp_path / "trained", steps=1)
    row = step_metrics(1) | {"entropy": float("nan"), "loss": float("inf")}
    del row["completions/min_length"]
    write_rows(trained / "training" / "metrics.jsonl", [row])
    page = Page(make_report(folders | {"trained": trained}, tmp_path / "out").read_text(encoding="utf-8"))
    assert "Not recorded: entropy." in page.words
    assert "Not recorded: shortest and longest." in page.words
    assert {"Reward and pass@1", "Response length", "Verdicts"} <= set(page.plots)
    assert not {"Entropy", "Loss"} & set(page.plots)


def test_unfair_comparison_and_refused_promotion_are_said(folders, tmp_path):
    base = make_evaluation(tmp_path / "base", 0.0, temperature=0.6, ungraded=4)
    promotion = make_promotion(tmp_path / "promotion", promoted=False)
    file = make_report(folders | {"base_evaluation": base, "promotion": promotion}, tmp_path / "out")
    words = Page(file.read_text(encoding="utf-8")).words
    assert "The two evaluations differ in temperature: 0.6 and 1.0." in words
    assert "4 completions of the base model could not be graded" in words
    assert "; not promoted" in words
    assert "The interval reaches below the margin." in words


def test_a_fair_comparison_carries_no_caution(source):
    assert 'class="caution"' not in source


def test_folder_of_another_stage_is_refused_and_nothing_is_left(folders, tmp_path):
    with pytest.raises(InputError, match="must be an output of stage train, got one of stage evaluate"):
        make_report(folders | {"trained": folders["base_evaluation"]}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_broken_metrics_are_named_by_line(folders, tmp_path):
    trained = make_trained(tmp_path / "trained")
    (trained / "training" / "metrics.jsonl").write_text('{"step": 1}\n{"step": \n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: not JSON"):
        make_report(folders | {"trained": trained}, tmp_path / "out")


def test_command_prints_the_path_of_the_page(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("MICROCODER_TRACKING", "off")
    from microcoder_core.cli.report import report as command

    options = [f"--{name.replace('_', '-')}={folder}" for name, folder in folders.items()]
    result = CliRunner().invoke(command, [*options, f"--out={tmp_path / 'out'}", "title=Weekly"])
    assert result.output.strip() == str(tmp_path / "out" / "report.html")
    assert "<h1>Weekly</h1>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_samples_are_the_first_of_each_verdict_then_repeats(tmp_path):
    rows = [row | {"problem_id": "only", "verdict": "accepted", "text": "x" * 300} for row in completion_rows()]
    write_rows(tmp_path / "completions.jsonl", rows[:3])
    samples = choose_samples(tmp_path / "completions.jsonl", tmp_path / "none", 5, 100)
    assert [sample.sample for sample in samples] == [0, 1, 0]
    assert "[... 200 characters left out ...]" in samples[0].text


def test_unknown_verdict_is_refused(tmp_path):
    write_rows(tmp_path / "completions.jsonl", [{"problem_id": "p", "text": "", "verdict": "fine"}])
    with pytest.raises(InputError, match=r"completions\.jsonl:1: verdict"):
        choose_samples(tmp_path / "completions.jsonl", tmp_path / "none", 5, 100)


def test_smoothing_keeps_short_series_and_the_mean_of_long_ones():
    short, long = Series((1, 2), (0.0, 1.0)), Series(tuple(range(40)), tuple(float(n % 2) for n in range(40)))
    assert list(smoothed(short)[0]) == [0.0, 1.0]
    mean, width = smoothed(long)
    assert width == 5
    assert mean[10] == pytest.approx(0.4)  # steps 8 to 12: 0 1 0 1 0
    assert mean[0] == pytest.approx(1 / 3)  # steps 0 to 2: 0 1 0


def test_series_leaves_out_what_is_not_a_number():
    history = History({2: {"a": 1.0}, 1: {"a": float("nan")}, 3: {"a": True}, 4: {"a": float("inf")}, 5: {"a": 2}})
    assert history.series("a") == Series((2, 5), (1.0, 2.0))
    assert not history.series("b")


def test_numbers_as_shown():
    assert [number(0.5), number(None), number(float("nan")), number(-1.25, 1)] == ["0.500", "not recorded", "not recorded", "\u22121.2"]
    assert [signed(0.25), signed(-0.25), signed(-0.0001), signed(None)] == ["+0.250", "\u22120.250", "0.000", ""]
    assert [duration(4.25), duration(185), duration(7810)] == ["4.2 s", "3 min 5 s", "2 h 10 min"]
    assert [compact(1e-6), degrees(1.0), degrees(1.25)] == ["1e\u221206", "1.0", "1.25"]


@pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="no Chromium on this machine")
def test_browser_shows_every_plot_without_a_complaint(source, tmp_path):
    script = """<script>for (const svg of document.querySelectorAll("svg.plot")) {
        const page = svg.getBoundingClientRect(), drawn = svg.getBBox();
        svg.setAttribute("data-shown", page.width > 100 && page.height > 40 && drawn.width > 100 && drawn.height > 30);
    }
    document.body.setAttribute("data-overflow", document.documentElement.scrollWidth > innerWidth);</script></body>"""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', source)[0]
    (tmp_path / "page.html").write_text(source, encoding="utf-8")
    (tmp_path / "measured.html").write_text(source.replace(policy, "").replace("</body>", script), encoding="utf-8")
    plain, measured = browse(tmp_path / "page.html", tmp_path), browse(tmp_path / "measured.html", tmp_path)
    assert "CONSOLE" not in plain.stderr + measured.stderr
    assert "pass@1 0.59" in plain.stdout
    assert measured.stdout.count('data-shown="true"') == len(PLOTS)
    assert 'data-shown="false"' not in measured.stdout
    assert 'data-overflow="false"' in measured.stdout


def browse(file, tmp_path):
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-logging=stderr", "--v=0"]
    command = [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=420,900", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def test_an_evaluation_of_another_model_is_refused(tmp_path):
    folders = make_run(tmp_path)
    folders["trained_evaluation"], folders["base_evaluation"] = folders["base_evaluation"], folders["trained_evaluation"]
    with pytest.raises(InputError, match="got one of other weights"):
        report(ReportConfig(), **folders, out=tmp_path / "out", tracker=NullTracker())
