"""Instructions of a governed call, by the code that they are in. Started by deploy/load/instructions.

    wardgate bench ─▶ callgrind: wardgate up ─▶ rmcp server      one connection, everything on
                           └─▶ callgrind.out: per function, its own instructions and how often it was called

Callgrind knows no SHA extensions and counts each byte of a large copy, so digests and copies are fewer in truth than they
look here. Work that goes on beside the calls, such as a checkpoint each second, is divided among them.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess

from load import Process

# The first that fits says where a function belongs.
PARTS = [
    ("copying and clearing memory", r"^__mem(cpy|move|set)"),
    ("digests, keys, encryption", r"aws_lc|sha256|HMAC"),
    ("allocation", r"_rjem|__rust_(re|de)?alloc|^malloc$|^free$|_int_|rallocx|tcache"),
    ("log and spans", r"tracing|sharded_slab|nu_ansi"),
    ("metrics", r"metrics|rapidhash|quanta"),
    ("formatting of text", r"core::fmt|alloc::fmt|fmt::Write"),
    ("JSON", r"serde|wardgate_json"),
    ("SQLite", r"sqlite3|^wal|^vdbe|^pager|balance|^pcache|releaseMem|^unix|sqlx|btree|getPage|getAndInitPage|zeroPage"),
    ("HTTP", r"hyper|httparse|^(<)?http::|http_body|axum|tower|matchit|reqwest|url::|idna"),
    ("runtime", r"tokio|mio::|futures|Pin<P>|PollFn|pthread"),
    ("Wardgate", r"wardgate"),
    ("collections and text of the standard library", r"^(<)?(alloc|core|std|hashbrown)|memcmp"),
]


def read(path):
    """Of each function its own instructions, and how often it was called (the format of callgrind, of valgrind 3.19)."""
    names, own, calls = {}, collections.Counter(), collections.Counter()
    function = called = None
    of_call = False
    named = re.compile(r"^(c?fn)=\((\d+)\)(?: (.*))?$")
    for line in open(path, errors="replace"):
        if line[:1] in "0123456789+-*":
            # The line behind a call has what the call took, which is not the function's own.
            if not of_call:
                own[function] += int(line.split()[1])
            of_call = False
        elif line.startswith("calls="):
            calls[called] += int(line[6:].split()[0])
            of_call = True
        elif match := named.match(line.rstrip("\n")):
            kind, number, name = match.groups()
            if name is not None:
                names[number] = name
            if kind == "fn":
                function = names[number]
            else:
                called = names[number]
    return own, calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the binary under test, with the names of its functions")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data and callgrind's output")
    parser.add_argument("--seconds", type=int, default=20, help="seconds of calls that are counted")
    parser.add_argument("--era", choices=["modern", "legacy"], default="modern", help="version of the protocol, as of `wardgate bench`")
    parser.add_argument("--functions", type=int, default=0, help="so many functions with the most instructions of their own, too")
    arguments = parser.parse_args()
    data = arguments.out / "instructions"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    shutil.copytree(pathlib.Path(__file__).parent / "echo", data / "echo")

    server = Process(data / "server.log", [arguments.fixture, "--json"])
    callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={data}/callgrind.out"]
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--config", data / "echo/wardgate.yaml"]
    gateway = Process(data / "up.log", [*callgrind, *words], ECHO_URL=server.url)
    words = [arguments.wardgate, "token", "--data-dir", data, "--sub", "ada", "--role", "Caller", "--ttl", "3h"]
    token = data / "token"
    token.write_text(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def bench(seconds):
        words = [arguments.wardgate, "bench", "--url", gateway.url, "--tool", "echo__greet", "--args", '{"name":"Ada"}', "--output", "json"]
        words += ["--connections", "1", "--warm-up", "0", "--seconds", str(seconds), "--era", arguments.era, "--token-file", token]
        return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)["good"]

    def control(*words):
        subprocess.run(["callgrind_control", *words, str(gateway.child.pid)], check=True, stdout=subprocess.DEVNULL)

    bench(3)
    control("-i", "on")
    good = bench(arguments.seconds)
    control("-i", "off")
    control("--dump")
    gateway.stop()
    server.stop()
    show(*read(data / "callgrind.out.1"), good, arguments.functions)


def show(own, calls, good, functions):
    by_part = collections.Counter()
    for function, instructions in own.items():
        fitting = (part for part, pattern in PARTS if re.search(pattern, function))
        by_part[next(fitting, "else")] += instructions
    allocations = sum(count for function, count in calls.items() if function == "_rjem_malloc")
    print(f"of one call, {good} counted: {sum(own.values()) / good:,.0f} instructions, {allocations / good:,.0f} allocations")
    for part, instructions in by_part.most_common():
        print(f"{instructions / good:>12,.0f}  {part}")
    for function, instructions in own.most_common(functions):
        print(f"{instructions / good:>12,.0f}  {function[:120]}")


if __name__ == "__main__":
    main()
