"""Descriptions read out of docstrings."""

from collectives import resolve_algorithm
from testbed.report.schedule import describe, markdown, plain


def test_summary_idea_and_source_are_told_apart():
    description = describe(resolve_algorithm("ring"))

    assert description.summary == "A ring all-reduce over *world_size* chunks."
    assert [text.split()[0] for text in description.idea] == ["Every"]
    assert description.source.startswith("Patarasuk and Yuan")


def test_a_reference_to_another_source_is_followed_and_keeps_what_the_author_adds_to_it():
    source = describe(resolve_algorithm("direct")).source
    of_one, of_other = (describe(resolve_algorithm("ring", own)) for own in ("reduce_scatter", "all_gather"))

    assert source.startswith("Thakur, Rabenseifner and Gropp")
    assert source.endswith('"allpairs" in the examples of Microsoft\'s msccl-tools.')
    assert of_one.source == of_other.source


def test_sections_about_arguments_and_errors_are_left_out():
    def program(rank, world_size):
        """Yield this rank's step of nothing.

        Args:
            rank: of no interest.

        The idea.

        Raises:
            ValueError: never.
        """
        yield ()

    description = describe(resolve_algorithm(program))

    assert (description.summary, description.idea, description.source) == ("Nothing.", ("The idea.",), None)


def test_parameters_have_their_value_and_what_is_said_of_them():
    def program(rank, world_size, *, segments=4, shape=""):
        """Yield this rank's steps of something.

        Args:
            rank: of no interest.
            segments: parts that
                follow each other.

        Source: none.
        """
        yield ()

    description = describe(resolve_algorithm(program).with_parameters(shape="2x2"))

    assert description.parameters == (("segments=4", "parts that follow each other."), ("shape='2x2'", ""))
    assert (description.idea, description.source) == ((), "none.")


def test_markup_is_taken_away_or_made_markdowns():
    text = "``2(p-1)`` steps of *root*, as `ring`; 2 * p * q"

    assert plain(text) == "2(p-1) steps of root, as ring; 2 * p * q"
    assert markdown(text) == "`2(p-1)` steps of `root`, as `ring`; 2 * p * q"
