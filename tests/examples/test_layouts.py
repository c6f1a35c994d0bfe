"""Areas, starts, repair and ascent: a layout that is returned is feasible, always."""

from __future__ import annotations

import numpy as np
import pytest

from wind_examples import area as wind_area
from wind_examples import ascent, circle, farms, lattice, spacing, wake

Array, Circle, Course, Polygon = wake.Array, circle.Circle, ascent.Course, wind_area.Polygon
L_SHAPE = np.array([[0, 0], [4, 0], [4, 1], [1, 1], [1, 4], [0, 4]], float) * 1000
SHORT = Course(steps=40, first_step_m=480.0, last_step_m=12.0, first_widening=3.0)


# Areas


@pytest.mark.parametrize("corners", [L_SHAPE, L_SHAPE[::-1]], ids=["anticlockwise", "clockwise"])
def test_margins_of_a_concave_area(corners: Array) -> None:
    """Positive inside, negative outside, also in the notch, whichever way the corners run."""
    points = np.array([[500, 500], [500, 100], [2000, 2000], [-300, 500], [5000, 500]], float)
    assert Polygon(corners).margins(points).tolist() == [500, 100, -1000, -300, -1000]
    assert Polygon(corners).area_m2 == 7e6
    assert Polygon(corners).perimeter_m == 16e3


@pytest.mark.parametrize(
    ("corners", "sentence"),
    [
        ([[0, 0], [1, 1]], "an area needs at least 3 corners, and this one has 2"),
        ([[0, 0], [2, 2], [2, 0], [0, 2]], "crosses itself: edge 1 meets edge 3"),
        ([[0, 0], [4, 0], [2, 0], [2, 3]], "crosses itself: edge 1 meets edge 3"),
        ([[0, 0], [1, 1], [2, 2]], "lie on one line"),
        ([[0, 0], [1, 0], [1, 0], [0, 1]], "has corner 2 twice in a row"),
        ([[0, 0], [1, float("nan")], [1, 0]], "pairs of finite numbers"),
        ([1.0, 2.0, 3.0], "pairs of finite numbers"),
    ],
)
def test_area_that_is_none(corners: list[object], sentence: str) -> None:
    """Corners that make no polygon are refused with a sentence that says why."""
    with pytest.raises(ValueError, match=sentence):
        Polygon(np.array(corners))


@pytest.mark.parametrize("farm_id", range(10))
def test_points_are_moved_inside(farm_id: int) -> None:
    """Wherever a point is, it ends inside each of the farms; one that is inside stays."""
    area = farms.farm_area(farm_id)
    low, high = area.bounds
    points = np.random.default_rng(farm_id).uniform(low - 20_000, high + 20_000, (2_000, 2))
    moved = area.project(points, margin=0.7)
    assert (area.margins(moved) > 0).all()
    is_inside = area.margins(points) > 0.7
    assert 100 < is_inside.sum() < 1_000
    assert (moved[is_inside] == points[is_inside]).all()


def test_point_outside_is_moved_to_the_nearest_place() -> None:
    """A point beside an edge is moved straight to it, and the margin beyond."""
    moved = Polygon(L_SHAPE).project(np.array([[2000.0, -700.0], [-5.0, 2000.0]]), margin=1.0)
    assert moved.tolist() == [[2000.0, 1.0], [1.0, 2000.0]]


# Starts


@pytest.mark.parametrize("farm_type", ["10MW", "15MW"])
@pytest.mark.parametrize("farm_id", range(10))
def test_starts_are_feasible(farm_id: int, farm_type: str) -> None:
    """A random start has all its turbines, inside the area and 3 D apart, for every farm."""
    area, turbines = farms.farm_area(farm_id), farms.turbine_count(farm_type)
    spacing_m = 3 * farms.turbine(farm_type).diameter_m
    starts = [
        spacing.random_layout(area, turbines, spacing_m, np.random.default_rng(s))
        for s in (0, 0, 1)
    ]
    assert all(spacing.is_feasible(start, area, spacing_m) for start in starts)
    assert [start.shape for start in starts] == [(turbines, 2)] * 3
    assert (starts[0] == starts[1]).all()
    assert not (starts[0] == starts[2]).any()


@pytest.mark.parametrize(
    ("turbines", "sentence"),
    [
        (0, "a farm has at least one turbine, and this one is to have 0"),
        (-3, "a farm has at least one turbine, and this one is to have -3"),
        (
            100,
            "the area of 7.0 km² is too small for 100 turbines 600 m apart: not even 43 would fit",
        ),
        (40, r"the area of 7.0 km² is too small for 40 turbines 600 m apart: no room for more"),
    ],
)
def test_start_that_cannot_be(turbines: int, sentence: str) -> None:
    """Too many turbines for the area, or none at all: a sentence says so."""
    with pytest.raises(ValueError, match=sentence):
        spacing.random_layout(Polygon(L_SHAPE), turbines, 600.0, np.random.default_rng(0))


@pytest.mark.parametrize("turbines", [1, 16, 36, 64])
def test_lattices_fill_the_circle(turbines: int) -> None:
    """Lattice starts have all their turbines within the circle, the outermost on it."""
    for seed in range(20):
        layout = lattice.lattice_layout(turbines, 1300.0, np.random.default_rng(seed))
        assert layout.shape == (turbines, 2)
        assert np.hypot(*layout.T).max() == pytest.approx(1300.0)


# Repair


def test_crowding_pushes_both_of_two_apart() -> None:
    """Two turbines 4 m apart that should be 10 m apart are pushed 6 m each; a third is left."""
    layout = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 500.0]])
    assert spacing.crowding(layout, 10.0).tolist() == [[-6.0, 0.0], [6.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("area", [Polygon(L_SHAPE), Circle(1500.0)], ids=["L", "circle"])
def test_crowded_layouts_are_repaired(area: Polygon | Circle) -> None:
    """Turbines anywhere, outside and nearly upon each other, end inside and apart."""
    for seed in range(20):
        layout = np.random.default_rng(seed).uniform(-1000, 5000, (12, 2))
        layout[1] = layout[0] + 1e-3
        repaired = spacing.repair(layout, area, 500.0)
        assert repaired.shape == layout.shape
        assert spacing.is_feasible(repaired, area, 500.0)


def test_repair_moves_turbines_no_further_than_needed() -> None:
    """Two that are 20 m too close go 10 m each, one outside goes to the boundary, others stay."""
    layout = np.array([[500.0, 500.0], [980.0, 500.0], [3000.0, -40.0], [500.0, 3000.0]])
    moved = spacing.repair(layout, Polygon(L_SHAPE), 500.0) - layout
    expected = [[-10.0, 0.0], [10.0, 0.0], [0.0, 40.5], [0.0, 0.0]]
    assert moved == pytest.approx(np.array(expected), abs=0.01)


def test_repair_that_is_impossible_says_so() -> None:
    """A layout that cannot be mended is not returned."""
    layout = np.random.default_rng(0).uniform(0, 1000, (60, 2))
    with pytest.raises(ValueError, match="too small for 60 turbines 600 m apart"):
        spacing.repair(layout, Polygon(L_SHAPE), 600.0)


def test_feasible_is_inside_and_apart() -> None:
    """A turbine outside, or two that are too close, make a layout infeasible."""
    area = Polygon(L_SHAPE)
    good = np.array([[500.0, 500.0], [1500.0, 500.0]])
    assert spacing.is_feasible(good, area, 1000.0)
    assert not spacing.is_feasible(good, area, 1000.1)
    assert not spacing.is_feasible(good + np.array([0, 600]), area, 900.0)


# Ascent


@pytest.mark.parametrize("spacing_m", [300.0, 700.0])
def test_ascent_gains_energy_and_ends_feasible(spacing_m: float) -> None:
    """Also where turbines are so dense that most of them are in each other's way."""
    area, turbine, rose = Polygon(L_SHAPE), farms.turbine("15MW"), farms.wind_rose(12)
    model = lambda layout, widening: wake.aep_and_gradient(layout, turbine, rose, widening)  # noqa: E731
    for seed in range(10):
        start = spacing.random_layout(area, 12, spacing_m, np.random.default_rng(seed))
        layout = ascent.ascend(start, area, spacing_m, model, SHORT)
        assert spacing.is_feasible(layout, area, spacing_m)
        assert spacing.smallest_distance(layout) >= spacing_m
        assert model(layout, 1.0)[0] > model(start, 1.0)[0]
        assert (ascent.ascend(start, area, spacing_m, model, SHORT) == layout).all()


def test_course_narrows_wakes_and_steps() -> None:
    """Steps fall from the first to the last, wakes are what they are in the second half."""
    assert SHORT.step_m(0) == 480.0
    assert SHORT.step_m(40) == pytest.approx(12.0)
    assert [SHORT.widening(step) for step in (0, 10, 20, 39)] == [3.0, 2.0, 1.0, 1.0]
