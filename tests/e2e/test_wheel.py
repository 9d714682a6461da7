"""The wheel carries all it needs: installed in a clean environment, it runs the demo from an empty folder."""

import subprocess
import sys
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_demo_from_an_installed_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PROJECT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = next(tmp_path.glob("*.whl"))
    home = tmp_path / "home"
    venv.create(home, with_pip=True)
    install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run([str(home / "bin" / "flock-hpc"), "demo"], cwd=empty, capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Games: 96 of 96 (100.0%)" in done.stdout
    assert "4 models against example-baseline" in done.stdout
    assert (empty / "demo-campaign" / "results" / "report.html").is_file()
