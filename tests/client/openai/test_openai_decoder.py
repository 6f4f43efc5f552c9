"""What config.json says of a decoder is held against the names, shapes and types of tensors, and only where all agree
on what they mean.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.findings import Finding, Severity
from tidegate.openai.decoder import check_decoder, check_numbers
from tidegate.openai.weights import StoredTensor as Tensor

WORDS, WIDTH, LAYERS = 100, 8, 3
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def weights(
    prefix: str = "model.", head: str = "lm_head.weight", layers: int = LAYERS, dtype: str = "BF16"
) -> dict[str, Tensor]:
    inner = {f"{prefix}layers.{number}.mlp.weight": Tensor(dtype, (WIDTH, WIDTH)) for number in range(layers)}
    ends = {name: Tensor(dtype, (WORDS, WIDTH)) for name in (f"{prefix}embed_tokens.weight", head) if name}
    return inner | ends


def found(config: dict[str, Any], tensors: dict[str, Tensor]) -> list[Finding]:
    return list(check_decoder(config, tensors))


MULTI_MODAL = {
    "architectures": ["SeesForConditionalGeneration"], "text_config": CONFIG, "vision_config": {"num_hidden_layers": 9},
}  # fmt: skip
EYES = {f"vision_tower.encoder.layers.{number}.weight": Tensor("BF16", (5, 5)) for number in range(9)}
PACKED = {f"model.layers.{number}.mlp.qweight": Tensor("I32", (WIDTH // 8, WIDTH)) for number in range(LAYERS)}
FITS: dict[str, tuple[dict[str, Any], dict[str, Tensor]]] = {
    "plain": (CONFIG, weights()),
    "base model": (CONFIG | {"architectures": ["Qwen3Model"]}, weights("", "")),
    "tied": (CONFIG | {"tie_word_embeddings": True}, weights(head="")),
    "does not say whether tied": (CONFIG | {"tie_word_embeddings": None}, weights(head="")),
    "sees": (MULTI_MODAL, EYES | weights("model.language_model.")),
    "sees, as before 4.52": (MULTI_MODAL, EYES | weights("language_model.model.", "language_model.lm_head.weight")),
    "has rows for images": (MULTI_MODAL | {"text_config": CONFIG | {"vocab_size": WORDS - 8}}, EYES | weights()),
    "part that is tied by default": (
        CONFIG | {"text_config": {"vocab_size": WORDS}}, weights(head="")
    ),
    "packed": (CONFIG | {"quantization_config": {"quant_method": "gptq"}}, PACKED | weights(layers=0, dtype="F16")),
    "packed words": (
        CONFIG | {"quantization": {"bits": 4}},
        weights() | {"model.embed_tokens.weight": Tensor("U32", (WORDS, WIDTH // 8))},
    ),
    "FP8": (CONFIG | {"quantization_config": {}}, weights() | {"model.layers.0.k": Tensor("F8_E4M3", (999, 999))}),
    "predicts further tokens": (CONFIG | {"num_nextn_predict_layers": 1}, weights(layers=LAYERS + 1)),
    "listens": (CONFIG | {"num_hidden_layers": 32}, weights("model.decoder.", "proj_out.weight")),
    "other names": (CONFIG, {"transformer.wte.weight": Tensor("BF16", (7, 7)), "h.0.bias": Tensor("BF16", (9,))}),
    "some of another type": (CONFIG, weights() | {"model.layers.0.bias": Tensor("F32", (9,))}),
    "no types said": (CONFIG | {"torch_dtype": "auto"}, weights(dtype="F32")),
}  # fmt: skip


@pytest.mark.parametrize(("config", "tensors"), FITS.values(), ids=FITS.keys())
def test_what_is_of_one_model_passes_whatever_its_form(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    assert found(config, tensors) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": WORDS + 1}, f"vocab_size is {WORDS + 1}, and model.embed_tokens.weight has {WORDS} rows"),
        ({"hidden_size": 9}, f"hidden_size is 9, and model.embed_tokens.weight has {WIDTH} columns"),
        ({"num_hidden_layers": 4}, "num_hidden_layers is 4, and there are no weights of layer 3"),
        ({"num_hidden_layers": 10**18}, f"num_hidden_layers is {10**18}, and there are no weights of layer 3"),
    ],
)
@pytest.mark.parametrize("multi_modal", [False, True])
def test_sizes_of_another_model_are_errors(change: dict[str, int], said: str, *, multi_modal: bool) -> None:
    config = MULTI_MODAL | {"text_config": CONFIG | change} if multi_modal else CONFIG | change
    [one] = found(config, EYES | weights())
    assert (one.severity, one.what, one.where) == (Severity.ERROR, said, "config.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": WORDS - 1}, f"vocab_size is {WORDS - 1}, and model.embed_tokens.weight has {WORDS} rows"),
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2, and there are weights of layer 2"),
        ({"torch_dtype": "float16"}, "torch_dtype is float16, and most of the weights are bfloat16"),
        ({"dtype": "float32"}, "dtype is float32, and most of the weights are bfloat16"),
    ],
)
def test_what_some_engine_takes_is_a_warning(change: dict[str, Any], said: str) -> None:
    [one] = found(CONFIG | change, weights())
    assert (one.severity, one.what) == (Severity.WARNING, said)


def test_a_layer_in_the_middle_may_not_be_missing() -> None:
    tensors = weights()
    tensors.pop("model.layers.1.mlp.weight")
    [one] = found(CONFIG, tensors)
    assert "there are no weights of layer 1" in one.what


def with_parts(*layers: str) -> dict[str, Tensor]:
    """Return weights whose layers have tensors of these names each, separated by blanks."""
    named = {f"model.layers.{at}.{name}.weight" for at, names in enumerate(layers) for name in names.split()}
    return weights(layers=0) | dict.fromkeys(sorted(named), Tensor("BF16", (WIDTH, WIDTH)))


DENSE = "self_attn.q_proj self_attn.k_proj mlp.gate_proj mlp.up_proj mlp.down_proj input_layernorm"


@pytest.mark.parametrize("lacking", ["mlp.up_proj", "self_attn.k_proj"])
@pytest.mark.parametrize("at", range(LAYERS))
def test_a_part_that_one_layer_alone_lacks_is_an_error(lacking: str, at: int) -> None:
    layers = [DENSE] * LAYERS
    layers[at] = DENSE.replace(lacking, "")
    [one] = found(CONFIG, with_parts(*layers))
    assert (one.severity, one.what) == (
        Severity.ERROR, f"layer {at} lacks {lacking}.weight, which all others have",
    )  # fmt: skip


@pytest.mark.parametrize(
    "layers",
    [
        [DENSE, *[DENSE.replace("mlp.up_proj", "mlp.gate mlp.experts.0.up_proj")] * 2],
        [DENSE, DENSE, "mlp.gate_proj mlp.up_proj mlp.down_proj input_layernorm"],
        [DENSE.replace("input_layernorm", ""), DENSE, DENSE],
        [DENSE, DENSE, DENSE.replace("self_attn.k_proj", "self_attn.kv_a_proj")],
    ],
    ids=["first is dense", "last has no attention", "first has no norm", "other attention"],
)
def test_layers_need_not_be_alike(layers: list[str]) -> None:
    assert found(CONFIG, with_parts(*layers)) == []


@pytest.mark.parametrize("key", ["quantization_config", "quantization"])
def test_a_module_that_one_layer_has_unquantised_lacks_nothing(key: str) -> None:
    tensors = with_parts(*[DENSE] * LAYERS)
    scales = {f"{name}_scale": Tensor("BF16", (WIDTH, 1)) for name in tensors if "_proj." in name}
    del scales[f"model.layers.{LAYERS - 1}.mlp.down_proj.weight_scale"]
    ignore = [f"model.layers.{LAYERS - 1}.mlp.down_proj"]
    assert found(CONFIG | {key: {"ignore": ignore}}, tensors | scales) == []


def test_of_two_layers_that_differ_none_is_the_odd_one() -> None:
    layers = [DENSE, DENSE.replace("mlp.up_proj", "")]
    assert found(CONFIG | {"num_hidden_layers": len(layers)}, with_parts(*layers)) == []


def test_heads_of_a_size_of_their_own_need_not_divide_the_width() -> None:
    assert list(check_numbers(CONFIG | {"num_attention_heads": 3, "head_dim": 4, "num_key_value_heads": None})) == []
    assert list(check_numbers({"max_position_embeddings": None, "num_attention_heads": [4, 8]})) == []


def test_what_does_not_tie_its_words_has_a_head() -> None:
    [one] = found(CONFIG, weights(head=""))
    assert (one.severity, one.what) == (
        Severity.ERROR, "tie_word_embeddings is false, and there is no lm_head.weight",
    )  # fmt: skip
    assert found(CONFIG, weights(head="lm_head.qweight")) == []


@given(st.text("0123456789٣", min_size=1, max_size=5_000))
def test_no_name_of_a_tensor_is_a_defect_of_ours(number: str) -> None:
    list(check_decoder(CONFIG, {f"model.layers.{number}.weight": Tensor("BF16", (1,))}))
