"""The page on differences from JAX: what it says is run."""

import doctest


def test_examples_of_the_page():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    result = doctest.testfile("../../docs/differences.md", optionflags=options)
    assert result.attempted > 15
    assert result.failed == 0
