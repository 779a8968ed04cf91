"""One name, one meaning: page.css is read by every page, so a class that it styles by name alone is a word of all pages."""

import re

import pytest

from viz.pages.shell import STATIC

COMMON = {  # what page.css gives to every page on purpose
    "top", "brand", "tab", "pill", "round", "device", "model", "ask", "go", "cancel", "strip-line", "tokens", "said", "progress",
    "unknown", "notice", "wrong", "main", "main-head", "side", "controls", "segments", "field", "check", "grey", "caption", "vh",
    "key", "card", "table", "node", "stream", "off", "holds", "broken", "bs", "typed",
}  # fmt: skip
PAGES = {
    "compare": ("compare.html", "compare.js", "sides.js", "compare-strip.js", "compare-words.js"),
    "anatomy": ("anatomy.html", "anatomy.js", "anatomy-sections.js", "anatomy-words.js", "anatomy-hand.js"),
    "growth": ("growth.html", *(path.name for path in STATIC.glob("growth*.js"))),
}


def bare(sheet: str) -> set[str]:
    """Classes of `.bs .x`: rules that hold wherever on a page the class stands."""
    text = re.sub(r"/\*.*?\*/", "", (STATIC / sheet).read_text(), flags=re.S)
    found = set()
    for selectors in re.findall(r"([^{}@]+)\{", text):
        for one in selectors.split(","):
            found |= set(re.findall(r"^\.bs \.([a-z][\w-]*)", one.strip()))
    return found


def used(files) -> set[str]:
    """Classes in the HTML and scripts of a page."""
    text = " ".join((STATIC / name).read_text() for name in files if (STATIC / name).exists())
    lists = re.findall(r'class="([^"]+)"', text) + re.findall(r'(?:make|element)\("\w+", [^;\n]*?"([a-z][\w -]*)"', text)
    lists += re.findall(r'class(?:Name = |List\.(?:add|toggle)\()"([^"]+)"', text)
    return {word for one in lists for word in one.split()}


@pytest.mark.parametrize("page", PAGES)
def test_what_page_css_styles_by_name_alone_is_no_word_of_another_page(page):
    assert bare("page.css") & used(PAGES[page]) <= COMMON
