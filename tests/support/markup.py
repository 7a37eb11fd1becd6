"""Displays as tests read them: well-formed markup, its text, its pictures."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

_EMPTY = {"br", "hr", "img", "meta", "link"}


class _Reader(HTMLParser):
    """Follows opening and closing tags, and collects text and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


class Page:
    """A display, parsed: its text, its tags, its pictures; nothing in it may be fetched or run."""

    def __init__(self, html):
        reader = _Reader()
        reader.feed(html)
        reader.close()
        assert reader.open == [], f"not closed: {reader.open}"
        self.html, self.tags = html, reader.tags
        self.text = re.sub(r"\s+", " ", " ".join(reader.text))
        body = html[html.index("</style>") + len("</style>") :]
        ET.fromstring(f"<body>{body}</body>")  # XML, too
        self.pictures = [ET.fromstring(x) for x in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]
        names = {tag for tag, _ in self.tags}
        assert not names & {"script", "iframe", "link", "object", "img"}, names
        for _, attrs in self.tags:
            assert not any(name.startswith("on") for name in attrs)
            assert "http" not in attrs.get("href", "")
            assert "http" not in attrs.get("src", "")


def page(x):
    """What a notebook shows of an object."""
    return Page(x._repr_html_())
