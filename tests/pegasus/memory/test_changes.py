"""Changes as values: what is different, following it, taking it back."""

import json
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.memory import changes
from pegasus.memory.changes import (
    ABSENT,
    Author,
    CannotUndo,
    Change,
    KnownContent,
    change_json,
    change_line,
    content_hash,
    decode_text,
    encode_text,
    known_content,
    parse_change,
    read_log,
    shortened,
    undo_change,
    void_line,
)
from pegasus.memory.taking_back import Block, difference, split_lines

LINES = st.lists(st.sampled_from(["a", "b", "- c: 1", "", "> Summary: s", "日本"]), max_size=12).map("\n".join)


def change(n, before, after, **more):
    given = {"how": "write", "by": Author(), **more}
    contents = (known_content(encode_text(text)) for text in (before, after))
    return Change(n, 0, "facts/a.md", given.pop("how"), given.pop("by"), *contents, **given)


def life(*texts):
    """The changes that lead from one text to the next."""
    return [change(n, before, after) for n, (before, after) in enumerate(pairwise(texts), 1)]


def apply(old, blocks):
    lines = split_lines(old)
    for start, end, new in reversed(blocks):
        lines[start:end] = new
    return "".join(lines)


def changes_in(data):
    return read_log(data)[1]


def parse_history(data):
    return read_log(data)[0]


def blocks_of(old, new):
    return difference(split_lines(old), split_lines(new))


@given(LINES, LINES)
def test_a_difference_leads_from_one_text_to_the_other(old, new):
    assert apply(old, blocks_of(old, new)) == new


@given(st.binary())
def test_every_content_is_a_text_and_back(content):
    assert encode_text(decode_text(content)) == content


def test_a_difference_is_of_whole_lines_and_small():
    assert blocks_of("a\nb\nc\n", "a\nB\nc\n") == [Block(1, 2, ["B\n"])]
    old = "> Summary: x\n" + "".join(f"- {n}\n" for n in range(500))
    new = old.replace("x", "y", 1) + "- more\n"
    assert blocks_of(old, new) == [Block(0, 1, ["> Summary: y\n"]), Block(501, 501, ["- more\n"])]


def test_a_huge_difference_is_found_in_no_time():
    """Thousands of equal lines make a comparison slow; beyond a limit the passage counts as changed whole."""
    old, new = "x\n" * 30_000, "y\n" + "x\ny\n" * 15_000
    assert apply(old, blocks_of(old, new)) == new


@given(st.lists(LINES, min_size=2, max_size=6))
def test_the_last_change_can_always_be_taken_back(texts):
    assert undo_change(life(*texts)[-1], [], texts[-1]) == texts[-2]


@given(st.lists(LINES, min_size=3, max_size=6))
def test_taken_back_one_after_another_everything_is_as_it_was(texts):
    changes, text = life(*texts), texts[-1]
    for one in reversed(changes[:]):
        before = text
        text = undo_change(one, [other for other in changes if other.n > one.n], text)
        changes.append(change(len(changes) + 1, before, text))
    assert text == texts[0]


def test_an_earlier_change_elsewhere_is_taken_back_alone():
    texts = "a\nb\nc\n", "a\nB\nc\n", "first\na\nB\nc\n", "first\na\nB\nc\nlast\n"
    first, *later = life(*texts)
    assert undo_change(first, later, texts[-1]) == "first\na\nb\nc\nlast\n"


def test_what_later_changes_stand_on_stays():
    texts = "a\nb\n", "a\nB\n", "a\nB\nC\n", "a\nBB\nC\n"
    first, *later = life(*texts)
    with pytest.raises(CannotUndo, match="change 3 changed the same lines later; undo change 3 first"):
        undo_change(first, later, texts[-1])


def test_what_stands_on_an_old_change_is_found_without_comparing_all_texts_since(monkeypatch):
    """A file may have been changed thousands of times. One that was moved and changed again is followed."""
    lines = [f"- {n}\n" for n in range(40)]
    texts = ["".join(lines)]

    def edit(n, line):
        lines[n] = line
        texts.append("".join(lines))

    edit(20, "- twenty\n")
    for n in range(10):
        edit(n, f"- a longer line {n}\n- and another\n")
    edit(20, "- 20, corrected\n")
    for n in range(10):
        edit(n, "")
    first, *later = life(*texts)
    compared = []
    undo = changes.without_change
    monkeypatch.setattr(changes, "without_change", lambda *texts: compared.append(texts) or undo(*texts))
    with pytest.raises(CannotUndo, match="change 12 changed the same lines later; undo change 12 first"):
        undo_change(first, later, texts[-1])
    assert len(compared) <= 1 + len(later).bit_length()


def test_a_later_change_that_was_taken_back_stands_on_nothing():
    texts = "a\n", "a\nb\n", "a\nX\nY\n", "a\nb\n"
    first, *later = life(*texts)
    assert undo_change(first, later, texts[-1]) == "a\n"


def test_a_summary_that_was_renewed_since_stays():
    """Every append may renew it; else no append could be taken back but the last."""
    texts = "> Summary: 1\n\n- x\n", "> Summary: 2\n\n- x\n- a\n", "> Summary: 3\n\n- x\n- a\n- b\n"
    first, *later = life(*texts)
    assert undo_change(first, later, texts[-1]) == "> Summary: 3\n\n- x\n- b\n"


def test_a_summary_that_was_renewed_since_is_not_what_an_undo_is_refused_for():
    texts = "> Summary: 1\n\n", "> Summary: 2\n\n- a\n", "> Summary: 2\n\n- A\n", "> Summary: 3\n\n- A\n- b\n"
    first, *later = life(*texts)
    with pytest.raises(CannotUndo, match="undo change 2 first"):
        undo_change(first, later, texts[-1])


def without_text(known):
    return KnownContent(known.hash, None)


def test_what_was_too_large_to_be_kept_cannot_be_taken_back():
    first, second = life("a\n", "b\n", "b\nc\n")
    for missing in ({"before": without_text(first.before)}, {"after": without_text(first.after)}):
        with pytest.raises(CannotUndo, match="change 1 was too large"):
            undo_change(attrs.evolve(first, **missing), [second], "b\nc\n")
    with pytest.raises(CannotUndo, match="change 2, which came later, was too large"):
        undo_change(first, [attrs.evolve(second, after=without_text(second.after))], "c\n")
    assert undo_change(first, [attrs.evolve(second, after=without_text(second.after))], "b\nc\n") == "a\nc\n"


def test_a_log_that_does_not_fit_the_file_is_said():
    with pytest.raises(CannotUndo, match="not in the log"):
        undo_change(life("a\n", "b\n")[0], [], "something else\n")


# ------------------------------------------------------------------ the log


def test_a_line_and_back():
    by = Author("task", "t1", "zhang", "slack:#general", "asked to", "web")
    one = change(7, "", "b\n\udcff", by=by, undoes=3)
    assert changes_in(change_line(one)) == [one]
    assert parse_change({**change_json(one), "new": 1}, ABSENT) == one
    large = attrs.evolve(one, after=without_text(one.after))
    assert changes_in(change_line(large)) == [large]


def test_a_log_of_an_earlier_home_says_the_same():
    """There a change kept the places that it had changed, and not the text."""
    one, two, large = life("", "a\nb\nc\n", "A\nb\nC\nd\n", "x\n")

    def line(change, splices):
        kept = {name: value for name, value in change_json(change).items() if name != "text"}
        return json.dumps({**kept, "splices": splices}).encode() + b"\n"

    log = line(one, [[0, "", "a\nb\nc\n"]]) + line(two, [[0, "a\n", "A\n"], [4, "c\n", "C\nd\n"]])
    assert changes_in(log) == [one, two]
    assert changes_in(log + line(large, None)) == [one, two, attrs.evolve(large, after=without_text(large.after))]
    assert changes_in(line(two, [[0, "a\n", "A\n"]]))[0].before == KnownContent(content_hash(b"a\nb\nc\n"), None)


def test_the_log_knows_what_every_file_holds():
    log = b"".join(map(change_line, life("", "a\n", "a\nb\n")))
    history = parse_history(log)
    assert history.files == {"facts/a.md": (content_hash(b"a\nb\n"), "a\nb\n")}
    assert (history.count, history.size) == (2, len(log))
    assert parse_history(log + void_line(2, 0)).files == {"facts/a.md": (content_hash(b"a\n"), "a\n")}
    assert [one.n for one in changes_in(log + void_line(2, 0))] == [1]


def test_a_damaged_line_hides_no_other_and_is_kept():
    one, two = map(change_line, life("", "a\n", "a\nb\n"))
    history = parse_history(b"garbage\n" + one + b'{"n":"x"}\n' + two + b'{"n":3,"to')
    assert history.files["facts/a.md"].text == "a\nb\n"
    assert sorted(history.damaged) == sorted([b"garbage\n", b'{"n":"x"}\n', b'{"n":3,"to'])
    [alone] = changes_in(two)
    assert (alone.before, alone.after) == ((content_hash(b"a\n"), None), known_content(b"a\nb\n"))


@pytest.mark.parametrize("line", ["n", "ts", "undoes", "void"])
@pytest.mark.parametrize("number", ["Infinity", "NaN", "-1", "1e300", "null"])
def test_a_number_that_counts_nothing_is_no_record_and_is_kept(line, number):
    """Somebody has edited the log."""
    odd = {"void": f'{{"void": {number}}}'}.get(line)
    if odd is None:
        made = change_json(change(2, "a\n", "b\n"))
        odd = json.dumps({**made, line: "@"}).replace('"@"', number)
    one, two = map(change_line, life("", "a\n", "a\nb\n"))
    history = parse_history(one + odd.encode() + b"\n" + two)
    assert history.files["facts/a.md"].text == "a\nb\n"
    assert [str(json.loads(bad)) for bad in history.damaged] == [str(json.loads(odd))]


@given(st.lists(LINES, min_size=2, max_size=10), st.integers(0, 2000))
def test_a_shortened_log_knows_the_same_and_takes_back_the_last_change(texts, kept):
    """However short, the version before the last is kept."""
    log = b"".join(map(change_line, life(*dict.fromkeys(["", *texts]))))
    less = shortened(log, kept)
    assert parse_history(less).files == parse_history(log).files
    before, after = changes_in(log), changes_in(less)
    assert after == before[len(before) - len(after) :]
    if before:
        text = parse_history(log).of("facts/a.md").text
        assert undo_change(after[-1], [], text) == undo_change(before[-1], [], text)
