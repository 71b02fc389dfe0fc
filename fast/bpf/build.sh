#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the programs: fast/bpf/build.sh [OBJECT]. Without OBJECT it renews the committed one.
# Every machine with Debian's clang-14 and its linux-libc-dev makes the same bytes.
set -eu
cd "$(dirname "$0")"
object=${1:-fast.bpf.o}
clang-14 -target bpf -mcpu=v3 -O2 -Wall -Wextra -Werror -isystem "/usr/include/$(uname -m)-linux-gnu" \
    -c fast.bpf.c -o "$object.new"
llvm-strip-14 --strip-unneeded "$object.new"
mv "$object.new" "$object"
