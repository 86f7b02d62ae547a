"""The documents tell the truth: commands, columns and files they name are there."""

import re
from pathlib import Path

from run_in_memory import ramp_in_memory, scenario_of

from loadramp.cli import cli
from loadramp.record.row import columns_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_readme_opens_with_the_two_commands_and_then_the_user_s_own_line() -> None:
    demo, test, own = (README.index(words) for words in ("make demo", "make test", "loadramp run chat "))
    assert demo < test < own < 1500
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_every_command_is_in_the_readme_and_every_command_there_exists() -> None:
    named = set(re.findall(r"`loadramp (\w+)", README))
    assert named == set(cli.commands)


def test_every_file_the_documents_link_to_exists() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            assert link.startswith("http") or (document.parent / link).exists(), f"{document.name}: {link}"


def test_every_column_of_a_row_is_documented(tmp_path: Path) -> None:
    text = (
        '[slo]\nttft_s = 1\n[prompts]\nkind = "fixed"\ninput_tokens = 9\noutput_tokens = 4\n[ramp]\nkind = "ladder"\n'
    )
    text += "rates = [8]\nwarmup_s = 1\nmeasure_s = 8\nsettle_s = 0\nsettle_requests = 0\ntail_s = 0\n"
    row = columns_of(ramp_in_memory(scenario_of(text), tmp_path).rows[0])
    told = (ROOT / "docs/format.md").read_text()
    family = r"(all_|slo_)?(ttft|sent_ttft|itl|gap|tpot|e2e)_((mean|p50|p90|p95|p99)(_low|_high)?_s|p99_log_se|n)"
    limits = r"longest_gap_p99_(low|high)_s|slo_(ttft|itl|tpot|e2e)_(s|low_s|high_s|log_se|over_ratio)"
    undocumented = [
        column for column in row if f"`{column}`" not in told and not re.fullmatch(f"{family}|{limits}", column)
    ]
    assert undocumented == []


def test_no_document_or_module_names_a_path_of_a_machine() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "loadramp").rglob("*.py")]:
        assert not re.search(r"/(work|root|home/\w+)/", path.read_text()), path
