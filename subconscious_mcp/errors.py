"""Every error that a user can meet, and what each means to MCP, HTTP and the shell.

    SubconsciousError
    ├── ConfigError            a setting is unreadable, of the wrong type or out of range
    ├── InvalidArgument        an argument of a tool or a command is not what it takes
    ├── StorageError           the storage directory cannot be used as asked
    │   ├── StorageBusy        another process holds the storage directory
    │   ├── StorageFull        the disk is full
    │   └── StorageDamaged     a file of the storage directory cannot be read
    ├── IndexUnreadable        the vector index cannot be used (always rebuildable)
    ├── ModelError             the embedding model cannot be used
    │   ├── ModelMissing       it is not installed
    │   ├── ModelDamaged       its files are not the ones that were pinned
    │   └── ModelUnavailable   no source could deliver it
    ├── LanguageModelError     the model that writes summaries cannot be asked
    ├── ListenError            no socket can be opened on the address
    └── Closing                the process is ending; the call may be repeated

Each carries one line for a person (`message`) and the way out (`hint`). Errors of
third-party libraries are translated once, in the module that owns the library.
"""

from __future__ import annotations

from typing import NamedTuple


class SubconsciousError(Exception):
    """Base of all errors that are shown to a user.

    Args:
        message: One line that says what is wrong. Never holds a secret or a stored text.
        hint: One line that says what to do about it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigError(SubconsciousError):
    """A setting is unreadable, of the wrong type, or out of range."""


class InvalidArgument(SubconsciousError):
    """An argument of a tool or of a command is not what it takes."""


class StorageError(SubconsciousError):
    """The storage directory cannot be used as asked."""


class StorageBusy(StorageError):
    """Another process holds the storage directory."""


class StorageFull(StorageError):
    """The disk, or the quota of the storage directory, is full."""


class StorageDamaged(StorageError):
    """A file of the storage directory cannot be read as what it should be."""


class IndexUnreadable(SubconsciousError):
    """The vector index cannot be used; it is rebuilt from the database."""


class ModelError(SubconsciousError):
    """The embedding model cannot be used."""


class ModelMissing(ModelError):
    """The model is not installed, and installing it was not allowed or not asked for."""


class ModelDamaged(ModelError):
    """The model's files are not the ones that were pinned."""


class ModelUnavailable(ModelError):
    """No source could deliver the model."""


class LanguageModelError(SubconsciousError):
    """The model that writes summaries cannot be asked, or wrote what cannot be taken."""


class ListenError(SubconsciousError):
    """No socket can be opened on the address that was asked for."""


class Closing(SubconsciousError):
    """The process is ending; the call was not carried out and may be repeated."""


class Meaning(NamedTuple):
    """What an error class means to each adapter."""

    http_status: int
    exit_code: int


# Exit codes follow sysexits.h where it has a fitting one: 64 usage, 66 no input,
# 69 unavailable, 70 software, 74 I/O, 75 try again, 78 configuration.
# Every one of these is an MCP tool result with `isError: true`.
MEANINGS: dict[type[SubconsciousError], Meaning] = {
    ConfigError: Meaning(500, 78),
    InvalidArgument: Meaning(400, 64),
    StorageError: Meaning(500, 74),
    StorageBusy: Meaning(503, 75),
    StorageFull: Meaning(507, 74),
    StorageDamaged: Meaning(500, 74),
    IndexUnreadable: Meaning(500, 74),
    ModelError: Meaning(503, 69),
    ModelMissing: Meaning(503, 66),
    ModelDamaged: Meaning(503, 66),
    ModelUnavailable: Meaning(503, 69),
    LanguageModelError: Meaning(502, 69),
    ListenError: Meaning(503, 69),
    Closing: Meaning(503, 75),
    SubconsciousError: Meaning(500, 70),
}


def meaning(error: BaseException) -> Meaning:
    """Returns what `error` means to HTTP and the shell; unknown errors count as software faults."""
    for cls in type(error).__mro__:
        if cls in MEANINGS:
            return MEANINGS[cls]
    return MEANINGS[SubconsciousError]
