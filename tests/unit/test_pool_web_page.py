"""The pages: every value shown as it is and inert, large leaderboards cut, nothing asked of any network."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest

from automate.pools.leaderboard import Board, Place
from automate.pools.web import page
from automate.pools.web.page import MOST, percent, policy, render, render_list, short, time_text
from automate.pools.web.public import wants_page

ADDRESS = "xU9zFkq3X2ZQ6olwNVvr1vUWIjc3kXTWr7xKQD6dh10"
HOSTILE = ("<script>alert(1)</script>", "\"onmouseover=\"alert(1)", "'><img src=x onerror=alert(1)>", "{{ 7 * 7 }}",
           "</style><b>", "a\x00b\x1b[31m", "\u202egnp.exe", "\ud800", "javascript:alert(1)", "小明's \"model\"")


def one_place(number: int = 1, **given: object) -> Place:
    made = Place(number, f"model-{number}", ADDRESS, ADDRESS[::-1], 0.75, 0.5, 0.375, 0.7, 0.8, 375, 500, 2, 1000,
                 1_720_656_000_000, None, None)
    return replace(made, **given)  # type: ignore[arg-type]


def one_board(*places: Place, **given: object) -> Board:
    made = Board(ADDRESS, ADDRESS, "siqa", ADDRESS, 1_000_000, "ArithmeticDecrease", 1_720_656_000_000,
                 1_723_248_000_000, "open", None, places)
    return replace(made, **given)  # type: ignore[arg-type]


class Elements(HTMLParser):
    """Names and attributes of all elements, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_are_only_shown(words: str) -> None:
    plain = Elements(render(one_board(one_place()), 1, home="/"))
    hostile = one_board(one_place(model=words, process=words, participant=words), pool=words, dataset_name=words,
                        funder=words, allocation=words, state=words)
    found = Elements(render(hostile, 1, home="/"))
    assert found.names == plain.names
    assert {name for name, _ in found.attributes} == {name for name, _ in plain.attributes}
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff\u202e]", found.text)
    listed = {"id": words, "dataset_name": words, "state": words, "funds": 1, "allocation": words, "models": 0,
              "endTime": 0}
    links = [value for name, value in Elements(render_list([listed], 1)).attributes if name == "href"]
    assert all(link and link.startswith("/") for link in links)


def test_it_asks_nothing_of_any_network() -> None:
    found = Elements(render(one_board(one_place()), 1, home="/"))
    assert not {"script", "link", "img", "iframe", "form", "object"} & set(found.names)
    assert all(value and value.startswith("/") for name, value in found.attributes if name in ("href", "src"))
    assert "url(" not in page._style() and "@import" not in page._style()
    assert policy().startswith("default-src 'none'; style-src 'sha256-")


def test_what_a_row_says() -> None:
    text = " ".join(Elements(render(one_board(one_place(reward=333_333)), 1)).text.split())
    for words in ("75.0 % 70.0 % to 80.0 %", "37.5 %", "500 of 1,000, 2 failed", "333,333", "1,000,000",
                  "2024-07-11 00:00 UTC", "2024-08-10 00:00 UTC", "01hd6D…z9Ux", "not yet"):
        assert words in text, words
    assert f'title="{ADDRESS[::-1]}"' in render(one_board(one_place()))


def test_rewards_have_a_column_when_there_are_some() -> None:
    assert "reward" not in Elements(render(one_board(one_place()))).text
    found = Elements(render(one_board(one_place(reward=5), one_place(2, reward=0), state="paid"))).text
    assert "reward" in found and "–" in found


def test_a_model_without_answers_has_no_bar() -> None:
    found = Elements(render(one_board(one_place(answered=0, score=0.0, low=0.0, high=1.0, progress=0.0))))
    assert "svg" not in found.names
    assert "no answer yet" in found.text


@pytest.mark.parametrize(("score", "low", "high"), [(0.0, 0.0, 0.3), (1.0, 0.7, 1.0), (0.5, 0.5, 0.5)])
def test_bars_stay_within_their_picture(score: float, low: float, high: float) -> None:
    text = render(one_board(one_place(score=score, low=low, high=high)))
    for x, width in re.findall(r'<rect[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"', text):
        assert float(x) >= 0 and float(x) + float(width) <= 101.3


def test_a_large_board_is_cut_and_says_so() -> None:
    board = one_board(*(one_place(number) for number in range(1, 10_001)))
    found = render(board, 1, home="/")
    assert found.count("<svg") == MOST
    assert "The first 1,000 of 10,000 models are shown" in found
    assert len(found) < 2_000_000
    assert "are shown" not in render(one_board(one_place()), 1)


def test_an_empty_board_and_list() -> None:
    assert f"flock-hpc pool join\n{ADDRESS} --model NAME" in render(one_board())
    assert "pool join" not in render(one_board(state="paid"))
    assert "There is no pool yet" in render_list([], 1)


def test_json_and_the_board_give_the_same_page() -> None:
    board = one_board(one_place())
    assert render(asdict(board), 5) == render(board, 5)


def test_values() -> None:
    assert (time_text(None), time_text(0), time_text(10**18)) == ("not yet", "1970-01-01 00:00 UTC", "far away")
    assert (short("siqa"), percent(0.12345)) == ("siqa", "12.3 %")


@pytest.mark.parametrize(("accept", "page_wanted"), [
    ("", False), ("*/*", False), ("application/json", False), ("text/html", True),
    ("application/json, text/html", False), ("text/html;q=0.9,application/json", True)])
def test_who_wants_a_page(accept: str, page_wanted: bool) -> None:
    assert wants_page(accept) is page_wanted
