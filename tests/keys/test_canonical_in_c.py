"""The canonical form is the same bytes, whichever of the two writes it."""

from typing import Any

import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from idem.outbox.values.canonical import canonical

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
NAMES = st.text() | st.sampled_from(["a", "A", "aa", "\x7f", "\x1f", '"', "\\", "\u2028", "\ue000", "\U00010000"])


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=20))
@example({"b": [True, 1, 0, False, None], "a": {"\n\x1f\u20ac/": "</script>"}})
@example({"\ue000": 1, "\U00010000": 2})
@example({"a": 1.0, "b": 1e21, "c": -0.0})
def test_what_c_writes_is_the_canonical_form(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)
