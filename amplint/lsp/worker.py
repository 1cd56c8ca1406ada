"""What runs in the worker process: pieces of work on the documents of all scopes.

LibCST's parser holds the interpreter's lock, so nothing here may run in the server itself.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from amplint.cancel import Cancelled, stopping_when
from amplint.finding import Span
from amplint.lsp.checking import Open
from amplint.lsp.messages import Annotation, Checked, CheckedFile, Rewritten, Unsaved, Wanted
from amplint.lsp.settings import Scope
from amplint.source import SourceError

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel
    from amplint.project.link import ModuleIndex, Project

ResultT = TypeVar("ResultT")

#: Scopes that are kept at most; the one not used for longest goes.
_MOST_SCOPES = 8
#: Garbage is collected when nobody waits, or after work on so many characters: models of files are large and hold
#: circles, and looking for these takes as long as a first look.
_MOST_UNTIDY = 1_000_000
#: What every piece of work counts for, a first look among them.
_LEAST_UNTIDY = 25_000


class State:
    """All that a worker process knows."""

    def __init__(self, cancelled: Any) -> None:
        #: A number that processes share: the ticket of the work that nobody wants any more.
        self.cancelled = cancelled
        self._scopes: OrderedDict[Scope, Open] = OrderedDict()
        #: Characters worked on since garbage was last collected.
        self.untidy = 0

    def scope(self, scope: Scope) -> Open:
        """What is known of a scope."""
        found = self._scopes.pop(scope, None) or Open(scope)
        self._scopes[scope] = found
        while len(self._scopes) > _MOST_SCOPES:
            self._scopes.popitem(last=False)
        return found


_state: list[State] = []


def start(cancelled: Any, niceness: int = 0) -> None:
    """Begin a worker process. What anything in it prints must not get into the server's answers."""
    import gc

    gc.disable()  # `tidy` does it
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    os.dup2(sys.stderr.fileno(), 1)
    sys.stdout = sys.stderr
    _state[:] = [State(cancelled)]


def perform(ticket: int, work: Callable[..., ResultT], *arguments: Any) -> ResultT | None:
    """Do some work on the state of this process; None when it was cancelled."""
    state = _state[0]
    state.untidy += _LEAST_UNTIDY
    if state.untidy > _MOST_UNTIDY:
        tidy(state)
    try:
        with stopping_when(lambda: state.cancelled.value >= ticket):
            return work(state, *arguments)
    except Cancelled:
        return None


# -- pieces of work: the first argument is the state of the process ------------------------------------------------


def tidy(state: State) -> None:
    """Collect garbage; what a process loads once and for all is looked at no more."""
    import gc

    gc.collect()
    if state.untidy and not gc.get_freeze_count():
        gc.freeze()
    state.untidy = 0


def check(state: State, document: Unsaved) -> Checked:
    """Check a document."""
    state.untidy += document.size
    return state.scope(document.scope).check(document)


def glance(state: State, document: Unsaved) -> Checked | None:
    """Have a first look at a document."""
    return state.scope(document.scope).glance(document)


def rewrite(state: State, document: Unsaved, wanted: Wanted) -> Rewritten:
    """Fix a document."""
    state.untidy += document.size
    try:
        return state.scope(document.scope).rewrite(document, wanted)
    except SourceError as error:
        return Rewritten(problems=(error.message,))


def ignore(state: State, document: Unsaved, fingerprint: str, reason: str) -> Rewritten:
    """Silence a finding by a comment."""
    try:
        return state.scope(document.scope).ignore(document, fingerprint, reason)
    except SourceError as error:
        return Rewritten(problems=(error.message,))


def describe(state: State, document: Unsaved, offset: int) -> Annotation | None:
    """What is believed of the name at an offset."""
    from amplint.lsp import beliefs

    return _about(state, document, lambda model, project: beliefs.describe(model, project, document, offset))


def hints(state: State, document: Unsaved, within: Span) -> list[Annotation]:
    """What is believed of the dtypes and scaled losses in a part of a document."""
    from amplint.lsp import beliefs

    found = _about(state, document, lambda model, project: beliefs.hints(model, project, document, within))
    return found or []


def lenses(state: State, document: Unsaved) -> list[Annotation]:
    """What is to be said of the training steps of a document."""
    from amplint.lsp import beliefs

    findings = state.scope(document.scope).everything(document)
    found = _about(state, document, lambda model, project: beliefs.lenses(model, project, findings))
    return found or []


def _about(state: State, document: Unsaved, ask: Callable[[ModuleModel, Project], ResultT]) -> ResultT | None:
    scope = state.scope(document.scope)
    state.untidy += document.size
    try:
        model = scope.model(document)
    except SourceError:
        return None
    return ask(model, scope.project) if model is not None else None


def explain(state: State, document: Unsaved, row: int) -> str:
    """What `amplint check --explain-flow` prints of a row."""
    from amplint.lsp import beliefs

    def ask(model: ModuleModel, project: Project) -> str:
        return beliefs.explanation(model, project, document, row)

    return _about(state, document, ask) or "the file cannot be parsed, or nothing in it concerns amplint"


def files(state: State, scope: Scope) -> list[str]:
    """The files of a scope: all below its base that its settings do not exclude."""
    from amplint.discover import discover

    return discover([Path(scope.base)], scope.settings, Path(scope.base)).names


def index(state: State, scope: Scope, paths: Sequence[str]) -> list[ModuleIndex]:
    """What other files may want to know of some files."""
    made = map(state.scope(scope).index, paths)
    return [module for module in made if module is not None]


def recall(state: State, scope: Scope, paths: Sequence[str]) -> dict[str, CheckedFile]:
    """What was found in those of some files that need no other check."""
    return state.scope(scope).recall(paths)


def check_file(state: State, scope: Scope, path: str) -> CheckedFile | None:
    """Check a file that is not open."""
    with suppress(OSError):
        state.untidy += os.path.getsize(path)
    return state.scope(scope).check_file(path)


def close(state: State, scope: Scope, filename: str) -> tuple[str, ...]:
    """A document was closed."""
    return state.scope(scope).close(filename)


def changed(state: State, scope: Scope, filenames: Sequence[str]) -> tuple[str, ...]:
    """Files changed on disk."""
    return state.scope(scope).changed(filenames)


def learn(state: State, scope: Scope, modules: Sequence[ModuleIndex]) -> tuple[str, ...]:
    """Files of the project are known."""
    return state.scope(scope).learn(modules)
