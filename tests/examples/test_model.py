"""The wake model gives the published energies, PyWake's, and the derivatives of what it gives."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from wind_examples import case, farms, models, wake

Array, Rose, Turbine = wake.Array, wake.Rose, wake.Turbine
FIFTEEN_MW = farms.turbine("15MW")


@pytest.fixture(params=["numpy", "numba"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each of our own implementations."""
    if request.param == "numpy":
        return wake
    pytest.importorskip("numba", reason="needs numba: pip install 'h5sweep[wind]'")
    import wake_numba

    return wake_numba


@pytest.fixture(scope="module")
def pywake() -> ModuleType:
    pytest.importorskip("py_wake", reason="needs py_wake: pip install 'h5sweep[wind-check]'")
    import wake_pywake

    return wake_pywake


def random_turbines(turbines: int, side_m: float, seed: int) -> Array:
    """Turbines anywhere in a square that is as far from the origin as real ones are."""
    corner = np.array([700_000.0, 6_200_000.0])
    return corner + np.random.default_rng(seed).uniform(0, side_m, (turbines, 2))


# Energies


@pytest.mark.parametrize("turbines", [16, 36, 64])
def test_example_layouts_have_their_published_energy(kernel: ModuleType, turbines: int) -> None:
    """The three examples of case study 1 give the printed figures, to the last digit."""
    published = {16: "366941.5712", 36: "737883.0985", 64: "1294974.2977"}[turbines]
    aep, _ = kernel.aep_and_gradient(case.example_layout(turbines), case.TURBINE, case.rose())
    assert f"{1000 * aep:.4f}" == published
    assert case.EXAMPLE_AEP_MWH[turbines] == float(published)


@pytest.mark.parametrize(
    ("turbine", "rose", "side_m"),
    [
        (case.TURBINE, case.rose(), 2_500),
        (FIFTEEN_MW, farms.wind_rose(72), 15_000),
        (FIFTEEN_MW, farms.wind_rose(360), 15_000),
    ],
    ids=["case study 1", "72 directions", "360 directions"],
)
@pytest.mark.parametrize("turbines", [2, 16, 50])
def test_energy_is_that_of_pywake(
    kernel: ModuleType,
    pywake: ModuleType,
    turbine: Turbine,
    rose: Rose,
    side_m: float,
    turbines: int,
) -> None:
    """Random layouts have the same energy in PyWake, to 1e-12."""
    layout = random_turbines(turbines, side_m, seed=turbines)
    aep, _ = kernel.aep_and_gradient(layout, turbine, rose)
    assert aep == pytest.approx(pywake.aep(layout, turbine, rose), rel=1e-12, abs=0)


def test_gradient_is_that_of_pywake(kernel: ModuleType, pywake: ModuleType) -> None:
    """PyWake's automatic differentiation gives the same derivatives."""
    layout, rose = random_turbines(16, 2_500, seed=3), case.rose()
    model = pywake.wind_farm_model(case.TURBINE, rose)
    x, y = layout.T
    wind = {"wd": rose.directions_deg, "ws": rose.speeds_ms}
    theirs = model.aep_gradients(wrt_arg=["x", "y"], x=x, y=y, **wind).T
    _, ours = kernel.aep_and_gradient(layout, case.TURBINE, rose)
    assert np.abs(ours - theirs).max() < 1e-9 * np.abs(theirs).max()


def test_energy_of_one_turbine_is_that_of_its_power_curve(kernel: ModuleType) -> None:
    """Without wakes the energy is the power at each speed, times how often it blows."""
    rose = farms.wind_rose(72)
    share = np.clip((rose.speeds_ms - 4) / (11 - 4), 0, 1) ** 3
    aep, gradient = kernel.aep_and_gradient(np.array([[3.0, 4.0]]), FIFTEEN_MW, rose)
    assert aep == pytest.approx(15 * 8.760 * (rose.frequency * share).sum(), rel=1e-12)
    assert not gradient.any()


def test_a_row_of_turbines_loses_energy_along_the_wind_only(kernel: ModuleType) -> None:
    """Wind from the west puts the eastern of two turbines into a wake, wind from the north none."""
    directions, row = np.arange(0.0, 360, 90), np.array([[0.0, 0.0], [1000.0, 0.0]])
    alone = kernel.aep_and_gradient(row[:1], FIFTEEN_MW, from_direction(270, directions))[0]
    for direction, is_waked in [(270, True), (90, True), (0, False), (180, False)]:
        rose = from_direction(direction, directions)
        aep = kernel.aep_and_gradient(row, FIFTEEN_MW, rose)[0]
        assert (aep < 1.9 * alone) == is_waked


def from_direction(direction_deg: float, directions_deg: Array) -> Rose:
    frequency = (directions_deg == direction_deg).astype(float)[:, None]
    return Rose(directions_deg, np.array([9.0]), frequency)


# Derivatives


@pytest.mark.parametrize("widening", [1.0, 2.5])
@pytest.mark.parametrize(
    ("turbine", "rose", "side_m"),
    [(case.TURBINE, case.rose(), 2_500), (FIFTEEN_MW, farms.wind_rose(72), 12_000)],
    ids=["case study 1", "72 directions"],
)
def test_gradient_is_that_of_finite_differences(
    kernel: ModuleType, turbine: Turbine, rose: Rose, side_m: float, widening: float
) -> None:
    """Moving one turbine a little changes the energy by what the gradient says."""
    layout = random_turbines(12, side_m, seed=1) - (700_000, 6_200_000)
    _, gradient = kernel.aep_and_gradient(layout, turbine, rose, widening)
    step_m = 0.01
    for turbine_number, axis in np.ndindex(*layout.shape):
        move = np.zeros_like(layout)
        move[turbine_number, axis] = step_m
        up, _ = kernel.aep_and_gradient(layout + move, turbine, rose, widening)
        down, _ = kernel.aep_and_gradient(layout - move, turbine, rose, widening)
        difference = (up - down) / (2 * step_m)
        assert abs(gradient[turbine_number, axis] - difference) < 1e-5 * np.abs(gradient).max()


# Implementations


def test_compiled_kernel_is_that_of_numpy() -> None:
    """Both give the same energy and gradient but for rounding, also with widened wakes."""
    pytest.importorskip("numba", reason="needs numba: pip install 'h5sweep[wind]'")
    import wake_numba

    rose = farms.wind_rose(72)
    for widening in (1.0, 3.0):
        layout = random_turbines(66, 15_000, seed=5)
        aep, gradient = wake.aep_and_gradient(layout, FIFTEEN_MW, rose, widening)
        other_aep, other_gradient = wake_numba.aep_and_gradient(layout, FIFTEEN_MW, rose, widening)
        assert other_aep == pytest.approx(aep, rel=1e-13)
        assert np.abs(gradient - other_gradient).max() < 1e-11 * np.abs(gradient).max()


def test_compiled_kernel_has_no_constants_of_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled stays valid when the constants in `wake` change: they are arguments."""
    pytest.importorskip("numba", reason="needs numba: pip install 'h5sweep[wind]'")
    import wake_numba

    layout, rose = random_turbines(9, 3_000, seed=6), farms.wind_rose(72)
    wake_numba.aep_and_gradient(layout, FIFTEEN_MW, rose)
    for module in (wake, wake_numba):
        monkeypatch.setattr(module, "K", 0.05)
        monkeypatch.setattr(module, "CT", 0.7)
    aep, _ = wake.aep_and_gradient(layout, FIFTEEN_MW, rose)
    assert wake_numba.aep_and_gradient(layout, FIFTEEN_MW, rose)[0] == pytest.approx(aep, rel=1e-13)


@pytest.mark.parametrize("pairs", [1, 1_000, 10**9])
def test_size_of_blocks_does_not_matter(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One direction at a time, some, or all at once: the same energy and gradient."""
    layout, rose = random_turbines(20, 8_000, seed=2), farms.wind_rose(72)
    aep, gradient = wake.aep_and_gradient(layout, FIFTEEN_MW, rose)
    monkeypatch.setattr(wake, "PAIRS_A_BLOCK", pairs)
    blocked_aep, blocked_gradient = wake.aep_and_gradient(layout, FIFTEEN_MW, rose)
    assert blocked_aep == pytest.approx(aep, rel=1e-13)
    assert np.abs(blocked_gradient - gradient).max() < 1e-11 * np.abs(gradient).max()


def test_chosen_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting numba is used where it is installed, and NumPy where it is not."""
    monkeypatch.delenv(models.SETTING, raising=False)
    for installed, name in [(True, "numba"), (False, "numpy")]:
        monkeypatch.setattr(models, "find_spec", lambda _, found=installed: found)
        assert models.chosen_name() == name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("jax", "WIND_MODEL is 'jax': it is one of auto, numpy, numba, pywake"),
        ("numba", "the model numba needs numba: pip install 'h5sweep[wind]'"),
        ("pywake", "the model pywake needs py_wake: pip install 'h5sweep[wind-check]'"),
    ],
)
def test_model_that_cannot_be_used(
    setting: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence says which models there are, or what to install."""
    monkeypatch.setenv(models.SETTING, setting)
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=models.SETTING if setting == "jax" else "needs") as raised:
        models.chosen_name()
    assert str(raised.value) == sentence


# The wind


def test_wind_rose_is_off_the_cut_out() -> None:
    """22 speeds from 3.5 to 24.5 m/s: at 25 m/s rounding would decide whether there is power."""
    rose = farms.wind_rose(72)
    assert rose.frequency.shape == (72, 22)
    assert (rose.speeds_ms[0], rose.speeds_ms[-1]) == (3.5, 24.5)
    with pytest.raises(ValueError, match="below the turbine's cut-out"):
        wake.aep_and_gradient(np.zeros((1, 2)), FIFTEEN_MW, from_direction_at(25.0))


def from_direction_at(speed_ms: float) -> Rose:
    return Rose(np.array([0.0, 180.0]), np.array([speed_ms]), np.ones((2, 1)))


def test_wind_rose_is_the_same_wind_in_more_directions() -> None:
    """However many directions: the same share of the year is between 3 and 25 m/s."""
    shares = [farms.wind_rose(count).frequency.sum() for count in (12, 72, 360)]
    assert shares == pytest.approx([shares[0]] * 3, rel=1e-3)
    assert 0.9 < shares[0] < 1.0
    coarse, fine = farms.wind_rose(12), farms.wind_rose(72)
    assert fine.frequency[::6] == pytest.approx(coarse.frequency / 6, rel=1e-12)


@pytest.mark.parametrize("directions", [[0.0, 120.0, 240.0], [0.0, 90.0, 180.0, 271.0]])
def test_rose_without_opposite_directions_is_refused(directions: list[float]) -> None:
    """The kernel takes directions in opposite pairs, so an uneven rose is refused."""
    with pytest.raises(ValueError, match="even number of directions at equal distances"):
        Rose(np.array(directions), np.array([9.0]), np.ones((len(directions), 1)))
