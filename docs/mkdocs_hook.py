"""A hook of `make docs`: pages link to files beside docs/, as where the repository is read; the site gets copies."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

OUTSIDE = re.compile(r"(?<=\]\()\.\./(?=[^)#]*[a-z])")
COPIES = "repository/"


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to with ``../``."""
    root = Path(config.docs_dir).parent
    pages = (page.read_text() for page in (root / "docs").glob("*.md"))
    linked = {name for page in pages for name in re.findall(r"\]\(\.\./([^)#]+)", page)}
    for name in sorted(linked):
        files.append(File.generated(config, COPIES + name, abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let those links lead to the copies, and the links of a copied page back to the pages."""
    if page.file.src_uri.startswith(COPIES):
        return markdown.replace("](docs/", "](../")
    return markdown if "/" in page.file.src_uri else OUTSIDE.sub(COPIES, markdown)
