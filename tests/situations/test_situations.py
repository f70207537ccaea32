from pathlib import Path

import msgspec
import pytest
from _pytest.mark import ParameterSet

from tests.situations.situation import SENTENCES, Question, Situation, sentences, situations


def _cases() -> list[ParameterSet]:
    cases = []
    for folder in situations():
        for question, right in Situation(folder, folder).expected.items():
            marks = [pytest.mark.xfail(reason=right.wrong, strict=True)] if right.wrong else []
            cases.append(pytest.param(folder, question, id=f"{folder.name}: {question}", marks=marks))
    return cases


@pytest.mark.parametrize(("folder", "question"), _cases())
def test_the_answer_is_right(folder: Path, question: Question, tmp_path: Path) -> None:
    situation = Situation(folder, tmp_path)
    right = situation.expected[question]
    answer, _, text = situation.answer(question)
    if question == "doctor":
        assert situation.doctor("--node", situation.node.node_name).answer == answer
    fixes = {subject: answer.fixes.get(subject, []) for subject in right.fixes}
    answer = msgspec.structs.replace(
        answer,
        says=[each for each in right.says if each in text],
        never_says=[each for each in right.never_says if each not in text],
        fixes=fixes,
        wrong=right.wrong,
    )
    assert msgspec.to_builtins(answer) == msgspec.to_builtins(right)


def test_each_code_has_the_sentence_that_was_reviewed() -> None:
    """Here alone: other tests assert codes and values."""
    assert SENTENCES.read_text("utf-8") == sentences(), "run `python -m tests.situations`"
