"""Arrow's arrays as those of a very type, as encodings take them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def shaped(array: Any, kind: pa.DataType) -> Any:
    """The array as one of that type. Names and flags within it may differ, and numbers' widths.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    if array.type.equals(kind, check_metadata=True):
        return array
    if not len(array):
        return pa.array([], kind)
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [shaped(array.field(i), field.type) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        keys, items = shaped(array.keys, kind.key_type), shaped(array.items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=kind, mask=mask)
    if pa.types.is_list(kind):
        values = shaped(array.values, kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=mask)
    return array.cast(kind)


def _offsets(array: Any) -> Any:
    """Of a list or a map, also of one that is a slice: as an array that is none."""
    return pa.array(array.offsets.to_numpy(zero_copy_only=False), pa.int32())
