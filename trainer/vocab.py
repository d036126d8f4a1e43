"""The word-level vocabulary of the small policy: what it reads, says and writes is a list of these words.

One word is one token, so that an episode of a code repair is about 70 tokens and a person can read the ids of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable

PAD, TASK, END, OBS = "<pad>", "<task>", "<end>", "<obs>"
"""Padding, start of an episode, end of an agent's turn, end of what the environment says (the agent is next)."""

ACTIONS = ("think", "read", "edit", "test", "submit", "calc", "answer", "history", "ask")
FILES = ("S", "T", "H")
"""Source, tests, history."""

LINES = ("L1", "L2", "L3", "L4")
DIGITS = tuple("0123456789")
RESULTS = ("P", "F", "E", "ok", "bad", "none")
"""A test passed, failed or raised; an action was carried out, was malformed, has no effect."""

VARIABLES = ("x", "n", "v", "k", "a", "y")
PYTHON = (
    *("def", "f", "(", ")", ":", "return", "if", "else", "and", "or", "not", "is", "in", "None", "True", "False"),
    *("=", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", ",", "[", "]", "min", "max", "abs"),
)
HINTS = (
    "repair",
    "zero",
    "off",
    "default",
    "to",
    "include",
    "exclude",
    "allow",
    "deny",
    "most",
    "least",
    "add",
    "subtract",
    "compute",
    "between",
    "swap",
)
WORDS = (
    *("the", "code", "returns", "wrong", "value", "look", "at", "line", "fix", "this", "it", "should", "be", "bug", "now"),
    *("check", "maybe", "because", "goblin", "done", "first", "then", "tests", "hint"),
)

TOKENS = (PAD, TASK, END, OBS, *ACTIONS, *FILES, *LINES, *DIGITS, *RESULTS, *VARIABLES, *PYTHON, *HINTS, *WORDS)
SIZE = len(TOKENS)
ID = {token: index for index, token in enumerate(TOKENS)}
PAD_ID, TASK_ID, END_ID, OBS_ID = (ID[token] for token in (PAD, TASK, END, OBS))

assert len(ID) == SIZE, "every word appears once"


def encode(words: str | Iterable[str]) -> list[int]:
    """Ids of space-separated words. Raises KeyError for a word outside the vocabulary."""
    return [ID[word] for word in (words.split() if isinstance(words, str) else words)]


def decode(ids: Iterable[int]) -> str:
    """The words of ``ids``, space-separated."""
    return " ".join(TOKENS[index] for index in ids)
