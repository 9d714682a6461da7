"""How fast a judge reads and writes, loads and starts: assumed first, corrected by every start that has ended.

Pure: run records come in, rates go out; never reads a file or a clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from automate.campaign.forecasts.history import Start, way_of
from automate.settings import Settings

Z80 = 1.2816
"""Standard deviations on each side of the middle that hold 80 % of a normal distribution."""
PER_PROMPT, PER_OUTPUT = 1.18e-4, 3.82e-4
"""Seconds a token of a 70B FP8 judge on one H200, fitted to published TensorRT-LLM throughput."""
PROMPT_TOKENS, GAME_SECONDS = 2450.0, 30.0
"""A mean game of Arena-Hard v2.0: tokens of its prompt, and how long it takes among many others."""
BYTES_A_TOKEN, DISK_RATE, ENGINE_START, LOAD, OVERHEAD = 4.0, 1e9, 60.0, 300.0, 30.0
UNKNOWN, STATED, REHEARSED, NOISE = 0.86, 0.32, 0.5, 0.15
"""Standard deviations of ln(truth / assumed): constants (a factor of 3 in 80 %), settings (1.5), rehearsals (1.9); and
of ln(one batch / another) of the same judge on the same GPU."""
REHEARSAL_GAMES_A_SECOND, REHEARSAL_TOKENS = 2000.0, 31.0
API_GAME_SECONDS, API_IN_FLIGHT = 15.0, 32


@dataclass(frozen=True)
class Interval:
    """A number with the range that holds the truth 8 times of 10. low <= mid <= high."""

    low: float
    mid: float
    high: float

    @property
    def three(self) -> tuple[float, float, float]:
        return self.low, self.mid, self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def __mul__(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.mid * factor, self.high * factor)


@dataclass(frozen=True)
class Guess:
    """A positive number; `sigma` is the standard deviation of its logarithm, `source` says in words whence it is."""

    value: float
    sigma: float
    source: str

    def interval(self) -> Interval:
        """The range of 80 %."""
        factor = math.exp(Z80 * self.sigma)
        return Interval(self.value / factor, self.value, self.value * factor)


@dataclass(frozen=True)
class Rates:
    """What one start of a judge takes, in seconds, for games of so many tokens.

    `per_game`, `per_prompt` (a token that is not in the cache) and `per_output` are seconds of the whole server and
    corrected already; `spread` is the doubt about that correction, `noise` how batches differ among themselves (both
    as standard deviations of logarithms); `cached` the share of prompt tokens that costs nothing; `game_seconds` how
    long one game among many takes; `batches` and `games` what was learned from; `prompts` for each such start its
    models, games and prompt tokens; `wait` the median wait in the queue.
    """

    judge: str
    per_game: float
    per_prompt: float
    per_output: float
    spread: float
    noise: float
    source: str
    cached: float
    prompt_tokens: float
    output: Guess
    load: Guess
    overhead: Guess
    game_seconds: float
    last_game_seconds: float
    batches: int = 0
    games: int = 0
    prompts: tuple[tuple[tuple[str, ...], int, float], ...] = ()
    wait: float | None = None

    def work(self, games: float, prompt_tokens: float, output_tokens: float) -> float:
        """Seconds of play with the server full, without the tail of the last games."""
        return (games * self.per_game + prompt_tokens * (1 - self.cached) * self.per_prompt
                + output_tokens * self.per_output)

    def play(self, work: float) -> float:
        """Seconds of play from the first game to the end of the last, which has the server to itself."""
        return max(self.game_seconds, work + self.game_seconds / 2) if work > 0 else 0.0

    def seconds_a_game(self) -> float:
        """Seconds of the whole server for a mean game."""
        return self.work(1, self.prompt_tokens, self.output.value)

    def output_share(self) -> float:
        """The share of a mean game's seconds that goes with the length of its verdict."""
        whole = self.seconds_a_game()
        return self.output.value * self.per_output / whole if whole else 0.0


def assumed(settings: Settings, weight_bytes: int | None = None, unseen: str = "") -> Rates:
    """Rates without any history: of the settings, else the constants above. `weight_bytes`: of the judge on disk;
    `unseen`: why they are not known."""
    judge, gpu = settings.judge, settings.gpu
    output = Guess(judge.expected_output_tokens, 0.35, "judge.expected_output_tokens")
    unseen = unseen or "the size of the weights is not known"
    load = Guess(LOAD, 0.7, f"assumed: {unseen}") if not weight_bytes else Guess(
        weight_bytes / DISK_RATE + ENGINE_START, 0.7, f"assumed: {weight_bytes / 1e9:.0f} GB at 1 GB/s, and 60 s")
    plain = Rates(judge.name, 0.0, PER_PROMPT, PER_OUTPUT, UNKNOWN, NOISE, "a 70B FP8 judge on one H200", 0.0,
                  PROMPT_TOKENS, output, load, Guess(OVERHEAD, 0.7, "assumed"), GAME_SECONDS, 3 * GAME_SECONDS)
    if judge.kind == "rehearsal":
        return _rehearsed(settings, plain)
    if judge.kind == "openai":
        return _paid(settings, plain)
    prompt, written = gpu.prompt_tokens_per_second, gpu.output_tokens_per_second
    if not prompt and not written:
        return plain
    source = "settings gpu.*_tokens_per_second" if prompt and written else "one rate of the settings, one assumed"
    return replace(plain, per_prompt=1 / prompt if prompt else PER_PROMPT, source=source,
                   per_output=1 / written if written else PER_OUTPUT, spread=STATED if prompt and written else UNKNOWN)


def _option(settings: Settings, name: str) -> float:
    value = settings.judge.rehearsal.get(name)
    try:
        number = float(value) if value is not None else 0.0
    except ValueError:
        return 0.0
    return number if 0 < number < math.inf else 0.0


def _rehearsed(settings: Settings, plain: Rates) -> Rates:
    """What a rehearsal judge's own options say: how long a game takes, and how many tokens it holds at once."""
    judge = settings.judge
    stated = "expected_output_tokens" in judge.model_fields_set
    output = plain.output if stated else Guess(REHEARSAL_TOKENS, 0.2, "the rehearsal judge's own words")
    game = _option(settings, "latency") + _option(settings, "latency_per_token") * output.value
    kv, most = _option(settings, "kv_tokens"), 1024 if judge.concurrency == "auto" else judge.concurrency
    least = 1 / REHEARSAL_GAMES_A_SECOND
    by_pool = game / kv if kv else 0.0
    held = by_pool * (PROMPT_TOKENS + output.value) > max(game / most, least)
    load = Guess(_option(settings, "load_seconds") + 1.0, 0.3, "the rehearsal judge's load_seconds")
    return replace(
        plain, per_game=0.0 if held else max(game / most, least), per_prompt=by_pool if held else 0.0,
        per_output=by_pool if held else 0.0, spread=REHEARSED, source="the rehearsal judge's options", output=output,
        load=load, overhead=Guess(3.0, 0.5, "assumed of a rehearsal"), game_seconds=game, last_game_seconds=game)


def _paid(settings: Settings, plain: Rates) -> Rates:
    judge = settings.judge
    flying = API_IN_FLIGHT if judge.concurrency == "auto" else judge.concurrency
    pace = 60 / judge.requests_per_minute if judge.requests_per_minute else 0.0
    return replace(
        plain, per_game=max(API_GAME_SECONDS / flying, pace), per_prompt=0.0, per_output=0.0,
        source=f"assumed: {API_GAME_SECONDS:.0f} s a game, {flying} in flight", load=Guess(1.0, 0.1, "nothing to load"),
        game_seconds=API_GAME_SECONDS, last_game_seconds=4 * API_GAME_SECONDS)


def learn(starts: Iterable[Start], settings: Settings, *, weight_bytes: int | None = None,
          unseen: str = "", wait: float | None = None) -> Rates:
    """Rates of the settings' judge on the settings' GPU, corrected by its starts; other judges teach nothing."""
    base = assumed(settings, weight_bytes, unseen)
    name = settings.judge.name
    whole = list(starts)
    every = [start for start in whole if start.judge == name]
    gpus = settings.slurm.gpus if settings.judge.kind == "vllm" else None
    mine = [start for start in every if _same_gpu(start, settings.gpu.name, gpus)]
    played = _served_alike([start for start in mine if start.teaches], settings)
    rates = replace(base, wait=wait, load=_load(base.load, _served_alike(every, settings), whole, weight_bytes),
                    overhead=_learned(base.overhead, [s.overhead for s in every if s.overhead is not None]))
    if not played and any(start.teaches for start in every):
        rates = replace(rates, source=f"{rates.source}; starts on other GPUs don't count")
    return _corrected(_told(rates, played), played) if played else rates


def _served_alike(starts: Sequence[Start], settings: Settings) -> list[Start]:
    """Those whose judge was served as the settings say now (arguments, concurrency); all where there is none yet."""
    way = way_of(settings.model_dump(mode="json"))
    return [start for start in starts if start.way in (way, None)] or list(starts)


def _same_gpu(start: Start, name: str | None, gpus: int | None) -> bool:
    if gpus is not None and start.gpus is not None and start.gpus != gpus:
        return False
    if name is None or start.gpu is None:
        return True
    one, other = ("".join(filter(str.isalnum, text.casefold())) for text in (name, start.gpu))
    return one in other or other in one


def _told(rates: Rates, played: Sequence[Start]) -> Rates:
    """With what the games themselves were like: tokens, share from the cache, how long one takes."""
    counted = [start for start in played if start.usage is not None]
    medians = [start.game_seconds for start in played if start.game_seconds is not None]
    lasts = [start.last_game_seconds for start in played if start.last_game_seconds is not None]
    rates = replace(rates, game_seconds=statistics.median(medians) if medians else rates.game_seconds,
                    last_game_seconds=statistics.median(lasts) if lasts else rates.last_game_seconds)
    games = sum(start.played for start in counted)
    prompt, output, cached = (sum(column) for column in zip(*(s.usage for s in counted if s.usage), strict=True)) \
        if counted else (0.0, 0.0, 0.0)
    if not games or not prompt:
        return rates
    means = [start.usage[1] / start.played for start in counted if start.usage]
    apart = statistics.pstdev([math.log(max(mean, 1e-3)) for mean in means])
    sigma = math.sqrt((2 * 0.1**2 + len(means) * apart**2) / (2 + len(means)) / len(means))
    return replace(
        rates, cached=min(cached / prompt, 1.0), prompt_tokens=prompt / games,
        output=Guess(max(output / games, 1e-3), max(sigma, 0.01), f"mean of {games:,} games played"),
        prompts=tuple((s.models, s.played, s.usage[0]) for s in counted if s.usage))


def _corrected(rates: Rates, played: Sequence[Start]) -> Rates:
    """With all rates times what starts really took over what was predicted of their tokens."""
    seen = []
    for start in played:
        prompt, output, cached = start.usage or (
            start.played * rates.prompt_tokens, start.played * rates.output.value,
            start.played * rates.prompt_tokens * rates.cached)
        work = start.played * rates.per_game + (prompt - cached) * rates.per_prompt + output * rates.per_output
        took = max(start.play_seconds - rates.game_seconds / 2, start.play_seconds / 4)
        if work > 0:
            seen.append((math.log(took / work), start.played, start.trust))
    if not seen:
        return rates
    middle, noise, spread = _robust(seen, rates.spread)
    factor = math.exp(middle)
    return replace(
        rates, per_game=rates.per_game * factor, per_prompt=rates.per_prompt * factor,
        per_output=rates.per_output * factor, spread=spread, noise=noise, batches=len(seen),
        games=sum(games for _, games, _ in seen),
        source=f"{rates.source}, times {factor:.2g} by {len(seen)} start(s) that have ended")


def _robust(seen: Sequence[tuple[float, int, float]], prior: float) -> tuple[float, float, float]:
    """(middle, noise, spread) of log-ratios, each with its games and trust.

    The middle is the weighted median, drawn to 0 as far as the data are few; a start weighs by how well it is known:
    by the noise between batches, and by its own few games.
    """
    noise = NOISE
    weights: list[float] = []
    for _ in range(2):
        weights = [trust / (noise**2 + 4 / games) for _, games, trust in seen]
        median = _weighted_median([(ratio, weight) for (ratio, _, _), weight in zip(seen, weights, strict=True)])
        strays = [min(abs(ratio - median), 0.7) ** 2 * min(1.0, games / 200) for ratio, games, _ in seen]
        noise = math.sqrt((2 * NOISE**2 + sum(strays)) / (2 + len(seen)))
    belief = 1 / max(prior, abs(median)) ** 2
    total = sum(weights)
    return median * total / (total + belief), noise, math.sqrt(1 / (total + belief))


def _weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value with half of the weight on each side; between two where it falls between them."""
    ordered = sorted(pairs)
    half, passed = sum(weight for _, weight in ordered) / 2, 0.0
    for index, (value, weight) in enumerate(ordered):
        passed += weight
        if math.isclose(passed, half) and index + 1 < len(ordered):
            return (value + ordered[index + 1][0]) / 2
        if passed >= half:
            return value
    return ordered[-1][0]


def _learned(assumed_one: Guess, seen: Sequence[float], *, what: str = "start(s)") -> Guess:
    """The median of what was seen; the assumed one where nothing was."""
    if not seen:
        return assumed_one
    middle = max(statistics.median(seen), 0.01)
    strays = [min(abs(math.log(max(value, 0.01) / middle)), 1.0) ** 2 for value in seen]
    sigma = math.sqrt((2 * 0.25**2 + sum(strays)) / (2 + len(seen)))
    return Guess(middle, sigma, f"median of {len(seen)} {what}")


def _load(assumed_one: Guess, mine: Sequence[Start], everybody: Sequence[Start], weight_bytes: int | None) -> Guess:
    """Load time as it was on the file system (or node-local disk) that was used last; else by other judges' disk."""
    loads = [load for start in mine for load in start.loads]
    if loads:
        last = loads[-1]
        same = [load.seconds for load in loads if (load.filesystem, load.staged) == (last.filesystem, last.staged)]
        return _learned(assumed_one, same, what="load(s)")
    disks = [load.disk_rate for start in everybody for load in start.loads if load.disk_rate]
    if not disks or not weight_bytes:
        return assumed_one
    rate = statistics.median(disks)
    return Guess(weight_bytes / rate + ENGINE_START, 0.5,
                 f"{weight_bytes / 1e9:.0f} GB at the {rate / 1e9:.2g} GB/s of other judges' loads, and 60 s")
