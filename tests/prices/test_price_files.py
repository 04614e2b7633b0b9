"""Files of prices: by the clock, and made of several amounts."""

from pathlib import Path

import pytest
from recorded_run import recorded_run

from tidegate.cli import main
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.prices import ClockPrices, GrowingPrices, RecordedPrices, law_of, price_feed
from tidegate.runs.own_prices import amounts_paid
from tidegate.runs.reader import read_run

NOON = 1769860800.0
"""2026-01-31T12:00Z."""
ROWS = """time,eur,gco2
2026-01-31T12:00Z,40,200
2026-01-31T14:00+01:00,50,100
2026-01-31T14:00Z,60,300
"""


def by_clock(tmp_path: Path, now: list[float], column: str = "eur") -> ClockPrices:
    (tmp_path / "prices.csv").write_text(ROWS)
    return ClockPrices(tmp_path / "prices.csv", column, 1800, clock=lambda: now[0])


def test_a_round_costs_what_the_row_of_its_time_says(tmp_path: Path) -> None:
    now = [NOON]
    feed = by_clock(tmp_path, now)
    assert feed.mean(3) == 50.0
    told = "has 3 rows of prices, but a run of 100 rounds is planned with the average of the first"
    with pytest.raises(ConfigurationError, match=told):
        feed.mean(100)
    found = []
    for minutes in (0, 59, 60, 179):
        now[0] = NOON + 60 * minutes
        found.append(feed.at(1))
    assert found == [40.0, 40.0, 50.0, 60.0]


def test_rows_to_come_are_known_ahead_by_the_length_of_a_round(tmp_path: Path) -> None:
    now = [NOON + 600]
    feed = by_clock(tmp_path, now)
    assert feed.known(1, 48) == []  # the round has not been asked for
    feed.at(1)
    now[0] += 5  # known ahead of when the round began
    assert feed.known(1, 48) == [40.0, 50.0, 50.0, 60.0, 60.0]
    assert feed.known(1, 2) == [40.0, 50.0]


@pytest.mark.parametrize("minutes", [-1, 180])
def test_a_time_without_a_row_is_named_with_those_that_have_one(
    tmp_path: Path, minutes: int
) -> None:
    now = [NOON + 60 * minutes]
    feed = by_clock(tmp_path, now)
    told = "has prices from 2026-01-31T12:00Z to 2026-01-31T15:00Z, but none for 2026-"
    with pytest.raises(SupplierError, match=told):
        feed.at(7)
    with (tmp_path / "prices.csv").open("a") as rows:
        rows.write("2026-01-31T15:00Z,70,1\n")
    if minutes > 0:
        assert feed.at(7) == 70.0


def test_a_hole_in_the_file_is_not_filled(tmp_path: Path) -> None:
    now = [NOON]
    feed = by_clock(tmp_path, now)
    with (tmp_path / "prices.csv").open("a") as rows:
        rows.write("2026-02-03T12:00Z,70,1\n")
    found = list[float | None]()
    for hours in (2, 5, 6, 71, 72, 75, 76):
        now[0] = NOON + 3600 * hours
        try:
            found.append(feed.at(1))
        except SupplierError:
            found.append(None)
    assert found == [60.0, 60.0, None, None, 70.0, 70.0, None]
    now[0] = NOON + 3600 * 5
    feed.at(1)
    assert feed.known(1, 48) == [60.0]  # and not what comes behind the hole


def test_a_price_below_zero_counts_as_zero(tmp_path: Path) -> None:
    now = [NOON + 2 * 3600]
    (tmp_path / "prices.csv").write_text(ROWS.replace("60,300", "-12.5,300"))
    feed = ClockPrices(tmp_path / "prices.csv", "eur+0.01*gco2", 1800, clock=lambda: now[0])
    assert feed.at(1) == 3.0


def test_a_file_that_cannot_be_read_any_more_leaves_the_prices_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed = by_clock(tmp_path, [NOON])
    for text in ("", "time,eur", "time,eur\nnoon,3\n"):
        (tmp_path / "prices.csv").write_text(text)
        assert feed.at(1) == 40.0
        assert "so the prices stay as they were" in caplog.text
        caplog.clear()
    (tmp_path / "prices.csv").write_text(ROWS.replace(",40,", ",41,"))
    assert feed.at(1) == 41.0


def test_a_header_that_is_not_clear_is_refused(tmp_path: Path) -> None:
    for text, told in (
        ("eur,eur\n1,2\n", "has two columns 'eur'; rename one"),
        ("eur", "has no complete line yet"),
    ):
        (tmp_path / "prices.csv").write_text(text)
        with pytest.raises(ConfigurationError, match=told):
            GrowingPrices(tmp_path / "prices.csv", "eur")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("time,eur\n2026-01-31T12:00,40\n", "'2026-01-31T12:00' is not a time with an offset"),
        ("time,eur\nnoon,40\n", "line 2, column time: 'noon' is not a time with an offset"),
        ("time,eur\n2026-01-31T12:00Z,4\n2026-01-31T12:00Z,4\n", "line 3.* not later than the row"),
        ("time,eur\n2026-01-31T12:00Z,40\n", "needs at least two rows, got 1"),
        ("hour,eur\n2026-01-31T12:00Z,40\n", "has no column 'time'; it has hour, eur"),
    ],
)
def test_times_that_cannot_be_are_refused(tmp_path: Path, rows: str, told: str) -> None:
    (tmp_path / "prices.csv").write_text(rows)
    with pytest.raises(ConfigurationError, match=told):
        ClockPrices(tmp_path / "prices.csv", "eur", 60)


def test_the_words_for_prices_by_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "a:b.csv"
    path.write_text(ROWS)
    assert isinstance(price_feed(f"clock:{path}:eur+0.1*gco2:30m"), ClockPrices)
    for wrong in (f"clock:{path}:eur", "clock:eur:30m", f"clock:{path}:eur:30d"):
        with pytest.raises(
            ConfigurationError, match=r"must have the form clock:FILE\.csv:COLUMN:LENGTH"
        ):
            price_feed(wrong)
    with pytest.raises(ConfigurationError, match="round_length must be more than 0 s, got 0"):
        price_feed(f"clock:{path}:eur:0s")
    with pytest.raises(ConfigurationError, match="a simulation does not have; simulate the same"):
        law_of(f"clock:{path}:eur:30m")


def test_a_price_is_a_sum_of_amounts_at_their_rates(tmp_path: Path) -> None:
    now = [NOON]
    feed = by_clock(tmp_path, now, "eur+0.1*gco2")
    assert feed.at(1) == 60.0
    assert feed.rates == {"eur": 1.0, "gco2": 0.1}
    assert feed.amounts(1) == {"eur": 40.0, "gco2": 200.0}
    assert feed.amounts(2) == {}
    growing = GrowingPrices(tmp_path / "prices.csv", "2*eur")
    assert (growing.at(1), growing.amounts(1)) == (80.0, {"eur": 40.0})
    trace = RecordedPrices.from_csv(tmp_path / "prices.csv", ["eur+0.1*gco2", "gco2"])
    assert trace.values.tolist() == [[60, 200], [60, 100], [90, 300]]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("eur+carbon", "has no column 'carbon'; it has time, eur, gco2"),
        ("eur+", "'' must have the form RATE.COLUMN"),
        ("eur+-1*gco2", "'-1.gco2' must have the form RATE.COLUMN"),
        ("eur+much*gco2", "'much.gco2' must have the form RATE.COLUMN, with a rate of 0 or more"),
    ],
)
def test_sums_that_cannot_be_are_refused(tmp_path: Path, column: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        by_clock(tmp_path, [NOON], column)


def test_a_column_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("day+night*2\n3\n4\n")
    assert GrowingPrices(tmp_path / "prices.csv", "day+night*2").at(2) == 4.0


@pytest.mark.usefixtures("no_pictures")
def test_the_report_shows_every_amount(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("eur,gco2\n" + "1,20\n3,40\n" * 5)
    prices = GrowingPrices(tmp_path / "prices.csv", "eur+0.05*gco2")
    recorded_run(tmp_path / "run", prices=prices)
    view = read_run(tmp_path / "run")
    paid = amounts_paid(view)
    bought = [row.spent / row.price for row in view.rounds]
    eur = sum(count * (3 if n % 2 else 1) for n, count in enumerate(bought))
    carbon = sum(count * (40 if n % 2 else 20) for n, count in enumerate(bought))
    assert paid["eur"] == pytest.approx((eur, eur))
    assert paid["gco2"] == pytest.approx((carbon, 0.05 * carbon))
    assert eur + 0.05 * carbon == pytest.approx(sum(row.spent for row in view.rounds))
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "By the prices of the rounds this is about" in page
    assert " gco2, which counts for " in page
