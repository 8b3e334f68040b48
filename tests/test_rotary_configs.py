"""Published configurations, and the default configurations of all model types, give the rotation of
transformers' own code.
"""

import json
from pathlib import Path

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


def found(model, inputs, tool):
    """Return the rotations that a model has, after a comparison with its configuration.

    If the model has one module for tables, the comparison is repeated with `RotaryEmbedding` in its place.
    """
    rows = [row for row in tool.report_of(model, None, inputs) if row.found is not None]
    assert all(row.found == row.expected for row in rows), rows
    if rows and isinstance(getattr(model, "rotary_emb", None), torch.nn.Module):
        model.rotary_emb = RotaryEmbedding(model.config)
        assert [row.found for row in tool.report_of(model, None, inputs) if row.found is not None] == [
            row.found for row in rows]
    return rows


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
def test_published_configurations(config, tool):
    theirs = transformers.AutoConfig.for_model(**config).get_text_config()
    for layer_type in Rotary.layer_types(config):
        assert Rotary.from_config(config, layer_type) == Rotary.from_config(theirs, layer_type)
        assert Rotary.from_config(theirs, layer_type) == Rotary.from_config(theirs.to_dict(), layer_type)
    keywords = tool.NEEDS.get(theirs.model_type, {}).get("keywords", {})
    theirs = tool.shorten(transformers.AutoConfig.for_model(**theirs.to_dict() | keywords))
    model = tool.built(tool.classes_for(theirs)[0], theirs)
    assert found(model, tool.inputs_of(model, theirs.model_type), tool)


@pytest.mark.long
def test_default_configurations_of_all_model_types(tool):
    """Types without a model that can be run have properties that were read in the code."""
    different, uncompared = set(), set()
    for name, row in model_types().items():
        if "layout" in row:
            name = tool.CONFIG_MAPPING[name].model_type
            switch = dict([row["switch"][:2]]) if "switch" in row else {}
            keywords = tool.NEEDS.get(name, {}).get("keywords", {}) | switch
            try:
                if not any(found(way.model(), way.inputs, tool) for way in tool.ways_of(name, keywords, [])):
                    uncompared.add(name)
            except AssertionError:
                different.add(name)
    assert different == {"minimax_m3_vl_text"}          # docs/rotary.md says why
    read = {name for name in uncompared if "read" in tool.NEEDS.get(name, {})}
    assert uncompared - read == {"lfm3"}                # its attention does not state the type of the layer


@pytest.mark.parametrize("name", ["llama", "hy_v4_vl_text", "gemma3_text", "deepseek_v4", "gptj", "qwen2_vl",
                                  "bert", "esm"])
def test_the_table_of_model_types(name, tool):
    """A workflow compares all lines."""
    assert tool.row_of(name) == model_types()[name]
