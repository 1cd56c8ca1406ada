"""What a rule is, what it may ask, and where rules come from (entry point group `amplint.rules`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amplint.finding import Confidence, Fix, Note, Severity, Span

if TYPE_CHECKING:
    import libcst as cst

    from amplint.audit import Audit
    from amplint.config import Settings
    from amplint.gate import Outline
    from amplint.model.module import ModuleModel
    from amplint.project.link import Project


@dataclass(frozen=True, slots=True)
class Report:
    """What a rule says about one place; the engine turns it into a `Finding`."""

    #: The node reported at; a span of the text for what is no node, such as a comment.
    node: cst.CSTNode | Span
    message: str
    severity: Severity | None = None
    confidence: Confidence | None = None
    #: Ordered steps that make it true: (node, what happens there), or a note about another file.
    trace: Sequence[tuple[cst.CSTNode, str] | Note] = ()
    #: Made only for reports that are neither suppressed nor filtered out; gives the fix or the reason for none.
    fix: Callable[[], Fix | str] | None = None


class Context:
    """What one rule sees of one file: its model, the settings, and what is silenced in it."""

    def __init__(
        self,
        model: ModuleModel,
        settings: Settings,
        project: Project,
        is_active: Callable[[str, cst.CSTNode], bool],
        audit: Audit,
    ) -> None:
        self.model = model
        self.settings = settings
        self.project = project
        #: The file's suppressions and what they did; complete for rules that are `about_run`.
        self.audit = audit
        #: What several rules compute once per file.
        self.memo: dict[str, object] = {}
        self._is_active = is_active

    def is_active(self, code: str, node: cst.CSTNode) -> bool:
        """Whether a finding of `code` at `node` would be shown and may be fixed (selected, not suppressed)."""
        return self._is_active(code, node)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of mistake. `check` yields a `Report` for each place; it neither prints nor walks the tree."""

    code: str
    name: str
    #: One line, without a full stop.
    summary: str
    severity: Severity
    check: Callable[[Context], Iterable[Report]] = field(repr=False)
    #: A file in which none of these occurs has no finding of this rule; empty: every file may have one.
    words: tuple[str, ...] = ()
    #: A cheap necessary condition on the file's outline, asked before LibCST parses it; None: always.
    shape: Callable[[Outline], bool] | None = field(default=None, repr=False)
    confidence: Confidence = Confidence.HIGH
    preview: bool = False
    #: Not in the default selection even where its family is.
    off_by_default: bool = False
    #: For messages and `amplint rule`: safe, unsafe, sometimes, none.
    fixable: str = "none"
    #: Severity when the target is npu, where that differs.
    npu_severity: Severity | None = None
    #: Runs after all others, because it is about what they did.
    about_run: bool = False
    module: str = ""

    @property
    def url(self) -> str:
        """Where its page is on the web."""
        return f"https://amplint.readthedocs.io/rules/{self.name}"
