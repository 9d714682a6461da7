"""Signs and bars of the live view, for terminals with and without the characters for them.

Pure; every sign is one cell wide."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text


@dataclass(frozen=True)
class Marks:
    """The characters of the view; `ASCII` where a terminal can't show the others."""

    full: str = "━"
    empty: str = "─"
    dot: str = "·"
    complete: str = "✓"
    partial: str = "●"
    waiting: str = "○"
    none: str = "✗"
    unknown: str = "?"

    def state(self, state: str) -> str:
        """The sign of a model's state."""
        return {"complete": self.complete, "partial": self.partial, "waiting": self.waiting, "incomplete": self.partial,
                "no answers": self.none}.get(state, self.unknown)

    def _filled(self, done: int, wanted: int, width: int) -> int:
        """Cells that are filled: none only where nothing is done, all only where everything is."""
        if wanted <= 0 or done <= 0:
            return 0
        return width if done >= wanted else max(1, min(width - 1, width * done // wanted))

    def flat(self, done: int, wanted: int, width: int) -> str:
        """A bar as plain characters."""
        filled = self._filled(done, wanted, width)
        return self.full * filled + self.empty * (width - filled)

    def bar(self, done: int, wanted: int, width: int) -> list[tuple[str, str]]:
        """A bar as styled pieces."""
        filled = self._filled(done, wanted, width)
        return [(self.full * filled, "green"), (self.empty * (width - filled), "dim")]

    def paint(self, line: Text, style: str = "") -> Text:
        """A line with its bar in colour, and with `style` its first sign too."""
        line.highlight_regex(f"[{self.full}]+", style or "cyan")
        line.highlight_regex(f"[{self.empty}]{{2,}}", "dim")
        if style and len(line.plain) > 2:
            line.stylize(style, 2, 3)
        return line


UNICODE = Marks()
ASCII = Marks(full="#", empty="-", dot="|", complete="+", partial="*", waiting="o", none="x", unknown="?")


def marks_for(encoding: str) -> Marks:
    """The characters that an encoding can write."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding)
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE
