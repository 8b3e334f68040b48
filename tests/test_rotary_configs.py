"""Published configurations, and the default configurations of all model types, give the rotation of transformers' own code."""

import json
from pathlib import Path

import numpy as np
import pytest

from posenc import Rotary
from posenc._rotary.model_config import layer_types, model_types

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TOOL = Path(__file__).parents[1] / "tools" / "model_types.py"
pytestmark = [pytest.mark.filterwarnings("ignore"),             # warnings from transformers
              pytest.mark.skipif(not TOOL.exists(), reason="requires the source tree")]
CONFIGS = json.loads(Path(__file__).with_name("rotary_configs.json").read_text())
transformers.logging.set_verbosity_error()


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOL.parent)
    return __import__("model_types")


def compare(tool, config, theirs):
    """Compare the rotations of a configuration with the tables of the rotary modules of a model; return their number."""
    count = 0
    for kind, part in tool.rotary_modules(theirs)[0]:
        for layer_type in layer_types(config) if part.model_type == theirs.model_type else ():
            rotary = Rotary.from_config(config, layer_type)
            axes = max(rotary.axes or (0,)) + 1
            positions = tool.POSITIONS if axes == 1 else np.random.default_rng(0).integers(1, 50, (axes, 1, 5))
            if layer_type in ("scaled", "unscaled"):                # Molmo2
                module, layer_type = kind(part, scaled=layer_type == "scaled"), None
            else:
                module = kind(part)
            ours = rotary.tables(positions if axes > 1 else positions[0], dtype="float64")
            values = tool.Tables(module, positions, layer_type).values
            np.testing.assert_allclose(values, (ours[0] + 1j * ours[1]).reshape(values.shape), atol=1e-4)
            count += 1
    return count


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
def test_published_configurations(config, tool):
    theirs = transformers.AutoConfig.for_model(**config).get_text_config()
    if not config.get("num_hidden_layers"):
        tool.shorten(theirs)
    assert compare(tool, config, theirs)
    for layer_type in layer_types(config):
        ours = [Rotary.from_config(each, layer_type) for each in (config, theirs, theirs.to_dict())]
        assert ours[0].layout == ours[1].layout and ours[1] == ours[2]


# ---- all model types --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_default_configurations_of_all_model_types(tool):
    """The rotation is that of transformers, or the configuration is refused because of its type, or lacks a value."""
    counts, reasons, different = {}, {}, {}
    for name, row in model_types().items():
        if not {"layout", "refused"} & row.keys() or name not in tool.CONFIG_MAPPING:
            continue
        try:
            theirs = tool.configured(name, **dict([row["switch"][:2]] if "switch" in row else []))
            counts[name] = compare(tool, theirs, theirs)
        except ValueError as error:
            reasons.setdefault(str(error), []).append(name)
        except AssertionError as error:
            different[name] = str(error)
        except Exception as error:  # noqa: BLE001 (the code of a model)
            reasons.setdefault(f"{type(error).__name__}: {error}", []).append(name)
    print(different, reasons)
    assert not different
    assert sum(map(bool, counts.values())) > 200


@pytest.mark.parametrize("name", ["llama", "hy_v4_vl_text", "gemma3_text", "deepseek_v4", "gptj", "qwen2_vl", "bert", "esm"])
def test_the_table_of_model_types(name, tool):
    """A workflow compares all lines."""
    assert tool.row_of(name, *tool.survey([name])) == model_types()[name]
