import itertools
import math
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.errors import ConfigurationError, SupplierError
from tidegate.prices import (
    ConstantPrice,
    FarSightedFeed,
    GrowingPrices,
    MarkovPrice,
    Price,
    PriceFeed,
    PriceLaw,
    PricePath,
    Prices,
    RecordedPrices,
    UniformPrice,
    check_length,
    law_of,
    price_feed,
    price_law,
)

LAWS: list[PriceLaw] = [
    ConstantPrice(5.5),
    UniformPrice(1.0, 10.0),
    MarkovPrice(2.0, 9.0, 0.9, 0.7),
    RecordedPrices(np.linspace(0, 3, 40_000)),
]


def path(law: PriceLaw, rounds: int, seed: int = 0, size: int | None = None) -> list[Price]:
    return list(itertools.islice(law.rounds(np.random.default_rng(seed), size), rounds))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_one_price_for_all_is_a_float_with_the_stated_mean(law: PriceLaw) -> None:
    prices = path(law, 40_000)
    assert all(isinstance(price, float) for price in prices)
    assert np.mean(np.array(prices)) == pytest.approx(law.mean(40_000), rel=0.03)
    assert np.min(np.array(prices)) >= 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_one_price_a_client(law: PriceLaw) -> None:
    prices = np.array(path(law, 3_000, size=4))
    assert prices.shape == (3_000, 4)
    assert prices.mean() == pytest.approx(law.mean(3_000), rel=0.05)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_a_longer_run_begins_like_a_shorter_one(law: PriceLaw) -> None:
    assert path(law, 50) == path(law, 200)[:50]


@pytest.mark.parametrize("law", LAWS[1:3], ids=lambda law: type(law).__name__)
def test_clients_draw_independently(law: PriceLaw) -> None:
    prices = np.array(path(law, 8_000, size=2))
    assert abs(np.corrcoef(prices.T)[0, 1]) < 0.06


def test_a_markov_price_stays_as_often_as_it_says() -> None:
    prices = np.array(path(MarkovPrice(2.0, 9.0, 0.9, 0.7), 60_000))
    low = prices[:-1] == 2.0
    assert np.mean(prices[1:][low] == 2.0) == pytest.approx(0.9, abs=0.01)
    assert np.mean(prices[1:][~low] == 9.0) == pytest.approx(0.7, abs=0.01)


def test_recorded_prices_come_from_a_csv_column(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("hour,eur,usd\n0,3.5,4\n1,1.25,2\n", encoding="utf-8")
    one = price_law(f"trace:{file}:eur")
    assert path(one, 2) == [3.5, 1.25]
    each = price_law(f"trace:{file}:eur,usd")
    assert [list(row) for row in np.array(path(each, 2, size=2))] == [[3.5, 4.0], [1.25, 2.0]]


def test_a_record_that_is_too_short_says_so() -> None:
    with pytest.raises(ValueError, match="ends after 2 rounds; shorten the run or record more"):
        path(RecordedPrices([1.0, 2.0]), 3)


def test_as_many_columns_as_clients() -> None:
    with pytest.raises(ValueError, match="has 2 prices a round, but the run needs 3 prices"):
        path(RecordedPrices([[1.0, 2.0]]), 1, size=3)
    with pytest.raises(ValueError, match="needs one price for all"):
        path(RecordedPrices([[1.0, 2.0]]), 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("uniform:10,1", "lowest price 10.0 is above the highest 1.0"),
        ("uniform:1", "must have the form uniform:LOWEST,HIGHEST"),
        ("uniform:a,b", "with numbers"),
        ("constant:-1", "must be 0 or more and at most 1e.15, got -1.0"),
        ("-1", "must be 0 or more and at most 1e.15, got -1.0"),
        ("nan", "must be 0 or more and at most 1e.15, got nan"),
        ("1,2", "price '1,2' is not a number; .* point, 1.2, or name a law, uniform:1,2"),
        ("5:3", "unknown price law '5'; choose constant, uniform"),
        ("1,2:3", "unknown price law '1,2'; choose constant, uniform"),
        ("constant:inf", "at most 1e.15, got inf"),
        ("markov:1,2,0.5,1", r"stay_high must be in \[0, 1\), got 1.0"),
        (
            "markov:9,2,.9,.8",
            "low price 9.0 is above the high price 2.0; .*: markov:2,9,0.8,0.9",
        ),
        ("gauss:1,2", "unknown price law 'gauss'; choose constant, uniform, markov or trace"),
        ("trace:prices.csv", "must have the form trace:FILE.csv:COLUMN"),
        ("prices.csv", r"law 'prices.csv'; did you mean trace:prices.csv:COLUMN\?"),
        ("my/prices.csv:eur", r"did you mean trace:my/prices.csv:eur\?"),
    ],
)
def test_wrong_texts_name_value_limit_and_remedy(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        price_law(text)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("hour,eur\n0,1\n", "no column 'usd'; it has hour, eur"),
        ("hour;usd\n0;1\n", "has one column, 'hour;usd'; separate columns by commas"),
        ("day,usd\n0,1,333\n", "line 2, has 3 fields, but the header has 2; write decimals"),
        ("usd\n", "no prices below it"),
        ("usd\n1\nx\n", "line 3, column usd: 'x' is not a price"),
        ("hour,usd\n1\n", "line 2, column usd: None is not a price"),
        ("usd\n1\n-2\n", "line 3, column usd: '-2' is not a price; write a number from 0 to 1e.15"),
        ("usd\n1\nnan\n", "line 3, column usd: 'nan' is not a price"),
        ("usd\n1\n\nx\n", "line 4, column usd: 'x' is not a price"),
        ("", "prices.csv is empty. Its first line must name the columns"),
        ("1\n2\n", "no column 'usd'; it has 1. Its first line must name the columns"),
        ("\0\n2\n", r"no column 'usd'; it has '\\x00'"),
    ],
)
def test_wrong_files_name_line_and_column(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        price_law(f"trace:{file}:usd")


def test_a_file_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no file .*nowhere.csv; give the path of a CSV"):
        price_law(f"trace:{tmp_path / 'nowhere.csv'}:usd")
    with pytest.raises(ConfigurationError, match="is a folder; give a CSV file in it"):
        price_law(f"trace:{tmp_path}:usd")
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"usd\n1\n\xff\xd8")
    with pytest.raises(ConfigurationError, match=r"picture.png is not .* \(see its line 3\); save"):
        price_law(f"trace:{picture}:usd")


def test_a_record_made_of_numbers_names_the_row() -> None:
    with pytest.raises(ValueError, match=r"recorded price -2.0 in row 2"):
        RecordedPrices([1.0, -2.0])


@pytest.mark.parametrize("text", ["5", "5.0", " 5e0"])
def test_a_number_in_words_is_a_constant_price(text: str) -> None:
    assert price_law(text) == ConstantPrice(5.0)


def test_an_empty_record_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        RecordedPrices([])


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_bytes(b"\xef\xbb\xbfeur\n2.5\n")
    assert path(price_law(f"trace:{file}:eur"), 1) == [2.5]


def test_the_mean_of_a_record_is_that_of_the_rounds_played() -> None:
    assert RecordedPrices([1.0, 3.0, 100.0]).mean(2) == 2.0
    assert math.isclose(RecordedPrices([1.0, 3.0]).mean(10), 2.0)


def test_a_path_of_several_columns_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"has 2 prices a round.*name one column"):
        PricePath(RecordedPrices([[1.0, 2.0], [3.0, 4.0]]), seed=0)


@pytest.mark.parametrize(
    "prices",
    [
        RecordedPrices([1.0, 2.0]),
        PricePath(RecordedPrices([1.0, 2.0]), seed=0),
        law_of(PricePath(RecordedPrices([1.0, 2.0]), seed=0)),
    ],
    ids=["law", "feed", "simulated feed"],
)
def test_a_trace_must_last_for_the_whole_run(prices: PriceLaw | PriceFeed) -> None:
    check_length(prices, 2)
    with pytest.raises(ConfigurationError, match="prices for 2 rounds, but the run has 3; shorten"):
        check_length(prices, 3)


class Market:
    """Prices of clients' own: twice as much for each further one."""

    def mean(self, num_rounds: int) -> float:
        return 1.5

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        return {client: float(2 ** int(client[-1])) for client in clients}


@pytest.mark.parametrize(
    "prices",
    [5, 5.0, np.float32(5), "constant:5", ConstantPrice(5), PricePath(ConstantPrice(5), seed=3)],
    ids=lambda one: type(one).__name__,
)
def test_a_price_may_be_given_as_a_number_a_text_a_law_or_a_feed(prices: Prices) -> None:
    feed = price_feed(prices)
    assert (feed.mean(10), feed.at(1, ["a"]), feed.at(2, ["a"])) == (5.0, 5.0, 5.0)
    assert path(law_of(prices), 2) == [5.0, 5.0]


def test_a_law_has_a_path_for_each_seed_and_a_feed_stays_as_it_is() -> None:
    law = UniformPrice(1, 10)
    assert price_feed(law).at(1, []) == PricePath(law, seed=0).at(1)
    assert price_feed("uniform:1,10", seed=7).at(1, []) == PricePath(law, seed=7).at(1)
    market = Market()
    assert price_feed(market, seed=7) is market


def test_a_feed_can_be_simulated() -> None:
    law = law_of(Market())
    assert law.mean(10) == 1.5
    assert [list(np.asarray(row)) for row in path(law, 2, size=2)] == [[1.0, 2.0], [1.0, 2.0]]
    same = np.array(path(law_of(PricePath(UniformPrice(1, 10), seed=3)), 2, size=2))
    assert np.array_equal(same[:, 0], same[:, 1])
    with pytest.raises(ConfigurationError, match="simulate it with price_per_client=True"):
        path(law, 1)


@pytest.mark.parametrize("wrong", [None, True, [1.0, 2.0], UniformPrice, object()])
def test_what_is_not_a_price_is_named(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"prices must be a number.*got") as refused:
        price_feed(wrong)
    assert reprlib.repr(wrong) in str(refused.value)


def test_a_path_tells_the_prices_ahead_that_it_will_give() -> None:
    path = price_feed("uniform:1,10", seed=3, known_ahead=4)
    assert isinstance(path, FarSightedFeed)
    told = path.known(2, horizon=100)
    assert list(told) == [path.at(round_number, []) for round_number in range(3, 7)]
    assert path.known(2, horizon=2) == told[:2]
    assert price_feed("uniform:1,10", seed=3).known(2, 100) == ()  # type: ignore[attr-defined]


def test_nothing_is_known_behind_the_end_of_a_record() -> None:
    path = PricePath(RecordedPrices([3.0, 1.0, 2.0]), seed=0, known_ahead=48)
    assert [path.known(now, 48) for now in (1, 2, 3)] == [(1.0, 2.0), (2.0,), ()]


def test_rows_that_are_added_to_a_file_are_known_at_once(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("eur\n3\n1\n")
    feed = price_feed(f"growing:{file}:eur")
    assert isinstance(feed, GrowingPrices)
    assert (feed.at(1), list(feed.known(1, 48)), feed.mean(2)) == (3.0, [1.0], 2.0)
    with pytest.raises(SupplierError, match="has rows for 2 rounds, but none for round 3"):
        feed.at(3)
    with file.open("a") as rows:
        rows.write("2\n4\n1")  # the last is still being written: it may become 12
    assert (feed.at(3), list(feed.known(1, 2)), list(feed.known(3, 48))) == (2.0, [1.0, 2.0], [4.0])


def test_a_growing_file_that_goes_away_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("eur\n3\n1\n")
    feed = price_feed(f"growing:{file}:eur")
    file.unlink()
    with pytest.raises(ConfigurationError, match="there is no file"):
        feed.at(1, [])


def test_blanks_after_commas_are_no_part_of_names(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("day, usd\n0, 1.5\n1, 2.5,\n", encoding="utf-8")
    assert RecordedPrices.from_csv(path, ["usd"]).mean(2) == 2.0
