# SPDX-License-Identifier: Apache-2.0
"""Who may use `ri2n serve`: tokens that it is given or makes, and TLS."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.unit.parallel.copy_commands import BLOCK, MAKES_ONE, cp, good, one_line, serve


def test_a_token_and_tls(tmp_path: Path) -> None:
    cert, key, token, wrong = (tmp_path / name for name in ("cert", "key", "token", "wrong"))
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
    ]
    subprocess.run([*make, str(cert), *subject], check=True, capture_output=True)
    for path, text in ((token, "sesame\n"), (wrong, "barley")):
        path.write_text(text)
        path.chmod(0o600)
    file = tmp_path / "file"
    file.write_bytes(os.urandom(BLOCK + 1))
    with serve(tmp_path / "served", "--token-file", token, "--cert", cert, "--key", key) as server:
        assert "(TLS, token)" in server.line
        good(cp("--json", "--ca", cert, "--token-file", token, file, server.at("a")))
        assert "the server wants a token" in one_line(cp("--ca", cert, file, server.at("b")))
        told = one_line(cp("--ca", cert, "--token-file", wrong, file, server.at("b")))
        assert told.endswith(
            f"127.0.0.1:{server.port}: the server has another token (--token-file)"
        )
        assert "TLS" in one_line(cp("--token-file", token, file, server.at("b")))
        other = tmp_path / "other"
        subprocess.run([*make, str(other), *subject], check=True, capture_output=True)
        assert "--ca" in one_line(cp("--ca", other, "--token-file", token, file, server.at("b")))
        code, _, said = server.end()
    assert code == 0 and "tokens_missing 1, tokens_wrong 1" in said
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["a"]


def test_a_server_makes_a_token_unless_told_otherwise(tmp_path: Path) -> None:
    """It prints the token and how clients use it; another run has another token."""
    (tmp_path / "file").write_bytes(b"a file")
    tokens = set()
    for _ in range(2):
        with serve(tmp_path / "served", MAKES_ONE) as server:
            assert "(token)" in server.line
            token = re.fullmatch(r"token of this run: ([0-9a-f]{40})\n", server.says())
            assert (
                token and f"ri2n cp --token-file FILE SRC HOST:{server.port}:NAME" in server.says()
            )
            assert "the server wants a token" in one_line(cp(tmp_path / "file", server.at("a")))
            assert "the server wants a token" in one_line(cp(server.at(""), "-r", tmp_path / "got"))
            tokens.add(token[1])
            (tmp_path / "token").write_text(token[1])
            (tmp_path / "token").chmod(0o600)
            good(
                cp("--json", "--token-file", tmp_path / "token", tmp_path / "file", server.at("b"))
            )
    assert len(tokens) == 2
    assert not (tmp_path / "got").exists() and [
        path.name for path in (tmp_path / "served").iterdir()
    ] == ["b"]


def test_a_token_that_others_can_read_is_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame")
    for mode, told in ((0o600, False), (0o640, True), (0o604, True)):
        token.chmod(mode)
        done = cp("--token-file", token, token, "127.0.0.1:1:a")
        assert (
            "others can read it (chmod 600)" in done.stderr
        ) == told and "nobody listens" in done.stderr


def test_without_a_token_only_when_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a file")
    with serve(tmp_path / "served", "--no-token") as server:
        assert "(no token: whoever can connect may read and write)" in server.line
        good(cp("--json", tmp_path / "file", server.at("a")))
