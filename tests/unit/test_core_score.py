"""The score: the default, what an expression may say, and that a wrong one is refused with its place."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtool.core.score import DEFAULT, Facts, Score
from kvtool.errors import UsageError


def score(size: int, unique: int, uses: int, idle: float) -> float:
    return Score(DEFAULT).of(Facts(size=size, unique_bytes=unique, uses=uses, idle=idle))


def test_the_default_grows_with_what_is_freed_and_with_time_and_falls_with_uses() -> None:
    assert score(1000, 500, 0, 7200) == 1.0
    assert score(1000, 1000, 0, 7200) == 2.0
    assert score(1000, 500, 3, 7200) == 0.25
    assert score(1000, 0, 0, 1e9) == score(0, 0, 0, 1e9) == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("size", 10),
        ("unique_bytes + shared_bytes", 10),
        ("age - idle", 50),
        ("tokens // 3 % 2 ** 2", 1),
        ("-uses + +1", -1),
        ("max(size, 20) - min(3, uses) + abs(-1)", 19),
        ("sqrt(size * 10) + log(1)", 10),
        ("number(labels['weight']) * 2", 5),
        ("number(labels['name'])", 0),
        ("0 if labels['keep'] == 'yes' else 1", 0),
        ("1 if 'keep' in labels and not 'gone' in labels else 0", 1),
        ("labels['gone'] == ''", 1),
        ("3 if size > 5 or uses < 1 else 4", 3),
        ("size / (size - 10)", 0),
        ("size\n  * 2", 20),
    ],
)
def test_what_an_expression_may_say(text: str, value: float) -> None:
    labels = {"weight": "2.5", "keep": "yes", "name": "x"}
    facts = Facts(10, 4, 6, 2, age=80, idle=30, tokens=17, labels=labels)
    assert Score(text).of(facts) == value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "at its end"),
        ("size /", "at its end"),
        ("size size", "at character 6 ('size')"),
        ("(size", "at character 1 ('(size')"),
        ("size + unique", "at character 8 ('unique'): unique is not known"),
        ("caf\u00e9 + size", "at character 1"),
        ("labels['\u00e9'] == '' and  bad", "at character 23 ('bad')"),
        ("size + max", "at character 8 ('max'): max is not known"),
        ("size + pow(size, 2)", "at character 8 ('pow(size, 2)'): pow is no function"),
        ("max(size, key=uses)", "at character 1"),
        ("size + max()", "at character 8 ('max()')"),
        ("1 + labels['a']", "at character 1 ('1 + labels['a']'): a text is no number"),
        ("size + 'x' * 9", "at character 8"),
        ("labels", "its value is no number"),
        ("labels['a']", "its value is no number but ''"),
        ("uses + 9 ** 9 ** 9", "at character 8 ('9 ** 9 ** 9')"),
        ("size.bit_length()", "at character 1"),
        ("().__class__", "at character 1"),
        ("[size]", "at character 1"),
        ("lambda: 1", "at character 1"),
        ("f'{size}'", "at character 1"),
        ("(size := 3)", "at character 2"),
        ("'%9999999999d' % 1", "at character 1"),
        ("[x for x in labels][0]", "at character 1"),
        ("__import__('os')", "at character 1"),
        ("size\0", "null bytes"),
        ("-" * 990 + "1", "too deep"),
        ("1 + " * 300 + "1", "longer than 1000"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        Score(text)
    assert place in str(caught.value)


def test_null_bytes_are_refused_by_older_pythons_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2, which Debian 12 has, says so in another way."""

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("source code string cannot contain null bytes")

    monkeypatch.setattr("ast.parse", refuse)
    with pytest.raises(UsageError, match="null bytes"):
        Score("size\0")


def test_tokens_are_read_only_where_they_count() -> None:
    assert not Score(DEFAULT).needs_tokens
    assert not Score("number(labels['tokens'])").needs_tokens
    assert Score("size / max(tokens, 1)").needs_tokens


_SIZES = st.integers(0, 1 << 50)


@given(_SIZES, _SIZES, _SIZES, st.integers(0, 1 << 40), st.floats(0, 1e12), st.floats(0, 1e12))
def test_every_snapshot_has_a_finite_score(
    size: int, unique: int, shared: int, uses: int, age: float, idle: float
) -> None:
    facts = Facts(size, unique, shared, uses, age, idle)
    for text in (DEFAULT, "1 / uses", "log(uses - 1)", "(2.0 ** uses) ** uses", "sqrt(uses - 2)"):
        assert math.isfinite(Score(text).of(facts))


def test_a_score_that_is_asked_for_meanwhile_changes_nothing() -> None:
    """As threads do: here one begins and ends in the middle of another."""
    score = Score("(size + 0) + uses")

    class Interrupting(int):
        def __float__(self) -> float:
            assert score.of(Facts(size=5, uses=100)) == 105
            return 1.0

    assert score.of(Facts(size=Interrupting(1), uses=2)) == 3
