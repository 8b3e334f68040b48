"""Published configurations, and the default configurations of all model types, give the rotation of
transformers' own code.
"""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from posenc import Rotary
from posenc._rotary.model_config import model_types

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from posenc.torch import RotaryEmbedding  # noqa: E402

TOOL = Path(__file__).parents[1] / "tools" / "model_types.py"
pytestmark = [pytest.mark.filterwarnings("ignore"),             # warnings from transformers
              pytest.mark.skipif(not TOOL.exists(), reason="requires the source tree")]
CONFIGS = json.loads(Path(__file__).with_name("rotary_configs.json").read_text())
transformers.logging.set_verbosity_error()


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOL.parent)
    return __import__("model_types")


@torch.no_grad()
def compare(tool, config, theirs):
    """Compare the rotations of a configuration with the rotary modules of a model of transformers.

    Return their number.
    """
    count = 0
    modules, classes = tool.rotary_modules(theirs)
    for kind, part in modules:
        ours = RotaryEmbedding(config) if part.model_type == theirs.model_type else None
        for layer_type in Rotary.layer_types(config) if ours else ():
            rotary = ours.rotary(layer_type)
            axes = max(rotary.axes or (0,)) + 1
            positions = tool.POSITIONS if axes == 1 else np.random.default_rng(0).integers(1, 50, (axes, 1, 5))
            build, name = kind, layer_type
            if layer_type in ("scaled", "unscaled"):                # Molmo2
                build, name = functools.partial(kind, scaled=layer_type == "scaled"), None
            tables = tool.Tables(build(part), positions, name)
            values = ours(torch.zeros(1), torch.from_numpy(positions), layer_type)
            for a, b in zip(values if isinstance(values, tuple) else (values,), tables.given, strict=True):
                torch.testing.assert_close(a, b, atol=1e-4, rtol=0)
            assert tool.layout_of(part, classes, tool.tables_of(build, part, name)[1]) == rotary.layout
            count += 1
    return count


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
def test_published_configurations(config, tool):
    theirs = transformers.AutoConfig.for_model(**config).get_text_config()
    if not config.get("num_hidden_layers"):
        tool.shorten(theirs)
    assert compare(tool, config, theirs)
    for layer_type in Rotary.layer_types(config):
        assert Rotary.from_config(theirs, layer_type) == Rotary.from_config(theirs.to_dict(), layer_type)


@pytest.mark.long
def test_default_configurations_of_all_model_types(tool):
    """Other configurations are refused because of their type, or because they lack a value."""
    counts, reasons, different = {}, {}, set()
    for name in filter(lambda name: {"layout", "refused"} & model_types()[name].keys(), tool.CONFIG_MAPPING):
        switch = [model_types()[name]["switch"][:2]] if "switch" in model_types()[name] else []
        try:
            theirs = tool.shorten(transformers.AutoConfig.for_model(name, **dict(switch)))
            counts[name] = compare(tool, theirs, theirs)
        except AssertionError:
            different.add(name)
        except Exception as error:  # noqa: BLE001 (a configuration is refused, or the code of a model cannot be called)
            reasons.setdefault(str(error), []).append(name)
    assert different == {"minimax_m3_vl_text"}          # docs/rotary.md says why
    known = "several axes|negates|no rotary|several parts|a multiple of|number of pairs|sliding|no model"
    assert [reason for reason in reasons if not re.search(known, reason)] == [] and sum(map(bool, counts.values())) >= 190


@pytest.mark.parametrize("name", ["llama", "hy_v4_vl_text", "gemma3_text", "deepseek_v4", "gptj", "qwen2_vl",
                                  "bert", "esm"])
def test_the_table_of_model_types(name, tool):
    """A workflow compares all lines."""
    assert tool.row_of(name) == model_types()[name]
