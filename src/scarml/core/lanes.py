# mypy: ignore-errors
# (numba's and llvmlite's interfaces for extensions have no types)
"""Sums over four interleaved lanes, in vector instructions: the order of additions is fixed, on every machine."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["squared_differences"]

_N_LANES = 4


@intrinsic
def _squared_differences(typing_context: Any, x: Any, y: Any, start: Any, end: Any) -> Any:
    """Per lane Σ (x[i] − y[i])² in float64 over i = start + lane, start + lane + 4, … below end.

    For flat contiguous arrays of one numeric dtype, and a whole number of fours. Bounds are not checked.
    """
    result = types.UniTuple(types.float64, _N_LANES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        doubles, i32 = ir.VectorType(ir.DoubleType(), _N_LANES), ir.IntType(32)
        pointers = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:2], args[:2], strict=True)
        ]

        def load(pointer: Any, at: Any, dtype: Any) -> Any:
            element = context.get_data_type(dtype)
            vector = ir.VectorType(element, _N_LANES)
            address = builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())
            value = builder.load(address, align=max(1, context.get_abi_sizeof(element)))
            if isinstance(dtype, types.Float):
                return value if dtype.bitwidth == 64 else builder.fpext(value, doubles)
            is_signed = isinstance(dtype, types.Integer) and dtype.signed
            return (builder.sitofp if is_signed else builder.uitofp)(value, doubles)

        total = cgutils.alloca_once_value(builder, ir.Constant(doubles, [0.0] * _N_LANES))
        step = ir.Constant(args[2].type, _N_LANES)
        with cgutils.for_range_slice(builder, args[2], args[3], step, inc=True) as (at, _):
            difference = builder.fsub(
                *(load(p, at, kind.dtype) for p, kind in zip(pointers, signature.args, strict=False))
            )
            builder.store(builder.fadd(builder.load(total), builder.fmul(difference, difference)), total)
        lanes = builder.load(total)
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_element(lanes, i32(i)) for i in range(_N_LANES)]
        )

    return result(x, y, types.intp, types.intp), codegen


squared_differences: Any = _squared_differences
"""See `_squared_differences`; what calls it need not name the context that numba passes first."""
