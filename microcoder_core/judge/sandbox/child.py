"""Runs one program in a child that is already confined. Nothing that it reports is trusted: the grader judges what it wrote.

A child sends frames: four bytes of length, then one JSON object.

| frame                                       | from                                                    |
|---------------------------------------------|---------------------------------------------------------|
| `{"value": ..}`                             | a function that returned (tagged JSON)                  |
| `{"raised": "ValueError", "message": ..}`   | a program or call that raised                           |
| `{"compile_error": ..}` `{"missing": ..}`   | a source that does not compile; no such function in it  |
| `{"unserialisable": "map"}`                 | a result that the codec does not carry                  |
| `{"args": [..], "kwargs": {..}}`            | asserts that call the candidate                         |
| `{"unsendable": ..}`                        | asserts that pass what the codec does not carry         |
| `{"passed": true}` `{"failed": ..}`         | asserts that ended                                      |
| `{"broken": ..}`                            | asserts that cannot be loaded                           |
"""

import atexit
import builtins
import contextlib
import io
import marshal
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from .frames import Codec, read_whole, receive, send, write_whole

MESSAGE_LIMIT = 500
CANDIDATE_GONE = 3
"""Exit code of asserts whose candidate ended, or answered with what is no frame."""
_PRELUDE = (
    "typing",
    "collections",
    "heapq",
    "bisect",
    "itertools",
    "functools",
    "math",
    "operator",
    "string",
    "re",
    "copy",
)
_PRELUDE_ON_DEMAND = ("random",)
"""Imported where a program mentions it: its seeding after a fork would cost every child 0.1 ms."""
_PRELUDE_NAMES_FROM = ("typing", "collections", "heapq", "bisect", "itertools", "functools", "math")
_NAMES_AT_RUN_TIME = frozenset(
    (
        *("__builtins__", "__future__", "__import__", "builtins", "eval", "exec", "getattr", "globals", "vars"),
        *("get_type_hints", "singledispatch", "singledispatchmethod", "timeit"),
    )
)
"""By these a program can come to a name that its code does not mention."""
_prelude: dict[str, object] = {}
_exit = os._exit
_type = type
_OUT_OF_MEMORY = b'{"raised": "MemoryError"}'


class CallFailed(Exception):
    """The candidate raised something that is no builtin exception."""


def run_stdin(codec: Codec, source_fd: int, code_fd: int, note_fd: int) -> NoReturn:
    """Runs the source as `__main__` on the real descriptors 0, 1 and 2; ends as Python would."""
    code = _code(codec, source_fd, code_fd, note_fd)
    sys.stdin = sys.__stdin__ = _text(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, "w")  # type: ignore[misc]
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__="main.py", __builtins__=builtins)
    sys.modules["__main__"] = main
    status = 0
    try:
        exec(code, main.__dict__)
    except SystemExit as stop:
        status = _exit_status(stop.code)
    except MemoryError:
        send(note_fd, _OUT_OF_MEMORY)
        _exit(1)
    except BaseException as error:
        _flush()
        send(note_fd, _raised(codec, error))
        _exit(1)
    _finish(main)
    _exit(status)


def _text(fd: int, mode: str) -> io.TextIOWrapper:
    stream = io.open(fd, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115, UP020 - lives to the end; open may be replaced
    assert isinstance(stream, io.TextIOWrapper)
    return stream


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _finish(main: types.ModuleType) -> None:
    """What Python does at its end, in its order: threads, exit functions, buffers, globals."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    _flush()
    main.__dict__.clear()  # files that the program left open are written here
    _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:  # closed, replaced or broken by the program: what was not written is not its output
            continue


def run_function(codec: Codec, fds: list[int], entry_point: str) -> NoReturn:
    """Calls the entry point once and sends its result. The arguments come from the grader, marshalled: as a list, or as tagged JSON."""
    source_fd, code_fd, arguments_fd, result_fd = fds
    arguments = marshal.loads(read_whole(arguments_fd))
    if type(arguments) is bytes:
        arguments = codec.decode(codec.unpack(arguments))
    function = _load_function(codec, _code(codec, source_fd, code_fd, result_fd), result_fd, entry_point)
    send(result_fd, _call(codec, function, arguments, {}))
    _exit(0)


def serve_function(codec: Codec, fds: list[int], entry_point: str) -> NoReturn:
    """Answers calls of the entry point until the caller ends."""
    source_fd, calls_fd, replies_fd = fds
    function = _load_function(codec, _compile(codec, source_fd, replies_fd), replies_fd, entry_point)
    while frame := receive(calls_fd):
        call = codec.unpack(frame)
        arguments = [_passed(codec, item) for item in call["args"]]
        keywords = {name: _passed(codec, item) for name, item in call["kwargs"].items()}
        send(replies_fd, _call(codec, function, arguments, keywords))
    _exit(0)


def _passing(codec: Codec, argument: Any) -> dict[str, object]:
    """An argument of a call; asserts may also pass builtins such as `int`, by name."""
    name = getattr(argument, "__name__", None)
    if type(name) is str and vars(builtins).get(name) is argument:
        return {"builtin": name}
    return {"value": codec.encode(argument)}


def _passed(codec: Codec, item: dict[str, Any]) -> Any:
    return vars(builtins)[item["builtin"]] if "builtin" in item else codec.decode(item["value"])


def _call(codec: Codec, function: Callable[..., object], arguments: list[Any], keywords: dict[str, Any]) -> bytes:
    try:
        return codec.pack_value(function(*arguments, **keywords))
    except MemoryError:
        return _OUT_OF_MEMORY
    except BaseException as error:  # SystemExit too: leaving is no result
        return _raised(codec, error)


def _load_function(codec: Codec, code: types.CodeType, result_fd: int, entry_point: str) -> Callable[..., object]:
    """The function that the code defines, or the method of its class `Solution`; ends the child where there is none."""
    module = types.ModuleType("program")
    module.__dict__["__builtins__"] = builtins
    sys.modules["program"] = module
    _offer_prelude(code)
    try:
        exec(code, module.__dict__)
        function = module.__dict__.get(entry_point)
        solution = module.__dict__.get("Solution")
        if function is None and hasattr(solution, entry_point):
            function = getattr(solution(), entry_point)  # type: ignore[misc]
    except MemoryError:
        send(result_fd, _OUT_OF_MEMORY)
        _exit(1)
    except BaseException as error:
        send(result_fd, _raised(codec, error))
        _exit(1)
    if not callable(function):
        send(result_fd, codec.pack({"missing": entry_point}))
        _exit(1)
    return function  # type: ignore[no-any-return]


def prepare_prelude() -> None:
    """Collects, in the zygote, the common names that a function's site would have imported."""
    for name in _PRELUDE:
        module = sys.modules[name]
        _prelude.setdefault(name, module)
        if name in _PRELUDE_NAMES_FROM:
            for public in getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]:
                _prelude.setdefault(public, getattr(module, public))


def _offer_prelude(code: types.CodeType) -> None:
    """Makes those of the common names builtins that a program may use: all of them (0.4 ms) only where it can make names at run time."""
    used = _names(code)
    if not _NAMES_AT_RUN_TIME.isdisjoint(used):
        used = {*_prelude, *_PRELUDE_ON_DEMAND}
    known = vars(builtins)
    for name in used:
        if name in _prelude:
            known.setdefault(name, _prelude[name])
        elif name in _PRELUDE_ON_DEMAND:
            known.setdefault(name, __import__(name))


def _names(code: types.CodeType) -> set[str]:
    """Every global name that a program's code mentions."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def run_asserts(codec: Codec, code_fd: int, replies_fd: int, calls_fd: int, result_fd: int) -> NoReturn:
    """Runs `check(candidate)`, where calling the candidate asks the program's child, and sends whether it passed."""
    raised: list[BaseException] = []

    def candidate(*arguments: object, **keywords: object) -> object:
        try:
            passing = {
                "args": [_passing(codec, each) for each in arguments],
                "kwargs": {k: _passing(codec, v) for k, v in keywords.items()},
            }
        except TypeError as error:  # no fault of the program
            send(result_fd, codec.pack({"unsendable": str(error)}))
            _exit(1)
        send(calls_fd, codec.pack(passing))
        frame = _reply(codec, replies_fd)
        if "compile_error" in frame or "missing" in frame:
            send(result_fd, codec.pack({"failed": "no candidate", "reply": frame}))
            _exit(1)
        try:
            return _value_of(codec, frame)
        except BaseException as error:
            raised.append(error)
            raise

    namespace: dict[str, Any] = {"__name__": "asserts"}
    try:
        exec(compile(read_whole(code_fd), "asserts", "exec", dont_inherit=True), namespace)
        check = namespace["check"]
    except BaseException as error:  # no program had a part in it
        send(result_fd, codec.pack({"broken": _type(error).__name__}))
        _exit(1)
    try:
        check(candidate)
    except BaseException as error:
        from_candidate = any(error is known for known in raised)
        message = str(error)[:MESSAGE_LIMIT] if from_candidate else ""  # of the asserts' own the message may tell what they expect
        send(result_fd, codec.pack({"failed": _type(error).__name__, "from_candidate": from_candidate, "message": message}))
        _exit(1)
    send(result_fd, codec.pack({"passed": True}))
    _exit(0)


def _reply(codec: Codec, replies_fd: int) -> dict[str, Any]:
    """The candidate's next frame; where there is none, or no frame at all, the asserts end without a word."""
    reply = receive(replies_fd)
    if reply is None:
        _exit(CANDIDATE_GONE)
    try:
        frame = codec.unpack(reply)
    except (ValueError, RecursionError):
        _exit(CANDIDATE_GONE)
    if not isinstance(frame, dict):
        _exit(CANDIDATE_GONE)
    return frame


def _value_of(codec: Codec, frame: dict[str, Any]) -> object:
    if "value" in frame:
        return codec.decode(frame["value"])
    if "unserialisable" in frame:
        raise TypeError(f"result cannot be carried: {frame['unserialisable']}")
    name, message = str(frame.get("raised")), str(frame.get("message", ""))
    kind = vars(builtins).get(name)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error = kind(message)
        except TypeError:  # UnicodeDecodeError and the like take more arguments
            error = CallFailed(name)
        raise error
    raise CallFailed(name)


def _code(codec: Codec, source_fd: int, code_fd: int, note_fd: int) -> types.CodeType:
    """The compiled source: a program's first child leaves it in the file `code_fd` for the next ones. Both are closed to the program."""
    kept = read_whole(code_fd)
    if kept:
        code: types.CodeType = marshal.loads(kept)
    else:
        code = _compile(codec, source_fd, note_fd)
        with contextlib.suppress(ValueError):  # nested too deeply to be written
            write_whole(code_fd, marshal.dumps(code))
    os.close(source_fd)
    os.close(code_fd)
    return code


def _compile(codec: Codec, source_fd: int, note_fd: int) -> types.CodeType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(read_whole(source_fd), "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        send(note_fd, codec.pack({"compile_error": f"{_type(error).__name__}: {message}{line}"[:MESSAGE_LIMIT]}))
        _exit(1)


def _raised(codec: Codec, error: BaseException) -> bytes:
    try:
        message = str(error)[:MESSAGE_LIMIT]
        return codec.pack({"raised": _type(error).__name__, "message": message.encode("utf-8", "replace").decode()})
    except BaseException:  # the program's own __str__ failed
        return codec.pack({"raised": _type(error).__name__})
