# SPDX-License-Identifier: Apache-2.0
"""Take secrets out of texts and JSON documents that leave the machine."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["TAKEN_OUT", "known_macs", "redact", "redact_text"]

TAKEN_OUT = "(taken out)"
# Documents may come from a stranger on the socket.
_MAX_DEPTH = 50

_SECRET = r"(?:secret|token|passw(?:or)?d|passphrase|credential|private|hash|bearer|authorization)"
_SECRET_KEY = re.compile(_SECRET + r"|^key$|_key$|^wire", re.IGNORECASE)
_PEM = re.compile(
    r"-----BEGIN [^\n]{0,40}?PRIVATE KEY-----.*?(?:-----END [^\n]{0,40}?KEY-----|\Z)", re.DOTALL
)
_PEM_END = re.compile(r"-----END [^\n]{0,40}?PRIVATE KEY-----")
# No key is longer.
_PEM_LINES = 100
_SET = re.compile(rf"""({_SECRET}[\w-]{{0,40}}["']?[ \t]*[:=][ \t]*)[^\n]+""", re.IGNORECASE)
# As HTTP has it. A flow's cookie, which is no secret, is a number after an equals sign.
_COOKIE = re.compile(
    r"""(\b(?:set-)?cookie["']?[ \t]*:(?![ \t"']*0x)[ \t]*)[^\n]+""", re.IGNORECASE
)
# As in https://USER:PASSWORD@HOST.
_URL = re.compile(r"(://[^\s/:@]{0,100}:)[^\s/@]+(?=@)")
_SAID = re.compile(r"\b(bearer|token)([ \t]+)\S+", re.IGNORECASE)
_BLOCK = re.compile(
    rf"""^([ \t]*)(?:- )?["']?[\w-]{{0,40}}{_SECRET}[\w-]{{0,40}}["']?[ \t]*:""", re.IGNORECASE
)
# Hashes and keys in hexadecimal digits. Datapath ids and addresses are shorter.
_HEX = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{32,}")
# A line of a key's body, or a random text of 256 bits: long, with digits and both cases.
_RANDOM = re.compile(
    r"(?<![\w+-])(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=[\w+-]*[0-9])[\w+-]{40,}={0,2}(?![\w+-])"
)
_BODY = re.compile(r"(?<![\w+/.-])[A-Za-z0-9+/]{60,}={0,2}(?![\w+/.-])")
_MAC = re.compile(
    r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![0-9A-Fa-f])"
)


def redact(document: object, macs: Collection[str] = (), depth: int = 0) -> object:
    """A JSON document without secrets: values of keys that name one, and secrets in texts.

    `macs` are as for `redact_text`.
    """
    if depth > _MAX_DEPTH:
        return TAKEN_OUT
    if isinstance(document, dict):
        return {
            redact_text(str(key), macs): TAKEN_OUT
            if _SECRET_KEY.search(str(key)) and isinstance(value, str | list | dict)
            else redact(value, macs, depth + 1)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [redact(each, macs, depth + 1) for each in document]
    return redact_text(document, macs) if isinstance(document, str) else document


def redact_text(text: str, macs: Collection[str] = ()) -> str:
    """A text without private keys, tokens, hashes, and addresses of isolated jobs.

    The address of a job on the wire looks like any address that was made up rather than burnt in.
    So all such addresses are taken out, except those of `macs` (in lower case, with colons), which
    are the hosts' own. It is better to take out too much than too little.
    """
    text = _PEM.sub(TAKEN_OUT, text)
    if "-----END " in text:
        text = _without_end_of_key(text)
    text = "\n".join(_without_blocks(text.split("\n")))
    for named in (_SET, _COOKIE, _URL):
        text = named.sub(rf"\g<1>{TAKEN_OUT}", text)
    text = _SAID.sub(rf"\g<1>\g<2>{TAKEN_OUT}", text)
    for secret in (_HEX, _RANDOM, _BODY):
        text = secret.sub(TAKEN_OUT, text)

    def address(found: re.Match[str]) -> str:
        mac = found[0].lower().replace("-", ":")
        made_up = int(mac[:2], 16) & 3 == 2
        return TAKEN_OUT if made_up and mac not in macs else found[0]

    return _MAC.sub(address, text)


def _without_end_of_key(text: str) -> str:
    """A log without the end of a key whose begin is older than the log, and the lines before it."""
    kept: list[str] = []
    for line in text.split("\n"):
        if _PEM_END.search(line):
            del kept[-_PEM_LINES:]
            kept.append(TAKEN_OUT)
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_blocks(lines: list[str]) -> list[str]:
    """YAML lines without those that belong to a key whose name is that of a secret."""
    kept: list[str] = []
    inside: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if inside is not None and line.strip():
            if indent > inside or (indent == inside and line.lstrip().startswith("- ")):
                continue
            inside = None
        if inside is None and (found := _BLOCK.match(line)):
            inside = len(found[1])
        kept.append(line)
    return kept


def known_macs(state: object) -> frozenset[str]:
    """The addresses of hosts and their NICs in a controller's state, which are no secrets."""
    hosts = state.get("hosts") if isinstance(state, dict) else None
    found = set()
    for host in hosts.values() if isinstance(hosts, dict) else ():
        if isinstance(host, dict):
            nics = host.get("nics")
            for each in (host, *(nics.values() if isinstance(nics, dict) else ())):
                if isinstance(each, dict) and isinstance(each.get("mac"), str):
                    found.add(each["mac"].lower())
    return frozenset(found)
