"""Pages with parts that programs write, between lines such as ``<!-- first-table: begin -->`` and ``… end -->``."""

from __future__ import annotations

from collections.abc import Sequence

from scarml.errors import UsageError

__all__ = ["has_marked", "replace_marked", "table_row"]


def has_marked(page: str, name: str) -> bool:
    """Whether the text of a page has a part of that name."""
    return f"<!-- {name}: begin -->" in page


def replace_marked(page: str, name: str, new: str) -> str:
    r"""Put ``new`` between the marks of that name.

    Args:
        page: its text.
        name: of the part.
        new: its text, without a line break at the end.

    Raises:
        UsageError: if the marks are not there.

    Example:
        >>> replace_marked("<!-- t: begin -->\nold\n<!-- t: end -->", "t", "new").split("\n")
        ['<!-- t: begin -->', 'new', '<!-- t: end -->']
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise UsageError(f"the page has no lines {begin} and {end} to write between")
    return f"{before}{begin}\n{new}\n{end}{after}"


def table_row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
