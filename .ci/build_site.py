"""`make docs`: the documentation as a static site in build/site, with search.

The pages are laid out as they are in the repository, so that their links hold. A link to a file of the source leads to
a page that shows this file; a link to a folder leads to a page that lists its files. Every link and anchor is checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pages
import yaml

ROOT = pages.ROOT
LAID = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(?ms)^(```|~~~).*?^\1[ \t]*$")
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".sql": "sql",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".sh": "sh",
}
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


class BrokenLink(Exception):
    """A link to a file that is not there."""


class Layout:
    """Writes pages into `LAID`, and each source file that one of them links to once."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def page(self, path: str) -> None:
        """A page of the documentation, with links that hold on the site."""
        text = (ROOT / path).read_text()
        kept = list(FENCE.finditer(text))
        out, at = [], 0
        for fence in kept:
            out += [self._linked(path, text[at : fence.start()]), fence[0]]
            at = fence.end()
        self._write(path, "".join([*out, self._linked(path, text[at:])]))

    def _linked(self, path: str, text: str) -> str:
        return LINK.sub(lambda link: f"[{link[1]}]({self._target(path, link[2])})", text)

    def _target(self, path: str, target: str) -> str:
        if re.match(r"[a-z]+:|#", target):
            return target
        name, _, anchor = target.partition("#")
        there = (ROOT / path).parent / name
        found = Path(os.path.relpath(there.resolve(), ROOT))
        if not there.exists() or found.parts[0] == "..":
            raise BrokenLink(f"{path} links to {target}, which is not there")
        if there.is_dir():
            shown = self._folder(str(found))
        elif found.suffix == ".md":
            shown = str(found)
        else:
            shown = self._source(str(found))
        return os.path.relpath(shown, Path(path).parent) + (f"#{anchor}" if anchor else "")

    def _source(self, path: str) -> str:
        shown = f"{path}.md"
        if shown not in self._shown:
            self._shown.add(shown)
            text = (ROOT / path).read_text()
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
            language = LANGUAGES.get(Path(path).suffix, "text")
            self._write(shown, f"{UNSEARCHED}# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n")
        return shown

    def _folder(self, path: str) -> str:
        shown = f"{path}/README.md"
        if shown not in self._shown and not (ROOT / shown).exists():
            self._shown.add(shown)
            lines = [f"- [{name}]({target})" for name, target in self._files(path, shown)]
            self._write(shown, f"{UNSEARCHED}# {path}/\n\n" + "\n".join(lines) + "\n")
        return shown

    def _files(self, path: str, shown: str) -> Iterator[tuple[str, str]]:
        listed = subprocess.run(["git", "ls-files", path], cwd=ROOT, capture_output=True, text=True, check=True)
        for each in listed.stdout.splitlines():
            target = each if each.endswith(".md") else self._source(each)
            if target == each and each not in self._shown and not self._is_page(each):
                self._shown.add(each)
                self.page(each)
            yield os.path.relpath(each, path), os.path.relpath(target, Path(shown).parent)

    @staticmethod
    def _is_page(path: str) -> bool:
        return path.startswith("docs/") or path in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")

    @staticmethod
    def _write(path: str, text: str) -> None:
        (LAID / path).parent.mkdir(parents=True, exist_ok=True)
        (LAID / path).write_text(text)


def settings(parts: dict[str, list[pages.Page]]) -> dict[str, object]:
    """The settings of MkDocs: no page asks a third party for anything, and every broken link is an error."""
    return {
        "site_name": "idem",
        "site_url": "",
        "docs_dir": str(LAID),
        "site_dir": str(SITE),
        "use_directory_urls": False,
        "strict": True,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.tabs", "navigation.top", "toc.follow", "content.code.copy", "search.highlight"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default",
                 "toggle": {"icon": "material/weather-night", "name": "Dark"}},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate",
                 "toggle": {"icon": "material/weather-sunny", "name": "Light"}},
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": [
            "tables", "attr_list", "pymdownx.highlight", "pymdownx.superfences",
            {"toc": {"permalink": True, "slugify": "{slug}"}},
        ],
        "validation": {
            "nav": {"omitted_files": "ignore", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
        },
        "nav": [{name: [{each.title: each.path} for each in found]} for name, found in parts.items()],
    }  # fmt: skip


def main() -> int:
    parts = pages.parts()
    for folder in (LAID, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    layout = Layout()
    try:
        for found in parts.values():
            for each in found:
                layout.page(each.path)
    except BrokenLink as broken:
        sys.stderr.write(f"{broken}\n")
        return 1
    shutil.copy(ROOT / "docs" / "llms.txt", LAID / "llms.txt")
    written = yaml.safe_dump(settings(parts), sort_keys=False, allow_unicode=True)
    # The pages link to each other by the anchors of GitHub.
    written = written.replace("'{slug}'", "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}")
    configuration = ROOT / "build" / "mkdocs.yml"
    configuration.write_text(written)
    # Without it the theme prints an advertisement for its successor at each build.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run([sys.executable, "-m", "mkdocs", "build", "-f", str(configuration)], env=environment)
    if built.returncode == 0:
        sys.stdout.write(f"built {SITE.relative_to(ROOT)}: python3 -m http.server -d {SITE.relative_to(ROOT)}\n")
    return built.returncode


if __name__ == "__main__":
    raise SystemExit(main())
