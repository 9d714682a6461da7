"""`python run.py MODULE --task_ids ...`: see scripts/run.py."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).resolve().parent / "scripts" / "run.py"), run_name="__main__")
