"""Renders the guides (docs/*.md and the documents at the root) as HTML beside the references, and one index page.

    guides.py OUTPUT

OUTPUT holds `c/` (doxygen) and `python/` (pdoc) already. Links between documents become links between pages, links to
public headers lead into the C reference, and every link of a page that was made here must lead somewhere.
"""

from __future__ import annotations

import html
import os
import pathlib
import re
import sys

import markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STYLE = """
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff }
nav { margin-bottom: 2rem } nav a { margin-right: 1.2rem }
a { color: #0b62a4; text-decoration: none } a:hover { text-decoration: underline }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f4f5f7 } code { padding: 0 .2em }
pre { padding: .8rem; overflow-x: auto } pre code { padding: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto } td, th { border: 1px solid #ccc; padding: .3rem .6rem; text-align: left }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181c } a { color: #7cbcf0 } code, pre { background: #24272d } td, th { border-color: #444 }
}
"""
REFERENCES = [
    ("C reference", "c/index.html", "every call, struct and name of the headers, by header and topic"),
    ("Python reference", "python/forebay.html", "every class, method and exception of the package"),
]


def documents() -> list[pathlib.Path]:
    """The guides, docs/README.md first."""
    return [ROOT / "docs" / "README.md", *sorted({*ROOT.glob("docs/*.md")} - {ROOT / "docs" / "README.md"}), *sorted(ROOT.glob("*.md"))]


def page_of(path: pathlib.Path) -> str:
    """A document's page below OUTPUT."""
    folder = "guides" if path.parent.name == "docs" else "project"
    return f"{folder}/{path.stem}.html"


def page_of_header(path: pathlib.Path) -> str:
    """A header's page below OUTPUT: doxygen's name for it."""
    return f"c/{path.stem}_8h.html"


def anchor(title: str, _separator: str = "-") -> str:
    """A heading's anchor, as code hosts make it: scripts/check-docs follows the same rule."""
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


def target(link: str, path: pathlib.Path, output: pathlib.Path) -> str:
    """Where a link of a document leads from its page."""
    if re.match(r"[a-z][a-z0-9+.-]*:|#", link):
        return link
    name, _, fragment = link.partition("#")
    file = (path.parent / name).resolve()
    if file.suffix == ".md" and file in documents():
        there = output / page_of(file)
    elif file.suffix == ".h" and file.parent == ROOT / "include" / "forebay":
        there, fragment = output / page_of_header(file), ""
    else:
        there = file  # source: it stays where it is
    return os.path.relpath(there, (output / page_of(path)).parent) + (f"#{fragment}" if fragment else "")


def page(title: str, body: str, up: str) -> str:
    """A whole page. `up` leads to OUTPUT."""
    links = [("Forebay", "index.html"), ("Guides", "guides/README.html"), *((name, place) for name, place, _ in REFERENCES)]
    bar = "".join(f'<a href="{up}{place}">{html.escape(name)}</a>' for name, place in links)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><nav>{bar}</nav>\n{body}\n</body>\n</html>\n"
    )


def render(path: pathlib.Path, output: pathlib.Path) -> str:
    """Writes the page of one document; returns its title."""
    converter = markdown.Markdown(
        extensions=["fenced_code", "sane_lists", "tables", "toc"], extension_configs={"toc": {"slugify": anchor}}
    )
    body = converter.convert(path.read_text(encoding="utf-8"))
    body = re.sub(r'(href|src)="([^"]*)"', lambda m: f'{m[1]}="{target(html.unescape(m[2]), path, output)}"', body)
    title = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.M)
    name = title[1].replace("`", "") if title else path.stem
    place = output / page_of(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page(name, body, "../"), encoding="utf-8")
    return name


def index(titles: dict[pathlib.Path, str], output: pathlib.Path) -> None:
    """The page that links everything."""
    rows = "".join(f'<li><a href="{place}">{name}</a>: {about}</li>\n' for name, place, about in REFERENCES)
    guides = "".join(f'<li><a href="{page_of(path)}">{html.escape(title)}</a></li>\n' for path, title in titles.items())
    body = f"<h1>Forebay</h1>\n<h2>References</h2>\n<ul>\n{rows}</ul>\n<h2>Guides</h2>\n<ul>\n{guides}</ul>"
    (output / "index.html").write_text(page("Forebay", body, ""), encoding="utf-8")


def broken(pages: list[pathlib.Path]) -> list[str]:
    """Links of these pages that lead nowhere, anchors included."""
    texts: dict[pathlib.Path, str] = {}
    found = []
    for path in pages:
        for link in re.findall(r'(?:href|src)="([^"]*)"', path.read_text(encoding="utf-8")):
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            name, _, fragment = html.unescape(link).partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.exists():
                found.append(f"{path}: link to {link}: no such page")
            elif fragment and file.suffix == ".html":
                text = texts.setdefault(file, file.read_text(encoding="utf-8"))
                if f'id="{fragment}"' not in text:
                    found.append(f"{path}: link to {link}: no such heading")
    return found


def main() -> int:
    """Reads the command line; 1 when a link leads nowhere."""
    output = pathlib.Path(sys.argv[1]).resolve()
    titles = {path: render(path, output) for path in documents()}
    index(titles, output)
    problems = broken([output / "index.html", *(output / page_of(path) for path in titles)])
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(titles)} guides, {len(problems)} broken links; {output / 'index.html'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
