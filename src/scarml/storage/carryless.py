# mypy: ignore-errors
# (numba's and llvmlite's interfaces for extensions have no types)
"""Carry-less multiplication for numba kernels: one instruction of x86 processors (PCLMULQDQ)."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["CAN_FOLD", "fold"]


def _can_fold() -> bool:
    """Whether the code that numba makes here may use the instruction."""
    is_for_this_host = numba.config.CPU_NAME is None and numba.config.CPU_FEATURES is None
    return is_for_this_host and bool(binding.get_host_cpu_features().get("pclmul", False))


CAN_FOLD = _can_fold()


@intrinsic
def _fold(typing_context: Any, low: Any, high: Any, k: Any, data_low: Any, data_high: Any) -> Any:
    """(low × k[0]) xor (high × k[1]) xor data, carry-less: 128 bits moved on by the distance that k stands for."""
    pair = types.UniTuple(types.uint64, 2)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, i8, i32 = ir.VectorType(ir.IntType(64), 2), ir.IntType(8), ir.IntType(32)

        def packed(first: Any, second: Any) -> Any:
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), first, i32(0))
            return builder.insert_element(one, second, i32(1))

        kind = ir.FunctionType(vector, [vector, vector, i8])
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
        low, high, pair_of_k, data_low, data_high = args
        k = packed(builder.extract_value(pair_of_k, 0), builder.extract_value(pair_of_k, 1))
        x, data = packed(low, high), packed(data_low, data_high)
        product = builder.xor(builder.call(multiply, [x, k, i8(0x00)]), builder.call(multiply, [x, k, i8(0x11)]))
        folded = builder.xor(product, data)
        halves = [builder.extract_element(folded, i32(0)), builder.extract_element(folded, i32(1))]
        return context.make_tuple(builder, signature.return_type, halves)

    return pair(types.uint64, types.uint64, pair, types.uint64, types.uint64), codegen


fold: Any = _fold
"""See `_fold`; what calls it need not name the context that numba passes first."""
