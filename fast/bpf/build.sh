#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the programs: fast/bpf/build.sh [OBJECT]. Without OBJECT it renews the committed one.
# Every machine with Debian's clang-14 and linux-libc-dev makes the same bytes.
set -eu
object=$(realpath -- "${1:-$(dirname "$0")/fast.bpf.o}")
cd "$(dirname "$0")"
clang-14 -target bpf -mcpu=v3 -O2 -fno-addrsig -fno-ident -Wall -Wextra -Werror \
    -isystem "/usr/include/$(uname -m)-linux-gnu" -c fast.bpf.c -o "$object.new"
mv "$object.new" "$object"
