"""Second phase: what the modules of one run say about one another."""

from __future__ import annotations

import ast
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from amplint import facts
from amplint.model.units import LIBRARY, is_library

if TYPE_CHECKING:
    from amplint.model.module import ModuleModel
    from amplint.project.resolve import Resolution, Resolver
    from amplint.source import Source


@dataclass(frozen=True, slots=True)
class ModuleIndex:
    """What other modules may want to know of one file; serialisable."""

    filename: str
    #: (dotted module as written, with leading dots when relative; the name taken, "*" for all), for imports of
    #: names and for attributes of imported modules.
    imports: tuple[tuple[str, str], ...]
    #: SHA-256 of its bytes; "" where it was not read.
    digest: str = ""


#: Models of other files that are kept at most, by one process.
_MOST_MODELS = 16
#: Re-exports that are followed from one module to the next.
_LONGEST_CHAIN = 5


class Project:
    """The linked modules of one run. Nothing is linked before something is asked; links are not pickled."""

    def __init__(self, modules: Iterable[ModuleIndex] = (), folder: str = "") -> None:
        """Take all files of a run, those that import nothing too: what an import means depends on them.

        Names of files are posix paths, absolute or relative to `folder`; "" where it is not known.
        """
        self._modules = modules
        self._folder = folder
        self._resolver: Resolver | None = None
        self._asked: dict[str, tuple[str, ...]] = {}
        #: Makes the model of a source, None where it cannot be parsed; set by whoever knows the settings.
        self.load: Callable[[Source], ModuleModel | None] | None = None
        #: Sources that count instead of what is on disk, by name: what an editor has not saved yet.
        self.unsaved: dict[str, Source] = {}
        self._models: OrderedDict[tuple[str, str], ModuleModel | None] = OrderedDict()
        self._reexports: dict[str, dict[str, tuple[str, str]]] = {}

    @cached_property
    def _index(self) -> dict[str, ModuleIndex]:
        return {module.filename: module for module in self._modules}

    @cached_property
    def _imports(self) -> dict[str, Sequence[tuple[str, str]]]:
        return {name: module.imports for name, module in self._index.items()}

    def __getstate__(self) -> dict[str, object]:
        fresh = Project((), self._folder).__dict__
        return {**fresh, "_modules": tuple(self._index.values())}

    def update(self, modules: Iterable[ModuleIndex], gone: Iterable[str] = ()) -> None:
        """Take files in as they are now, and drop those that are gone; what was not asked of them stays known."""
        for module in modules:
            before = self._index.get(module.filename)
            self._index[module.filename] = module
            self._imports[module.filename] = module.imports
            self._reexports.pop(module.filename, None)
            if before is None or before.imports != module.imports:
                self._resolver = None
        for filename in gone:
            if self._index.pop(filename, None) is not None:
                del self._imports[filename]
                self._reexports.pop(filename, None)
                self._resolver = None

    def index(self, filename: str) -> ModuleIndex | None:
        """What is known of a file of the run."""
        return self._index.get(filename)

    def imports(self, filename: str) -> tuple[tuple[str, str], ...]:
        """What a file of the run imports, see `ModuleIndex`; nothing for other files."""
        module = self._index.get(filename)
        return module.imports if module is not None else ()

    def record(self) -> dict[str, tuple[str, ...]]:
        """A dictionary in which every later question about one file is noted with its answer."""
        self._asked = {}
        return self._asked

    def holds(self, filename: str, asked: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether all that was noted of questions about `filename` would be answered the same today."""
        return all(self._answer(filename, question) == answer for question, answer in asked.items())

    def takers(self, filename: str, name: str) -> list[str]:
        """Files of the run that take `name` from the module in `filename`, as far as paths and imports tell.

        First those that do so themselves, then those that get it from them, by name. A file may be among them that
        takes it from elsewhere: this answers "may it be removed", where too many is the safe side.
        """
        return list(self._ask(filename, name))

    def meaning(self, filename: str, origin: str, name: str = "*") -> Resolution:
        """What `from origin import name` in `filename` means; "*" for the module `origin` itself."""
        from amplint.project.resolve import Resolution

        reason, *candidates = self._ask(filename, f"{origin} {name}")
        return Resolution(tuple(candidates), reason)

    # -- what is in other files -----------------------------------------------------------------------------

    def source(self, filename: str) -> Source | None:
        """The source of another file of the run, as it was when the run began, or of what stands for a library."""
        from amplint.source import SourceError, read_source, source_from_text

        if is_library(filename):
            return source_from_text(facts.library(filename.removeprefix(LIBRARY)), filename)
        wanted = self._ask("", f"={filename}")[0]
        if not wanted:
            return None
        source = self.unsaved.get(filename)
        try:
            source = source or read_source(Path(self._folder, filename), filename)
        except SourceError:
            return None
        return source if _digest(source) == wanted else None

    def model(self, filename: str) -> ModuleModel | None:
        """The model of another file of the run, if it can be parsed."""
        digest = "" if is_library(filename) else self._ask("", f"={filename}")[0]
        key = (digest, filename)
        if key not in self._models:
            source = self.source(filename)
            found = self.load(source) if source is not None and self.load is not None else None
            self._keep(key, found)
        self._models.move_to_end(key)
        return self._models[key]

    def model_at_hand(self, source: Source) -> ModuleModel | None:
        """The model of a source, if it was made before."""
        return self._models.get((_digest(source), source.filename))

    def keep_model(self, model: ModuleModel) -> None:
        """Keep the model of a file that was checked for those that use the file; what was found of it is dropped."""
        from amplint.flow.remembered import forget

        forget(model)
        self._keep((_digest(model.source), model.filename), model)

    def _keep(self, key: tuple[str, str], model: ModuleModel | None) -> None:
        from amplint.flow.remembered import forget

        self._models[key] = model
        if len(self._models) > _MOST_MODELS:
            _, oldest = self._models.popitem(last=False)
            if oldest is not None:
                forget(oldest)  # results lead back to their model

    def definition(self, filename: str, name: str) -> tuple[str, str] | None:
        """The file and the name in it that the qualified `name` of `filename` denotes, where that is known.

        `name` is as the file's imports write it (`utils.amp.NativeScaler`, `.amp.NativeScaler`); re-exports are
        followed, and what is not in the run may be a class of a library whose doings are known. None where several
        files may be meant.
        """
        dots = len(name) - len(name.lstrip("."))
        parts = name[dots:].split(".")
        for size in range(len(parts) - 1, -1, -1):
            origin = name[:dots] + ".".join(parts[:size])
            if not origin:
                continue
            found = self._follow(filename, origin, parts[size], 0)
            if found is not None:
                return found[0], ".".join([found[1], *parts[size + 1 :]])
        return self._in_library(filename, name)

    def _in_library(self, filename: str, name: str) -> tuple[str, str] | None:
        """The same for a class of `facts/libraries.tsv`, where nothing of that name is in the run."""
        from amplint.project.resolve import NOT_IN_RUN

        origin, _, last = name.rpartition(".")
        for row in facts.table("libraries"):
            known, _, wanted = row["name"].rpartition(".")
            if last == wanted and origin and known in ("*", origin):
                if self.meaning(filename, origin, last).reason != NOT_IN_RUN:
                    return None
                return LIBRARY + row["file"], row["definition"]
        return None

    def _follow(self, filename: str, origin: str, name: str, depth: int) -> tuple[str, str] | None:
        files = self.meaning(filename, origin, name).files
        if len(files) != 1 or depth > _LONGEST_CHAIN:
            return None
        names = self._exports(files[0])
        if names is None or name not in names:
            return None
        onward = names[name]
        if onward == ("", ""):
            return files[0], name
        return self._follow(files[0], *onward, depth + 1)

    def _exports(self, filename: str) -> dict[str, tuple[str, str]] | None:
        """The names that a module binds at its outermost level: by definition ("", ""), or from where."""
        if filename in self._reexports:
            self._ask("", f"={filename}")
            return self._reexports[filename]
        source = self.source(filename)
        if source is None:
            return None
        found: dict[str, tuple[str, str]] = {}
        try:
            body = ast.parse(source.text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = []
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[node.name] = ("", "")
            elif isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or "")
                found.update({a.asname or a.name: (origin, a.name) for a in node.names if a.name != "*"})
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                # another name for something is no variable
                if isinstance(target, ast.Name) and not isinstance(node.value, (ast.Name, ast.Attribute)):
                    found[target.id] = ("", "")
        self._reexports[filename] = found
        return found

    def _ask(self, filename: str, question: str) -> tuple[str, ...]:
        answer = self._asked[question] = self._answer(filename, question)
        return answer

    def _answer(self, filename: str, question: str) -> tuple[str, ...]:
        """The answer to a name (takers), to a module and a name with a space between, to "=" and a file (digest)."""
        if question.startswith("="):
            module = self._index.get(question[1:])
            return (module.digest if module is not None else "",)
        from amplint.project.resolve import Resolver

        if self._resolver is None:
            self._resolver = Resolver(self._imports, self._folder)
        resolver = self._resolver
        if filename not in self._imports:
            resolver = Resolver({**self._imports, filename: ()}, self._folder)
        origin, space, name = question.rpartition(" ")
        if not space:
            return _takers(resolver, filename, name)
        found = resolver.name(filename, origin, name)
        return (found.reason, *found.candidates)


def _takers(resolver: Resolver, filename: str, name: str) -> tuple[str, ...]:
    found = {filename: False}
    layer = [filename]
    while layer:
        taking = {taker for file in layer for taker in resolver.takers(file, name)}
        layer = sorted(taking - found.keys())
        found.update(dict.fromkeys(layer, False))
    return tuple(found)[1:]


def _digest(source: Source) -> str:
    return hashlib.sha256(source.data).hexdigest()
