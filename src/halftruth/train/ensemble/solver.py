"""L-BFGS for the small smooth problems of the ensemble."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class _Lbfgs(torch.optim.LBFGS):
    """The solver of torch, without the import of its compiler (1.6 seconds) at the first use.

    Torch wraps these two methods so that the compiler leaves them alone. Nothing is compiled here.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


def minimise(parameters: Sequence[Tensor], value: Callable[[], Tensor], steps: int) -> None:
    """Move parameters to a minimum of `value`, in at most so many steps.

    >>> x = torch.zeros(1, requires_grad=True)
    >>> minimise([x], lambda: (x - 2).square().sum(), steps=10)
    >>> round(x.item(), 4)
    2.0
    """
    solver = _Lbfgs(parameters, max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        now = value()
        now.backward()  # type: ignore[no-untyped-call]
        return now

    solver.step(closure)  # type: ignore[arg-type]
