"""How fast judgment files are read, and in how much memory, next to decoding every line whole and to pandas.

Makes the files in a temporary folder and removes them. By hand: `python benchmarks/reading.py [--files N]`."""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.support import busy, print_table, spread  # noqa: E402

BENCH, JUDGE, BASELINE, QUESTIONS = "made-up", "judge", "base", 750
LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
WORDS = ("the", "answer", "is", "better", "because", "def f(x):\n    return x\n", '"quoted"', "1.", "**bold**",
         "größer", "über", "数学", "\n\n", "- item\n", "\\frac{a}{b}", "assistant", "explains", "correctly", "however,")


def pool(rng: random.Random) -> str:
    """Two million characters of words, line breaks, quotes, markdown and letters beyond ASCII."""
    return " ".join(rng.choices(WORDS, k=330_000))


def row(rng: random.Random, text: str, uid: int, size: int) -> bytes:
    """A judgment row of about `size` bytes: three quarters of it prompts, as in real files."""
    def piece(length: int) -> str:
        start = rng.randrange(len(text) - length)
        return text[start:start + length]

    user = piece(int(size * 0.36))
    games = [{"score": rng.choice(LABELS), "judgment": {"answer": piece(int(size * 0.09))},
              "prompt": [{"role": "system", "content": "x" * 1700}, {"role": "user", "content": user}]}
             for _ in range(2)]
    return orjson.dumps({"uid": f"{uid:016x}", "category": "hard_prompt", "judge": JUDGE, "model": "m",
                         "baseline": BASELINE, "games": games}, option=orjson.OPT_APPEND_NEWLINE)


def make(folder: Path, files: int, megabytes: float) -> int:
    """Write the files; returns how many bytes they have."""
    rng = random.Random(0)
    text = pool(rng)
    judged = folder / BENCH / "model_judgment" / JUDGE
    judged.mkdir(parents=True)
    size = int(megabytes * 1e6 / QUESTIONS) - 3600
    total = 0
    for number in range(files):
        with (judged / f"model-{number:03d}.jsonl").open("wb") as file:
            for uid in range(QUESTIONS):
                total += file.write(row(rng, text, uid, size))
    return total


def judgment_files(folder: Path, most: int) -> list[Path]:
    """The first files by name."""
    return sorted((folder / BENCH / "model_judgment" / JUDGE).glob("*.jsonl"))[:most]


def ours(folder: Path, most: int) -> int:
    """`read_judgments`: what the leaderboard reads."""
    from automate.results.reading.folder import of_data
    from automate.results.reading.judgments import read_judgments

    bench = of_data(folder, BENCH)
    names = [path.name.removesuffix(".jsonl") for path in judgment_files(folder, most)]
    return len(read_judgments(bench, (JUDGE,), names).battles)


def whole_lines(folder: Path, most: int) -> int:
    """Every line decoded whole by orjson, of which only labels are kept."""
    def labels() -> Iterator[tuple[str, str, str]]:
        for path in judgment_files(folder, most):
            with path.open("rb", buffering=1 << 20) as file:
                for line in file:
                    found = orjson.loads(line)
                    yield found["uid"], found["games"][0]["score"], found["games"][1]["score"]

    return len(list(labels()))


def pandas(folder: Path, most: int) -> int:
    """pandas.read_json of each file and one table of them all, as Arena-Hard's own program does."""
    import pandas as pd

    return len(pd.concat([pd.read_json(path, lines=True) for path in judgment_files(folder, most)]))


READERS = {"flock-hpc": ours, "orjson.loads of each line": whole_lines, "pandas.read_json": pandas}


def child(name: str, folder: Path, most: int) -> None:
    """Read in this process; prints rows, seconds, seconds of CPU and the most memory in MB."""
    start, spent = time.perf_counter(), time.process_time()
    rows = READERS[name](folder, most)
    print(rows, time.perf_counter() - start, time.process_time() - spent,
          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(name: str, folder: Path, most: int) -> tuple[int, float, float, float]:
    """(rows, seconds, seconds of CPU, MB) of a reader in a process of its own."""
    said = subprocess.run([sys.executable, __file__, "--child", name, "--folder", str(folder), "--files", str(most)],
                          check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
    return int(said[0]), float(said[1]), float(said[2]), float(said[3])


def main() -> None:
    """Make the files, read them by turns, print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=270)
    parser.add_argument("--megabytes", type=float, default=19.0, help="of each file")
    parser.add_argument("--pandas-files", type=int, default=20, help="files for pandas, whose memory grows with them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=list(READERS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.folder, given.files)
        return
    free = shutil.disk_usage(tempfile.gettempdir()).free
    files = min(given.files, int(0.5 * free / (given.megabytes * 1e6)))
    if files < given.files:
        print(f"room for {files} of {given.files} files only")
    print(busy())
    with tempfile.TemporaryDirectory(prefix="flock-reading-") as folder:
        size = make(Path(folder), files, given.megabytes) / files / 1e6
        print(f"{files} files of {size:.1f} MB with {QUESTIONS} rows each, read from the page cache as far as it holds")
        report(Path(folder), files, min(files, given.pandas_files), size, given.rounds)


def report(folder: Path, files: int, pandas_files: int, size: float, rounds: int) -> None:
    """Each reader `rounds` times by turns: median and range."""
    count = {name: pandas_files if name.startswith("pandas") else files for name in READERS}
    runs = {name: [] for name in READERS}  # type: dict[str, list[tuple[int, float, float, float]]]
    for _ in range(rounds):
        for name, most in count.items():
            runs[name].append(measure(name, folder, most))
    print_table(("reader", "files", "rows", "seconds", "MB/s a core", "most memory, MB"), [
        (name, str(count[name]), f"{found[0][0]:,}", spread([one[1] for one in found], 1),
         spread([count[name] * size / one[2] for one in found]), spread([one[3] for one in found]))
        for name, found in runs.items()])


if __name__ == "__main__":
    main()
