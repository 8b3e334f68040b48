"""`posenc check` compares stored tables with a configuration."""
import json

import numpy as np
import pytest

from conftest import main_without
from posenc import Rotary

BASE = 500_000.0
CONFIG = {"model_type": "llama", "head_dim": 64, "rope_theta": BASE}
NESTED = {"model_type": "gemma3_text", "head_dim": 64, "rope_parameters": {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}


def frequencies(base):
    return (base ** -(np.arange(0, 64, 2) / 64)).astype(np.float32)


def tables(base, n=300):
    angles = np.arange(n, dtype=np.float32)[:, None] * frequencies(base)
    return np.cos(angles), np.sin(angles)


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a checkpoint with these tensors to a folder, and returns the folder."""
    save = pytest.importorskip("safetensors.numpy").save_file

    def write(tensors, config=CONFIG):
        (tmp_path / "config.json").write_text(json.dumps(config))
        save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
        return tmp_path
    return write


# ---- the command -------------------------------------------------------------------------------------------


def test_the_rotation_of_a_configuration(call, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert call("check", path) == (0, f"{path}: Rotary(64, base=500000.0)\n", "")
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": NESTED}))
    code, out, _ = call("check", path)
    assert code == 0 and out.splitlines() == [
        f"{path}: Rotary(64, base=1000000.0) for full_attention", f"{path}: Rotary(64) for sliding_attention"]
    document = json.loads(call("check", path, "--json")[1])
    assert [(each.pop("layer_type"), Rotary.from_dict(each)) for each in document["expected"]] == [
        ("full_attention", Rotary(64, base=1e6)), ("sliding_attention", Rotary(64))]
    assert document["ok"] and document["tables"] == []


def test_tables_of_a_checkpoint(call, model):
    cos, sin = (np.tile(table, 2)[None, None] for table in tables(BASE))
    right = {"cos_cached": cos, "sin_cached": sin, "layers.0.weight": np.zeros((4, 4), np.float32)}
    folder = model(right | {f"layers.{i}.rotary_emb.inv_freq": frequencies(BASE) for i in range(3)})
    code, out, err = call("check", folder)
    assert (code, err) == (0, "") and "weight" not in out
    assert "cos_cached and sin_cached" in out and "layers.0.rotary_emb.inv_freq and 2 more" in out

    bases = (BASE, 1e4, BASE)
    folder = model(right | {f"layers.{i}.rotary_emb.inv_freq": frequencies(bases[i]) for i in range(3)})
    code, out, _ = call("check", folder)
    assert code == 1 and "    fault     base is 10000, expected 500000\n" in out
    document = json.loads(call("check", folder, "--json")[1])
    assert not document["ok"]
    wrong, = (row for row in document["tables"] if row["verdict"] == "wrong")
    assert wrong["module"] == "layers.1.rotary_emb.inv_freq" and wrong["found"]["rotary"]["base"] == 10000.0
    assert wrong["errors"].keys() == {"1000", "100000", "1000000"}


def test_a_checkpoint_without_tables_is_not_right(call, model):
    folder = model({"weight": np.zeros((2, 2), np.float32)})
    code, out, _ = call("check", folder)
    assert code == 1 and "not checked" in out and "reason    the files have no tables, as the model computes" in out
    code, _, err = call("check", folder / "config.json", "--tables", folder / "model.safetensors")
    assert code == 1 and "no tensor has a name such as inv_freq or cos_cached; select one" in err
    (folder / "model.safetensors").unlink()
    code, out, _ = call("check", folder, "--json")
    reason = json.loads(out)["tables"][0]["reason"]
    assert code == 1 and not json.loads(out)["ok"] and "the folder has no file such as *.safetensors" in reason


def test_files_of_torch(call, model):
    torch = pytest.importorskip("torch")
    folder = model({})
    (folder / "model.safetensors").unlink()
    for base, dtype, code in ((BASE, torch.float32, 0), (1e4, torch.float32, 1), (BASE, torch.bfloat16, 1)):
        state = {"rotary_emb.inv_freq": torch.from_numpy(frequencies(base)).to(dtype), "w": torch.zeros(2)}
        torch.save({"state_dict": state}, folder / "pytorch_model.bin")
        assert call("check", folder)[0] == code, (base, dtype)
        assert call("check", folder / "config.json", "--tables", folder / "pytorch_model.bin")[0] == code
    (folder / "pytorch_model.bin").write_bytes(b"x")
    code, _, err = call("check", folder)
    assert code == 1 and "pytorch_model.bin: torch.load(weights_only=True, mmap=True) raises" in err


@pytest.mark.parametrize("dtype, name, sentence", [
    ("BF16", "bfloat16", "inv_freq was rounded to bfloat16"), ("F8_E4M3", "float8_e4m3fn", "dtype F8_E4M3, expected F64"),
])
def test_dtypes_of_safetensors(call, model, dtype, name, sentence):
    kind = getattr(pytest.importorskip("ml_dtypes"), name)
    data, folder = frequencies(BASE).astype(kind), model({})
    header = json.dumps({"inv_freq": {"dtype": dtype, "shape": [32], "data_offsets": [0, data.nbytes]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data.tobytes())
    code, out, err = call("check", folder)
    assert code == 1 and sentence in out + err


def test_each_form_of_tables(call, model, tmp_path):
    (cos, sin), wrong = tables(BASE), tables(1e4)
    other = {"a": cos, "b": sin, "both": np.hstack([cos, sin]), "wrong": np.hstack(wrong),
             "half": frequencies(BASE).astype(np.float16),
             "cos_sin_cache": np.hstack([cos, sin])}
    folder = model(other)
    arguments = "check", folder / "config.json", "--tables", folder / "model.safetensors"
    for keys, code in (("a b", 0), ("both", 0), ("wrong", 1), ("b a", 1), ("half", 1), ("", 0)):
        assert call(*arguments, *(word for key in keys.split() for word in ("--key", key)))[0] == code, keys
    for array, code in ((other["both"], 0), (other["wrong"], 1), (frequencies(BASE), 0)):
        np.save(tmp_path / "table.npy", array)
        assert call(*arguments[:3], tmp_path / "table.npy")[0] == code


def test_a_table_that_cannot_be_compared_is_a_failure(call, model, tmp_path):
    np.save(tmp_path / "odd.npy", np.ones((300, 7), np.float32))
    code, out, _ = call("check", model({}) / "config.json", "--tables", tmp_path / "odd.npy", "--json")
    document = json.loads(out)
    row, = document["tables"]
    assert code == 1 and not document["ok"] and row["verdict"] == "not checked"
    assert row["faults"] == [] and "(300, 7)" in row["reason"]


def test_tables_of_several_layer_types_are_compared_with_each(call, model):
    folder = model({"local.inv_freq": frequencies(1e4), "global.inv_freq": frequencies(1e6)}, NESTED)
    assert call("check", folder)[0] == 0
    folder = model({"local.inv_freq": frequencies(1e4), "global.inv_freq": frequencies(BASE)}, NESTED)
    assert call("check", folder)[0] == 1


@pytest.mark.parametrize("text, message", [
    ("{", "expected a model's configuration"), ("{}", "model_type None"), ("[]", "not a list"),
    ("\x93NUMPY", "expected a model's configuration"),
    ('{"model_type": "bert", "hidden_size": 64, "num_attention_heads": 1}', "no rotary embeddings"),
])
def test_configurations_without_a_rotation_are_failures(call, tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")
    code, out, err = call("check", path)
    assert (code, out) == (1, "") and err.startswith(f"posenc: error: {path}: ") and message in err


@pytest.mark.parametrize("arguments, names", [
    ("", "PATH"), (". --tables absent.npy", "absent.npy"), ("config.json --key a", "--key --tables"),
    ("config.json --tables a.safetensors --key a --key b --key c", "--key"), ("absent.json", "absent.json"),
    ("config.json --tables absent.npy", "absent.npy"), ("config.json --tables config.json", ".safetensors"),
    ("config.json --tables model.safetensors --key pe", "'pe', weight"),
])
def test_wrong_options_are_named(call, model, monkeypatch, arguments, names):
    monkeypatch.chdir(model({"weight": np.zeros((2, 2), np.float32)}))
    code, out, err = call("check", *arguments.split())
    assert code > 0 and out == "" and all(name in err.splitlines()[-1] for name in names.split())


def test_the_command_works_without_torch(model):
    import subprocess

    folder = model({"inv_freq": frequencies(BASE)})
    done = subprocess.run(main_without("torch", "check", folder), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "inv_freq" in done.stdout
