"""The same words in every command: older ones still mean what they meant, and lists have commas."""

import pytest

from tests.commands import reported, rows_of


@pytest.mark.parametrize(
    ("older", "word"),
    [
        ("bench --ranks 4 --algorithm ring --sizes 1M", "bench --ranks 4 --algorithm ring --nbytes 1M"),
        ("simulate ring --ranks 4 --sizes 1M", "simulate ring --ranks 4 --nbytes 1M"),
    ],
)
def test_an_older_word_for_an_option_means_the_same(older, word):
    first, second = reported(older), reported(word)

    assert first["rows"] == second["rows"]
    assert first["assumptions"] == second["assumptions"]


def test_an_option_is_repeated_or_has_commas_or_both():
    step = "--ranks 2 --ideal --network ethernet-25g"

    pair = "after_backward,priority:credits=2"

    together = rows_of(f"scale {step},switch-100g --strategy wait_free,{pair}")

    assert together == rows_of(f"scale {step} --network switch-100g --strategy wait_free --strategy {pair}")
    assert len(together) == 6
