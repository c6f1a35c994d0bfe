"""Every curated file of the corpus gets the verdict that its index gives it, by the format.

The corpus is not part of this repository: H5SWEEP_CORPUS names the folder it lies in.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from h5sweep.check.check import check_files
from h5sweep.worker_files.findings import State

CORPUS = Path(os.environ.get("H5SWEEP_CORPUS", "nowhere"))
pytestmark = pytest.mark.skipif(
    "H5SWEEP_CORPUS" not in os.environ, reason="H5SWEEP_CORPUS does not name the corpus"
)
METADATA = {"D201", "D202", "D203", "D204"}

# The state, and codes of which the file must have at least one from each set.
VERDICTS: dict[str, tuple[str, tuple[set[str], ...]]] = {
    "hdf5_h5clear/h5clear_sec2_v0.h5": ("sound", ()),
    "hdf5_h5clear/h5clear_sec2_v2.h5": ("sound", ({"N604"},)),
    "hdf5_h5clear/h5clear_sec2_v3.h5": ("damaged", ({"D108"},)),
    "hdf5_h5clear/latest_h5clear_sec2_v3.h5": ("damaged", ({"D107"},)),
    "hdf5_h5clear/h5clear_log_v3.h5": ("damaged", ({"D108"},)),
    "hdf5_h5clear/latest_h5clear_log_v3.h5": ("damaged", ({"D107"},)),
    "hdf5_h5clear/h5clear_status_noclose.h5": ("damaged", ({"D108"}, {"D106"})),
    "hdf5_h5clear/h5clear_fsm_persist_noclose.h5": ("damaged", ({"D106"},)),
    "hdf5_h5clear/h5clear_fsm_persist_equal.h5": ("sound", ()),
    "hdf5_h5clear/h5clear_fsm_persist_greater.h5": ("damaged", ({"D109"},)),
    "hdf5_h5clear/h5clear_fsm_persist_less.h5": ("damaged", ({"D110"},)),
    "hdf5_h5clear/h5clear_fsm_persist_user_equal.h5": ("sound", ()),
    "hdf5_h5clear/h5clear_fsm_persist_user_greater.h5": ("damaged", ({"D109"},)),
    "hdf5_h5clear/h5clear_fsm_persist_user_less.h5": ("damaged", ({"D110"},)),
    "hdf5_h5clear/h5clear_mdc_image.h5": ("sound", ({"N603"},)),
    "hdf5_test/bad_offset.h5": ("damaged", ({"D201"},)),
    "hdf5_test/corrupt_stab_msg.h5": ("damaged", ({"D201"},)),
    "hdf5_test/bad_compound.h5": ("damaged", (METADATA,)),
    "hdf5_test/tbad_msg_count.h5": ("damaged", (METADATA,)),
    "hdf5_test/tbogus.h5": ("sound", ({"N603"},)),
    "hdf5_test/filter_error.h5": ("sound", ({"N602"},)),
    "hdf5_test/th5s.h5": ("damaged", (METADATA,)),
    "hdf5_test/tmisc38a.h5": ("damaged", (METADATA,)),
    "hdf5_test/tlayouto.h5": ("sound", ({"N605"},)),
    "hdf5_test/tsizeslheap.h5": ("sound", ()),
    "hdf5_test/family_v16-000000.h5": ("damaged", ({"D109"},)),
    "hdf5_test/family_v16-000001.h5": ("not-hdf5", ({"D102"},)),
    "hdf5_test/multi_file_v16-s.h5": ("damaged", ({"D109"},)),
    "hdf5_test/paged_persist.h5": ("sound", ()),
    "hdf5_test/be_data.h5": ("sound", ()),
    "hdf5_test/none.h5": ("sound", ()),
    "hdf5_tools/h5stat_err_refcount.h5": ("damaged", (METADATA,)),
    "hdf5_tools/h5stat_err_old_layout.h5": ("damaged", (METADATA,)),
    "hdf5_tools/h5stat_err_old_fill.h5": ("damaged", (METADATA,)),
    "hdf5_tools/err_attr_dspace.h5": ("damaged", (METADATA,)),
    "hdf5_tools/tCVE_2018_11206_fill_old.h5": ("damaged", (METADATA,)),
    "h5check_invalid/signature.h5": ("damaged", ({"D103"},)),
    "h5check_invalid/base_addr.h5": ("damaged", ({"D112"},)),
    "h5check_invalid/offsets_lengths.h5": ("damaged", ({"D112"},)),
    "h5check_invalid/sb_version.h5": ("damaged", ({"D112"},)),
    "h5check_invalid/leaf_internal_k.h5": ("damaged", (METADATA,)),
    "h5check_invalid/invalid_sym.h5": ("damaged", (METADATA,)),
    "h5check_invalid/invalid_symsize.h5": ("damaged", ({"D201"},)),
    "h5check_invalid/invalid_grps.h5": ("damaged", ({"D201"},)),
    "h5check_invalid/invalid_dtver.h5": ("damaged", (METADATA,)),
    "h5check_invalid/corruptfile.h5": ("damaged", ({"D201"},)),
    "h5check_invalid/ahmcoef_aix.nc": ("damaged", (METADATA,)),
    "netcdf/ref_test_corrupt_magic.nc": ("sound", ()),
    "netcdf/ref_nctest_classic.nc": ("not-hdf5", ({"D102"},)),
    "netcdf/bad_cdf5_begin.nc": ("not-hdf5", ({"D102"},)),
    "netcdf/ref_hdf5_compat1.nc": ("sound", ()),
    "pyfive/fletcher32.hdf5": ("sound", ()),
    "pyfive/btreev2.hdf5": ("sound", ()),
    "pyfive/earliest.hdf5": ("sound", ()),
    "pyfive/latest.hdf5": ("sound", ()),
}
HEALTHY = ("netcdf", "pyfive", "h5py")

# What the name of a killed writer's file says that h5py does with it.
KILLED: dict[str, set[str]] = {
    "truncated-file": {"D105", "D109"},
    "file-is-already-open": {"D107", "D108"},
    "bad-object-header-version": {"D106"},
    "opens-root-listing-fails": {"D201"},
    "unequal-lengths": {"D403"},
    "datasets-missing": {"D203", "D204"},
    "tasks-unreadable": {"D110", "D203", "D303"},
}


@pytest.mark.parametrize("depth", ["structure", "deep"])
def test_curated_verdicts(depth: str) -> None:
    """State and reason of each are those of the index; the checker survives all of them."""
    found = {
        str(Path(file.path).relative_to(CORPUS)): file
        for file in check_files(CORPUS, depth=depth).files
    }
    wrong = {}
    for name, (state, needed) in VERDICTS.items():
        codes = {finding.code for finding in found[name].findings}
        if found[name].state != state or not all(codes & one_of for one_of in needed):
            wrong[name] = (found[name].state, codes)
    assert not wrong


def test_every_curated_file_is_here() -> None:
    """No row of the index was left out."""
    rows = (CORPUS / "INDEX.md").read_text(encoding="utf-8").splitlines()
    named = {row.split("|")[1].strip() for row in rows if row.startswith("| ") and "/" in row[:50]}
    curated = {name for name in named if (CORPUS / name).is_file()}
    assert curated == VERDICTS.keys()


@pytest.mark.parametrize("depth", ["quick", "structure", "deep"])
def test_healthy_controls_are_sound(depth: str) -> None:
    """Every HDF5 file of netCDF, pyfive and h5py is sound at every depth."""
    report = check_files([CORPUS / name for name in HEALTHY], depth=depth)
    assert {file.state for file in report.files} <= {State.SOUND, State.NOT_HDF5}


def test_killed_writers_are_told_apart() -> None:
    """The reason given for a killed writer's file is the one for which h5py fails."""
    for file in check_files(CORPUS / "killed").files:
        codes = {finding.code for finding in file.findings}
        reasons = [one_of for words, one_of in KILLED.items() if words in file.path]
        assert all(codes & one_of for one_of in reasons), (file.path, codes)
        if file.path.endswith("opens-all-completed-ok.h5"):
            assert not codes - {"D110"}, (file.path, codes)
