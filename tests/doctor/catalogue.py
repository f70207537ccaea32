"""The doctor's codes by check and verdict, as docs/doctor-codes.md lists them."""

from nodeagent.doctor.findings import CheckVerdict, Code

CATALOGUE: dict[str, dict[CheckVerdict, tuple[Code, ...]]] = {}
for _code in Code:
    _verdicts = CATALOGUE.setdefault(_code.check, {})
    _verdicts[_code.verdict] = (*_verdicts.get(_code.verdict, ()), _code)
