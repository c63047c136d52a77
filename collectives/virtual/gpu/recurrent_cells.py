"""Fused cells of recurrent layers, for the values of virtual CUDA tensors: the CPU has no kernels for them.

Source: torch, aten/src/ATen/native/cuda/RNN.cu (``lstm_cell_forward``, ``lstm_cell_backward``,
``gru_cell_forward``, ``gru_cell_backward``).  What the kernels keep for their backward passes is laid out as
there: gates of an LSTM one after the other; of a GRU reset, input, new, state before, and its new part.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lstm(
    input_gates: Tensor,
    hidden_gates: Tensor,
    before: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hidden state, the cell's, and the gates; of (batch, width), gates four times as wide."""
    gates = _sum(input_gates, hidden_gates, input_bias, hidden_bias)
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    state = forget * before + enter * new
    return leave * state.tanh(), state, torch.cat([enter, forget, new, leave], 1)


def lstm_backward(
    grad_hidden: Tensor | None,
    grad_state: Tensor | None,
    before: Tensor,
    state: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return gradients of gates, of the cell's state before, and of biases."""
    enter, forget, new, leave = gates.chunk(4, 1)
    hidden = torch.zeros_like(state) if grad_hidden is None else grad_hidden
    squashed = state.tanh()
    through = hidden * leave * (1 - squashed * squashed)
    if grad_state is not None:
        through = through + grad_state

    grads = torch.cat(
        [
            through * new * enter * (1 - enter),
            through * before * forget * (1 - forget),
            through * enter * (1 - new * new),
            hidden * squashed * leave * (1 - leave),
        ],
        1,
    )
    return grads, through * forget, grads.sum(0) if has_bias else None


def gru(
    input_gates: Tensor,
    hidden_gates: Tensor,
    before: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the hidden state, and what the backward pass needs; gates are three times as wide."""
    from_input = input_gates if input_bias is None else input_gates + input_bias
    from_hidden = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    reset_in, update_in, new_in = from_input.chunk(3, 1)
    reset_hid, update_hid, new_hid = from_hidden.chunk(3, 1)
    reset, update = (reset_in + reset_hid).sigmoid(), (update_in + update_hid).sigmoid()
    new = (new_in + reset * new_hid).tanh()
    return new + update * (before - new), torch.cat([reset, update, new, before, new_hid], 1)


def gru_backward(
    grad_hidden: Tensor, kept: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return gradients of both kinds of gates, of the hidden state before, and of both biases."""
    reset, update, new, before, new_hid = kept.chunk(5, 1)
    grad_update = grad_hidden * (before - new) * update * (1 - update)
    grad_new = grad_hidden * (1 - update) * (1 - new * new)
    grad_reset = grad_new * new_hid * reset * (1 - reset)
    of_input = torch.cat([grad_reset, grad_update, grad_new], 1)
    of_hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad_hidden * update, *biases


def _sum(*tensors: Tensor | None) -> Tensor:
    first, *others = (tensor for tensor in tensors if tensor is not None)
    for other in others:
        first = first + other
    return first
