"""Validate the SARIF and JUnit reports over real source trees with the schemas that they are made for.

    python tests/corpus/validate_reports.py FOLDER TREE [TREE ...]

FOLDER holds sarif-schema-2.1.0.json and any of JUnit.xsd, junit-10.xsd and jenkins-junit.xsd, which are not ours to
ship. Applies the fixes of each SARIF report to the text as well, by its rows and UTF-16 columns, and compares with
what amplint's own edits give. Needs jsonschema and lxml. Exits 1 for what is wrong. Not part of the test suite.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
from lxml import etree

from amplint import __version__
from amplint.config import Settings
from amplint.fix import apply_edits
from amplint.registry import all_rules, page
from amplint.report import junit, sarif
from amplint.runner import RunResult, run

XSDS = ("JUnit.xsd", "junit-10.xsd", "jenkins-junit.xsd")


def main(folder: Path, trees: list[Path]) -> int:
    schema = json.loads((folder / "sarif-schema-2.1.0.json").read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    xsds = {name: etree.XMLSchema(etree.parse(folder / name)) for name in XSDS if (folder / name).exists()}
    wrong = 0
    for tree in trees:
        result = run([tree], Settings(min_confidence="low"), cwd=tree)
        log = json.loads(sarif.render(result, sarif.Driver(__version__, all_rules(), page), tree))
        problems = [f"SARIF: {error.message[:200]}" for error in validator.iter_errors(log)]
        problems += wrong_fixes(result, log["runs"][0]["results"])
        document = etree.fromstring(junit.render(result, __version__).encode())
        problems += [
            f"{name}: {xsd.error_log.last_error}" for name, xsd in xsds.items() if not xsd.validate(document)
        ]
        fixes = sum("fixes" in each for each in log["runs"][0]["results"])
        print(f"{tree}: {len(result.findings)} findings, {fixes} fixes, {len(problems)} problems")
        for problem in problems[:10]:
            print(f"  {problem}")
        wrong += len(problems)
    return int(wrong > 0)


def wrong_fixes(result: RunResult, reported: list[dict[str, Any]]) -> list[str]:
    wrong = []
    for finding, item in zip(result.findings, reported, strict=True):
        if finding.fix is None or "fixes" not in item:
            continue
        text = result.sources[finding.filename].text
        replacements = item["fixes"][0]["artifactChanges"][0]["replacements"]
        if applied(text, replacements) != apply_edits(text, finding.fix.edits):
            wrong.append(f"{finding.filename}:{finding.start.row}: the fix in SARIF is another one")
    return wrong


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """What a reader of SARIF makes of a text: rows that end at newlines, and UTF-16 columns."""
    rows = text.replace("\r\n", "\n\n").replace("\r", "\n")  # as many characters
    starts = [0]
    for index, character in enumerate(rows):
        if character == "\n" and text[index : index + 2] != "\r\n":
            starts.append(index + 1)
    units = text.encode("utf-16-le")
    for each in reversed(replacements):
        place = each["deletedRegion"]
        ends = []
        for side in ("start", "end"):
            before = text[: starts[place[f"{side}Line"] - 1]]
            ends.append(len(before.encode("utf-16-le")) + 2 * (place[f"{side}Column"] - 1))
        units = units[: ends[0]] + each["insertedContent"]["text"].encode("utf-16-le") + units[ends[1] :]
    return units.decode("utf-16-le")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(argument).resolve() for argument in sys.argv[2:]]))
