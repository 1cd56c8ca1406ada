"""Which files of a run an import means, told from paths and imports alone: nothing is looked up on disk or run.

Relative imports say where they lead. Absolute ones depend on `sys.path`, which nobody wrote down; what is taken for
certain of it is that a script's own folder comes first, and that the package a file lies in is the one it means.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Reason of a `Resolution` without candidates.
NOT_IN_RUN = "not in this run"
#: Files that a reason names at most.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Resolution:
    """What an import means, as far as the files of a run tell."""

    #: Every file that may be meant, for questions where too many is the safe side ("may this name be removed").
    candidates: tuple[str, ...] = ()
    #: Why it is not known what is meant: "not in this run" or "ambiguous: a.py, b.py"; "" when it is known.
    reason: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What is meant, for questions where a guess is no answer ("what is it"); empty when that is not known.

        Several are alternatives of which the program chooses one, as in a try statement around two imports.
        A stub is meant only where the module itself is not in the run.
        """
        if self.reason:
            return ()
        return tuple(f for f in self.candidates if not (f.endswith(".pyi") and f[:-1] in self.candidates))


class Places:
    """The files of a run as modules, known by their paths."""

    def __init__(self, files: Iterable[str], folder: str = "") -> None:
        """Take posix paths, absolute or relative to `folder`; when that is "", nothing is known of what is above."""
        #: File -> its folder. This and the keys below are paths from `folder` on, without suffix and `/__init__`.
        self._folders: dict[str, str] = {}
        self._packages: dict[str, tuple[str, ...]] = {}
        self._modules: dict[str, tuple[str, ...]] = {}
        #: Last part of a key -> the keys.
        self._by_last: dict[str, list[str]] = {}
        for filename in sorted(files):
            self._add(filename, folder)
        self._resolved: dict[tuple[str, str], Resolution] = {}

    def _add(self, filename: str, base: str) -> None:
        folder, _, last = posixpath.normpath(posixpath.join(base, filename)).rpartition("/")
        self._folders[filename] = folder
        stem, dot, suffix = last.rpartition(".")
        if dot + suffix not in (".py", ".pyi"):
            return
        if stem == "__init__":
            key, kind = folder, self._packages
        else:
            key, kind = _below(folder, stem), self._modules
        if not self._is_file(key):
            self._by_last.setdefault(key.rpartition("/")[2], []).append(key)
        kind[key] = (*kind.get(key, ()), filename)

    def folder(self, filename: str) -> str:
        """The folder of a file, on which it depends what the file's imports mean."""
        return self._folders.get(filename, "")

    def resolve(self, importer: str, origin: str) -> Resolution:
        """What `import origin` or `from origin import ..` means in the file `importer`.

        `origin` is dotted, with leading dots when it is relative. A folder without `__init__` is no file.
        """
        folder = self.folder(importer)
        found = self._resolved.get((folder, origin))
        if found is None:
            dots, dotted = _split(origin)
            parts = dotted.split(".") if dotted else []
            found = self._relative(folder, len(dots), parts) if dots else self._absolute(folder, parts)
            self._resolved[folder, origin] = found
        return found

    def submodule(self, filename: str, name: str) -> str | None:
        """The file of the submodule `name` of the package whose `__init__` is `filename`."""
        folder = self.folder(filename)
        if filename not in self._packages.get(folder, ()):
            return None
        return next(iter(self._files(_below(folder, name))), None)

    def packages_with(self, name: str) -> set[str]:
        """The `__init__` files of all packages that have a submodule `name`."""
        folders = [key.rpartition("/")[0] for key in self._by_last.get(name, ())]
        return {file for folder in folders for file in self._packages.get(folder, ())}

    def with_stub(self, filename: str) -> tuple[str, ...]:
        """A file, and the stub beside it."""
        stub = f"{filename}i"
        return (filename, stub) if stub in self._folders else (filename,)

    def _relative(self, folder: str, level: int, parts: list[str]) -> Resolution:
        for _ in range(level - 1):
            if not folder:
                return Resolution((), NOT_IN_RUN)
            folder = folder.rpartition("/")[0]
        if parts and self._depth(folder, parts) is None:
            return Resolution((), NOT_IN_RUN)
        files = self._files(_below(folder, *parts))
        return Resolution(files, "" if files else NOT_IN_RUN)

    def _absolute(self, folder: str, parts: list[str]) -> Resolution:
        path = "/".join(parts)
        keys = [k for k in self._by_last.get(parts[-1], ()) if f"/{k}".endswith(f"/{path}")] if parts else []
        if not keys:
            return Resolution((), NOT_IN_RUN)
        root = self._root(folder, parts, [_cut(key, path) for key in keys])
        if root is not None:
            return Resolution(self._files(_below(root, path)))
        files = [f for key in keys for kind in (self._packages, self._modules) for f in kind.get(key, ())]
        return _ambiguous(files, len(keys))

    def _root(self, folder: str, parts: list[str], roots: list[str]) -> str | None:
        """The one of `roots` from which files in `folder` import `parts`; None when that is not certain."""
        is_standard = parts[0] in sys.stdlib_module_names
        depth = self._depth(folder, parts)
        if folder not in self._packages and not is_standard:
            if depth is not None:
                # The first entry of `sys.path` loses only to a package where it has a folder without __init__.
                others = [self._depth(root, parts) for root in roots if root != folder]
                return folder if all(other is None or depth <= other for other in others) else None
            if self._is_file(_below(folder, parts[0])):
                return None
        own = list(self._own_packages(folder))
        if len(own) == 1 and own[0][1] == parts[0]:
            root = own[0][0]
            return root if self._depth(root, parts) is not None and depth is None else None
        if len(roots) > 1 or is_standard or self._is_shadowed(roots[0], parts):
            return None
        # A lone module in a folder that is not above may be the helper of other scripts.
        is_lone = len(parts) == 1 and _below(roots[0], parts[0]) not in self._packages
        return roots[0] if not is_lone or _is_in(folder, roots[0]) else None

    def _is_shadowed(self, root: str, parts: list[str]) -> bool:
        """Whether `parts` may not be found below `root` although it is in `sys.path`, or it is a package itself."""
        if root in self._packages or self._depth(root, parts) is None:
            return True
        others = [_cut(key, parts[0]) for key in self._by_last.get(parts[0], ())]
        return any(other != root and other not in self._packages for other in others)

    def _depth(self, root: str, parts: list[str]) -> int | None:
        """How many folders without `__init__` come first when `parts` are imported from `root`.

        None when that leads to no file.
        """
        depth = None
        key = root
        for i, part in enumerate(parts):
            key = _below(key, part)
            if depth is None and self._is_file(key):
                depth = i
            if key in self._modules and key not in self._packages and i < len(parts) - 1:
                return None
        return depth if self._is_file(key) else None

    def _own_packages(self, folder: str) -> Iterable[tuple[str, str]]:
        """(folder that is no package, its package that `folder` lies in); more than one where some lack `__init__`."""
        while folder:
            parent, _, last = folder.rpartition("/")
            if folder in self._packages and parent not in self._packages:
                yield parent, last
            folder = parent

    def _is_file(self, key: str) -> bool:
        return key in self._packages or key in self._modules

    def _files(self, key: str) -> tuple[str, ...]:
        """The files of the module at `key`: a package comes before a module of its name."""
        return self._packages.get(key) or self._modules.get(key, ())


class Resolver:
    """The files of a run, and what they take from one another."""

    def __init__(self, imports: Mapping[str, Sequence[tuple[str, str]]], folder: str = "") -> None:
        """Take the files of a run (as for `Places`) with the imports of each, as `ModuleIndex.imports` has them."""
        self._imports = imports
        self._places = Places(imports, folder)
        #: Name -> (file, the module that it is taken from there).
        self._by_name: dict[str, list[tuple[str, str]]] = {}
        for filename, taken in imports.items():
            for origin, name in taken:
                self._by_name.setdefault(name, []).append((filename, origin))
        # What was worked out so far.
        self._takers: dict[str, dict[str, set[str]]] = {}
        self._reached: dict[tuple[str, str], tuple[str, ...]] = {}
        self._held: dict[tuple[str, str], tuple[str, ...]] = {}
        self._taken: dict[str, dict[str, list[str]]] = {}
        self._taken_modules: dict[str, tuple[str, ...]] = {}
        self._starred: dict[str, tuple[str, ...]] = {}
        self._concerned: dict[str, set[str]] = {}

    def module(self, importer: str, origin: str) -> Resolution:
        """What `import origin` or `from origin import ..` means in the file `importer`; see `Places.resolve`."""
        return self._places.resolve(importer, origin)

    def name(self, importer: str, origin: str, name: str) -> Resolution:
        """Where `name` of `from origin import name` comes from in the file `importer`; "*" is the module itself.

        That is a submodule, or the file at the end of all re-exports. A relative from-import of a name counts as a
        re-export. Where a file takes the name otherwise (by "*", or as what may be an attribute of a module), it may
        as well define it: then both are candidates.
        """
        if name == "*":
            return self.module(importer, origin)
        trace = self._trace(name, [], [(importer, origin)])
        found = trace.found or trace.seen  # nothing but files that take it from one another
        if not found:
            return Resolution((), NOT_IN_RUN)
        files = tuple(dict.fromkeys(each for file in found for each in self._places.with_stub(file)))
        if trace.is_lost or not trace.found or (trace.has_doubts and len(found) > 1):
            return _ambiguous(files, len(found))
        return Resolution(files)

    def takers(self, filename: str, name: str) -> set[str]:
        """The files that may take `name` from the module in `filename` themselves, by that name or by "*"."""
        by_name, by_star = self._takers_by_source(name), self._takers_by_source("*")
        return by_name.get(filename, set()) | by_star.get(filename, set())

    def _takers_by_source(self, name: str) -> dict[str, set[str]]:
        """File -> the files that may take `name` from it."""
        found = self._takers.get(name)
        if found is None:
            found = self._takers[name] = {}
            for importer, origin in self._by_name.get(name, ()):
                is_star = name == "*"  # only a real module can be behind that
                files = self.module(importer, origin).candidates if is_star else self._reach(importer, origin)
                for file in files:
                    found.setdefault(file, set()).add(importer)
        return found

    # -- modules that go by other names --------------------------------------------------------------------------

    def _reach(self, importer: str, origin: str) -> tuple[str, ...]:
        """Every file that `origin`, a module or an expression for one, may stand for in the file `importer`.

        `pkg.compat` is the module of that name, or one that `pkg` imports from elsewhere.
        """
        folder = self._places.folder(importer)
        found = self._reached.get((folder, origin))
        if found is None:
            prefix, dotted = _split(origin)
            found = self.module(importer, prefix).candidates
            for part in dotted.split(".") if dotted else ():
                prefix = _dotted(prefix, part)
                files = dict.fromkeys(self.module(importer, prefix).candidates)
                files.update((held, None) for file in found for held in self._modules_held(file, part))
                found = tuple(files)
            self._reached[folder, origin] = found
        return found

    def _modules_held(self, file: str, name: str) -> tuple[str, ...]:
        """The modules that `name` may stand for in `file`."""
        found = self._held.get((file, name))
        if found is None:
            trace = self._trace(name, [file], [], only_modules=True)
            modules = [f for f, is_module in trace.found.items() if is_module]
            if not modules and name not in self._takes(file):  # `as` may have given it to a module
                found = self._modules_taken(file)
            else:
                found = tuple(dict.fromkeys(f for module in modules for f in self._places.with_stub(module)))
            self._held[file, name] = found
        return found

    def _modules_taken(self, file: str) -> tuple[str, ...]:
        """The modules that `file` imports from packages."""
        found = self._taken_modules.get(file)
        if found is None:
            origins = [_dotted(origin, name) for origin, name in self._imports.get(file, ()) if name != "*"]
            modules = dict.fromkeys(f for origin in origins for f in self.module(file, origin).candidates)
            found = self._taken_modules[file] = tuple(modules)
        return found

    # -- where a name comes from -----------------------------------------------------------------------------

    def _trace(
        self, name: str, files: list[str], lookups: list[tuple[str, str]], only_modules: bool = False
    ) -> _Trace:
        """Follow `name` through `files`, and through (file, the module that it is taken from there).

        With `only_modules` files that may define it need not be found.
        """
        trace = _Trace()
        while files or lookups:
            if not files:
                files = self._look_up(trace, *lookups.pop(0), name)
                continue
            file = files.pop(0)
            if file in trace.seen:
                continue
            trace.seen[file] = False
            has_submodule = self._look_in(trace, file, name)
            takes = self._takes(file)
            lookups += [(file, origin) for origin in takes.get(name, ())]
            if only_modules or has_submodule:
                files += [f for f in self._stars(file) if f in self._concern(name)]
            else:
                lookups += [(file, origin) for origin in takes.get("*", ())]
        return trace

    def _look_up(self, trace: _Trace, importer: str, origin: str, name: str) -> list[str]:
        """The files to look in for what `importer` takes by `name` from `origin`."""
        whole = self.module(importer, origin)
        part = self.module(importer, _dotted(origin, name))  # `origin` may be a folder without __init__
        trace.found.update(dict.fromkeys(part.files or part.candidates, True))
        trace.has_doubts |= bool(whole.candidates and part.candidates)
        trace.is_lost |= bool(whole.reason if whole.candidates else part.reason)
        return list(whole.files or whole.candidates)

    def _look_in(self, trace: _Trace, file: str, name: str) -> bool:
        """Note what `name` may be in `file`, but for what it takes from others; whether it is a submodule."""
        submodule = self._places.submodule(file, name)
        takes = self._takes(file)
        origins = takes.get(name, [])
        is_taken = bool(origins)
        may_be_own = not all(self._is_import(file, origin) for origin in origins)
        trace.has_doubts |= may_be_own or "*" in takes
        if submodule is not None:
            trace.has_doubts |= is_taken
            trace.found[submodule] = True
        if may_be_own or not (is_taken or submodule):
            trace.found.setdefault(file, False)
        return submodule is not None

    def _is_import(self, file: str, origin: str) -> bool:
        """Whether what `file` takes from `origin` is surely named in a from-import, and no attribute of a module."""
        prefix, dotted = _split(origin)
        if not prefix:
            return False
        takes = self._takes(file)
        for part in dotted.split(".") if dotted else ():
            if prefix in takes.get(part, ()):
                return False
            prefix = _dotted(prefix, part)
        return True

    def _takes(self, file: str) -> dict[str, list[str]]:
        """Name -> the modules that `file` takes it from."""
        found = self._taken.get(file)
        if found is None:
            found = self._taken[file] = {}
            for origin, name in self._imports.get(file, ()):
                found.setdefault(name, []).append(origin)
        return found

    def _stars(self, file: str) -> tuple[str, ...]:
        """The files whose names `file` may have because of a "*" in it, in them, and so on."""
        found = self._starred.get(file)
        if found is None:
            seen = {file: False}
            todo = [file]
            while todo:
                at = todo.pop()
                for origin in self._takes(at).get("*", ()):
                    new = [f for f in self.module(at, origin).candidates if f not in seen]
                    seen.update(dict.fromkeys(new, False))
                    todo += new
            found = self._starred[file] = tuple(seen)[1:]
        return found

    def _concern(self, name: str) -> set[str]:
        """The files that take `name` from elsewhere or have a submodule of that name."""
        found = self._concerned.get(name)
        if found is None:
            takers = {file for file, _ in self._by_name.get(name, ())}
            found = self._concerned[name] = takers | self._places.packages_with(name)
        return found


@dataclass(slots=True)
class _Trace:
    """Where one name was looked for, and what came of it."""

    #: File -> whether the name stands for the module itself.
    found: dict[str, bool] = field(default_factory=dict)
    seen: dict[str, bool] = field(default_factory=dict)
    #: If several were found, perhaps not all of them are meant.
    has_doubts: bool = False
    #: The trace was lost somewhere, so that something may be meant that was not found.
    is_lost: bool = False


def _ambiguous(files: Iterable[str], modules: int) -> Resolution:
    """The resolution for files of that many modules; one alone is ambiguous because it may lie elsewhere."""
    candidates = tuple(files)
    more = len(candidates) - _SHOWN
    end = f" and {more} more" if more > 0 else ", or outside of this run" if modules == 1 else ""
    return Resolution(candidates, f"ambiguous: {', '.join(candidates[:_SHOWN])}{end}")


def _split(origin: str) -> tuple[str, str]:
    """The leading dots of a module as written, and the rest."""
    dotted = origin.lstrip(".")
    return origin[: len(origin) - len(dotted)], dotted


def _dotted(origin: str, name: str) -> str:
    return f"{origin}{name}" if not origin or origin.endswith(".") else f"{origin}.{name}"


def _below(folder: str, *parts: str) -> str:
    path = "/".join(parts)
    return f"{folder}/{path}" if folder and path else folder or path


def _cut(key: str, path: str) -> str:
    """The folder that the module at `key` is imported from as `path`."""
    return key[: -len(path) - 1]


def _is_in(folder: str, other: str) -> bool:
    return not other or folder == other or folder.startswith(f"{other}/")
