"""A device "fake" that computes with tensors on the CPU, for tests of other devices.

`COPIES` counts copies to the CPU.
"""

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

COPIES: list[tuple[int, ...]] = []      # shapes


class OnFake(torch.Tensor):
    """A tensor on the device "fake", with its values in a tensor on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values):
        tensor = torch._C._acc.create_empty_tensor(values.shape, values.dtype)
        tensor.__class__ = cls
        return tensor

    def __init__(self, values):
        self.values_on_cpu = values

    def detach(self):
        return self


def on_cpu(x):
    return x.values_on_cpu if isinstance(x, OnFake) else torch.device("cpu") if isinstance(x, torch.device) else x
def operate(operator, *arguments, **options):
    if operator is torch.ops.aten._copy_from.default:
        source, target = arguments[:2]
        if not isinstance(target, OnFake):
            COPIES.append(tuple(source.shape))
        return on_cpu(target).copy_(on_cpu(source)) if isinstance(target, OnFake) else target.copy_(on_cpu(source))
    result = operator(*tree_map(on_cpu, arguments), **tree_map(on_cpu, options))
    return tree_map(lambda x: OnFake(x) if isinstance(x, torch.Tensor) else x, result)


_setup_privateuseone_for_python_backend("fake")
library = torch.library.Library("_", "IMPL")
library.fallback(operate, "PrivateUse1")
# activation checkpointing asks every device
torch.fake.get_amp_supported_dtype = lambda: [torch.bfloat16]
torch.fake.get_rng_state, torch.fake.set_rng_state = torch.get_rng_state, torch.set_rng_state
