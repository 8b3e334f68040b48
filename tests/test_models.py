"""Models keep their logits with tables from posenc; the models are small, have random weights and need no download."""

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")      # warnings from other libraries

VOCABULARY, D_MODEL, LENGTH = 99, 64, 60
SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": D_MODEL,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "init_std": 0.2,                    # large enough that positions affect the logits
}


def replace(tables, name):
    """Overwrite the tables of a model with the encodings of a preset."""
    with torch.no_grad():
        for table in tables:
            table.copy_(torch.from_numpy(posenc.preset(name, table.shape[1]).encode(len(table))))


def tokens(padding=None):
    ids = torch.randint(4, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    if padding is not None:
        ids[1, LENGTH // 2 :] = padding
    return ids


def marian():
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(**SIZES, max_position_embeddings=512, pad_token_id=98, decoder_start_token_id=98)
    model = transformers.MarianMTModel(config)
    tables = [part.embed_positions.weight for part in (model.model.encoder, model.model.decoder)]
    return model, tables, lambda: model(input_ids=tokens(), decoder_input_ids=tokens()).logits


def m2m100():
    transformers = pytest.importorskip("transformers")
    config = transformers.M2M100Config(**SIZES, max_position_embeddings=128, pad_token_id=1)
    model = transformers.M2M100ForConditionalGeneration(config)
    tables = [part.embed_positions.weights for part in (model.model.encoder, model.model.decoder)]
    ids = tokens(padding=1)
    return model, tables, lambda: model(input_ids=ids, attention_mask=ids != 1, decoder_input_ids=tokens()).logits


def whisper():
    transformers = pytest.importorskip("transformers")
    config = transformers.WhisperConfig(
        **SIZES,
        num_mel_bins=8,
        max_source_positions=100,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=2,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    sound = torch.randn(2, 8, 200, generator=torch.Generator().manual_seed(2))
    tables = [model.model.encoder.embed_positions.weight]
    return model, tables, lambda: model(input_features=sound, decoder_input_ids=tokens()).logits


def encoder():
    """A torch.nn.TransformerEncoder with a classifier and a table computed by the common float32 recipe."""
    layer = torch.nn.TransformerEncoderLayer(D_MODEL, 4, 128, batch_first=True)
    model = torch.nn.ModuleDict(
        {
            "embedding": torch.nn.Embedding(VOCABULARY, D_MODEL),
            "encoder": torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            "head": torch.nn.Linear(D_MODEL, VOCABULARY),
        }
    )
    table = torch.zeros(LENGTH, D_MODEL)
    frequencies = torch.exp(torch.arange(0, D_MODEL, 2).float() * (-np.log(10000.0) / D_MODEL))
    angles = torch.arange(LENGTH).float()[:, None] * frequencies
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return model, [table], lambda: model["head"](model["encoder"](model["embedding"](tokens()) + table))


@pytest.mark.parametrize(
    "build, name, wrong, tolerance",
    [
        pytest.param(marian, "marian", "vaswani", 0.0, id="marian"),
        pytest.param(m2m100, "m2m100", "marian", 1e-5, id="m2m100"),
        pytest.param(whisper, "whisper", "musicgen", 1e-5, id="whisper"),
        pytest.param(encoder, "vaswani", "marian", 1e-5, id="torch.nn.TransformerEncoder"),
    ],
)
@torch.no_grad()
def test_logits_of_models_do_not_change(build, name, wrong, tolerance):
    torch.manual_seed(0)
    model, tables, logits = build()
    model.eval()
    theirs = logits()
    replace(tables, name)
    ours = logits()
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    if tolerance == 0:
        assert torch.equal(ours, theirs)
    else:
        assert (ours - theirs).abs().max() <= tolerance
    replace(tables, wrong)
    assert (logits() - theirs).abs().max() > 1000 * tolerance
    assert not torch.equal(logits().argmax(-1), theirs.argmax(-1))
