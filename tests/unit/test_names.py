"""Names from outside never become paths."""

import pytest

from state_lib.errors import InvalidName
from state_lib.names import check_name


@pytest.mark.parametrize("name", ["a", "word_count", "A-b.c_9", "_x", "-", "0", "a..b", "x" * 100])
def test_usable(name: str) -> None:
    assert check_name("store", name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "../a", "a/b", "/a", "a\\b", "a\0", "\0", "a b", "a\n", "\na", "ä", "数",
     "a%2fb", "a@b", "a:b", "\uff0e\uff0e", "x" * 101],
)  # fmt: skip
def test_unusable(name: str) -> None:
    with pytest.raises(InvalidName) as refused:
        check_name("store", name)
    assert refused.value.details == {"kind": "store", "name": name}
    assert repr(name) in refused.value.message
