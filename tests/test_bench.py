"""posenc bench: figures follow from times, and every scene runs.  What is fast enough is asserted nowhere."""

import json
import math
import subprocess
import sys
import textwrap

import pytest

from posenc import _bench, _cli

TIMES = {
    "posenc": [1.0, 2.0, 4.0],
    "rival": [3.0, 4.0, 40.0, 100.0],
    "memset": [2.0, 2.0, 2.0],
    "non-temporal fill": [1.0, 1.5, 9.0],
}
SCENE = _bench.Scene("a scene", 2, "aligned", {}, [], nbytes=2 * 10**9)


def quoted(figure, times=TIMES):
    return _bench.quote(figure, SCENE, _bench.with_roof(times), others=None)


# ---- figures --------------------------------------------------------------------------------------------------------


def test_a_ratio_is_the_median_of_pairs():
    assert _bench.pairwise(TIMES, "rival", "posenc") == 3.0        # of 3, 2 and 10; the fourth round had no pair
    assert quoted(_bench.faster("a", "rival"))["value"] == 3.0


def test_the_roof_line_is_the_faster_fill():
    assert _bench.with_roof(TIMES)["roof"] is TIMES["non-temporal fill"]
    assert "roof" not in _bench.with_roof({"posenc": [1.0]})
    share = quoted(_bench.share("a", 0.9))
    assert (share["figure"], share["value"], share["met"]) == ("a, share of the roof line", 1.0, True)


@pytest.mark.parametrize("target, expected, met", [(2.0, 2.0, True), (3.0, 0.85 * 3.0, True), (None, None, None)])
def test_no_more_is_asked_for_than_the_roof_line_reaches(target, expected, met):
    figure = quoted(_bench.faster_or_roof("a", "rival", target))
    assert (figure["value"], figure["target"], figure["met"]) == (3.0, expected, met)
    assert figure["wanted"] == (3.0 if target == 3.0 else None)


def test_what_is_to_be_small():
    assert quoted(_bench.seconds("a", "posenc", 1500.0))["met"] is False
    assert quoted(_bench.seconds("a", "posenc", 2500.0)) | {"met": True} == quoted(_bench.seconds("a", "posenc", 2500.0))
    spread = quoted(_bench.spread("a", ["posenc", "rival"], 11.0))
    assert (spread["value"], spread["met"]) == (11.0, True)


def test_a_rival_that_is_not_there_is_skipped():
    figure = quoted(_bench.faster("a", "absent", 1.0))
    assert figure["value"] is figure["target"] is figure["met"] is None
    assert "skipped" in _bench.figure_row(figure)


def test_the_report_says_what_was_missed_and_what_disturbed():
    row = _bench.figure_row(quoted(_bench.faster("a", "rival", 5.0)) | {"others": 0.75})
    assert row == ["a", "2", "aligned", "3 x", ">= 5", "MISSED", "others took 0.8 processors"]
    lowered = _bench.figure_row(quoted(_bench.faster_or_roof("a", "rival", 3.0)))
    assert lowered[4:] == [">= 2.55 (0.85 of the roof line's; else 3.0)", "met", ""]


@pytest.mark.parametrize("seconds, text", [(2.0, "2 s"), (0.05, "50 ms"), (3e-4, "0.3 ms"), (2e-6, "2 us"), (3e-8, "30 ns")])
def test_times_in_words(seconds, text):
    assert _bench.readable(seconds) == text


# ---- scenes ---------------------------------------------------------------------------------------------------------

# in a process of its own: torch is told how many threads to take
SMALL = """
    import sys
    from posenc import _bench, _cli
    sys.modules["transformers"] = None
    _bench.ROWS, _bench.WIDTH, _bench.PEER_ROWS, _bench.STEPS, _bench.NARROW = 128, 32, 64, 10, 2
    _bench.SAMPLE_SECONDS = 1e-5
    sys.exit(_cli.main(["bench", "--quick", *sys.argv[1:]]))
    """


def bench(*arguments):
    command = [sys.executable, "-c", textwrap.dedent(SMALL), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_scene_runs():
    document = json.loads(bench("--json", "--threads", "1", "2"))
    assert any(name.startswith("transformers") for name in document["missing"])
    titles = " ".join(scene["scene"] for scene in document["scenes"])
    for word in ("float32", "bfloat16", "recipes", "peers", "add_to", "scattered", "in cache", "one row", "building", "stream",
                 "callers"):
        assert word in titles
    for scene in document["scenes"]:
        for name, seconds in scene["seconds"].items():
            assert 0 < seconds["least"] <= seconds["median"] < math.inf and seconds["rounds"] >= 3, name
    absent = {"torch", "positional-encodings", "transformers, Marian", "nn.Embedding"}
    for figure in document["figures"]:
        assert figure["value"] is None and any(name in figure["figure"] for name in absent) or figure["value"] > 0
    assert document["header"]["threads"] == [1, 2] and document["header"]["command"] == "posenc bench --quick --threads 1 2"


def test_some_scenes_as_text():
    text = bench("--only", "cache", "build", "--threads", "1")
    assert text.startswith("posenc bench --quick --threads 1 --only cache build\n")
    assert "in cache (32 x 32) against np.copyto" in text and "Encoding(512)" in text and "float32 table" not in text


def test_wrong_usage(capsys):
    assert _cli.main(["bench", "--only", "nothing"]) == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
    assert _cli.main(["bench", "--only", "row", "--threads", "1", "0"]) == 2
    assert capsys.readouterr().err == "posenc: error: threads is 0, expected at least 1\n"
