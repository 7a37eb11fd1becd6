"""A thousand wrong calls, called eagerly and under transformations: typed errors in the user's words."""

import pytest
from wrong_calls import MODES, TABLES, calls, complaint


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_wrong_calls_are_typed_errors_in_the_words_of_users(table, mode):
    found = [complaint(call, mode) for call in calls(table)]
    assert len(found) > 50
    assert [text for text in found if text] == []
