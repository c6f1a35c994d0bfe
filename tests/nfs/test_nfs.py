"""What `in_guest.py` says of h5sweep on NFS, with the Linux client and server, in a guest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nfs_guest import NEEDS, is_possible, run_in_guest
from places import ROOT

TESTS = Path(__file__).with_name("in_guest.py").relative_to(ROOT)


@pytest.mark.nfs
@pytest.mark.skipif(not is_possible(), reason=f"one of these is not there: {NEEDS}")
@pytest.mark.parametrize("mount", ["vers=3", "vers=3,nolock", "vers=4.2"])
def test_parts_on_two_clients_of_nfs(mount: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `in_guest.py` holds, whichever version the clients speak."""
    monkeypatch.chdir(ROOT)
    # The guest computes a tenth as fast as we do.
    words = ["env", "H5SWEEP_TEST_PATIENCE_S=300", sys.executable, "-m", "pytest"]
    words += ["-p", "no:cacheprovider", "--tb=short", "--durations=0", "-v", str(TESTS)]
    code, said = run_in_guest(words, mount=mount, timeout_s=7200)
    print(said)
    assert code == 0
