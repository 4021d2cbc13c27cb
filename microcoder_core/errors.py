"""Errors of microcoder.

    Exception
    |-- ValueError
    |   `-- InputError           the user's input breaks a rule: exit code 2
    `-- MicrocoderError          our own work failed: exit code 1
        |-- JudgeError           the judge itself cannot work (never: a program is wrong)
        |-- SamplingError        the model is broken, or its engine does not do its work
        |-- TrainingError        training cannot go on
        |-- StorageError         a store is away or fails: later it may work
        |   `-- DamageError      what a store holds is not what was put there
        `-- StageStopped         stopped by a signal after saving: exit code 143 or 3

A candidate program's failure is a `Verdict`, never an exception.
"""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANCELLED = 3
EXIT_SIGTERM = 143


class InputError(ValueError):
    """Input that breaks a rule; the message is one line: field, rule, what it got, what to do next."""


class MicrocoderError(Exception):
    """Work of ours that failed; the input may be fine."""


class JudgeError(MicrocoderError):
    """The judge cannot work: no sandbox, a worker that keeps dying."""


class SamplingError(MicrocoderError):
    """A model that cannot be sampled from: its numbers are not finite, its engine is gone or has not got the weights."""


class TrainingError(MicrocoderError):
    """Training cannot go on: non-finite loss, a judge that stayed away, nothing to train on."""


class StorageError(MicrocoderError):
    """A store that cannot be reached or that fails; the same request may work later."""


class DamageError(StorageError):
    """What a store holds is not what was put there; the message names the object."""


class StageStopped(MicrocoderError):
    """A stage was stopped by a signal after it saved what it had.

    Args:
        message: What was saved and how to go on.
        exit_code: 143 for SIGTERM, 3 for SIGINT (Ctrl-C).
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
