"""Counts the instructions of a governed call by code. Started by deploy/load/instructions.

    wardgate bench ─▶ callgrind: wardgate up ─▶ rmcp server      one connection, everything on
                           └─▶ callgrind.out: per function, its own instructions, and what its calls of others took

The budget contains the stages of a call, without background work: timers, polls, a checkpoint each second. Digests take
fewer instructions in production, because callgrind runs use no CPU extensions for them.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

from load import Process, control_callgrind, make_token

BUDGET = pathlib.Path(__file__).parent / "budget.json"

# Digests and copies select their code by CPU. Without these extensions, they run the same code on every x86-64 CPU.
ANY_PROCESSOR = {
    "OPENSSL_ia32cap": "~0x1000000000000000:~0xffffffffffffffff",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM",
}

# Exceeding the budget by more than this is a failure. Two runs of the same binary on a quiet machine differ by less.
TOLERANCE = 0.03

# Beside other processes, a call waits more often, and each time it is polled once more. So a measurement above the budget is
# repeated, up to so many measurements.
MEASUREMENTS = 3

# The functions with which a stage begins, and its parent stage. The instructions of a stage are not counted for its parent.
CLOSURE = r"::\{\{closure\}\}$"
STAGES = {
    "HTTP and parse": ([r"^wardgate_edge::listener::HttpServer::serve" + CLOSURE], None),
    "authentication": ([r"^wardgate_edge::auth::Authenticator::verify" + CLOSURE], "HTTP and parse"),
    "limits": ([r"^wardgate_limits::admission::RequestAdmission::admit" + CLOSURE], "HTTP and parse"),
    "pipeline": ([r"^wardgate_gateway::governed_call::pipeline::CallPipeline::run" + CLOSURE], "HTTP and parse"),
    "authorize": ([r"^wardgate_gateway::governed_call::authorization::CallAuthorizer::authorize" + CLOSURE], "pipeline"),
    "tool-runner": (
        [
            r"^<futures_util::stream::try_stream::try_unfold::TryUnfold<.*> as futures_core::stream::Stream>::poll_next$",
            r"^<wardgate_tool_runner::service::Runner as wardgate_rpc::client::tool_runner::ToolCaller>::call_tool" + CLOSURE,
        ],
        "pipeline",
    ),
    "permit and validate": ([r"^wardgate_tool_runner::call::admit$", r"^wardgate_tool_runner::call::AdmittedCall::arguments$"], "tool-runner"),
    "execute": ([r"^<wardgate_tool_runner::executor::mcp::McpExecutor as .*>::run" + CLOSURE], "tool-runner"),
    "row rule and redact": ([r"^wardgate_tool_runner::call::AdmittedCall::release$"], "tool-runner"),
    "record": (
        [
            r"^wardgate_gateway_record::recorder::CallRecorder::record_outcome" + CLOSURE,
            r"^wardgate_gateway::governed_call::GovernedCall::build_outcome$",
            r"^wardgate_gateway::governed_call::GovernedCall::begin_recording$",
        ],
        "pipeline",
    ),
    "reply": ([r"^wardgate_gateway::governed_call::GovernedCall::render$"], "pipeline"),
    "telemetry": (
        [
            r"^wardgate_gateway::governed_call::report_outcome$",
            r"^wardgate_gateway::governed_call::description::Description<R>::open_span$",
        ],
        "pipeline",
    ),
    "store": (
        [
            r"^wardgate_audit::writer::WriterTask::run" + CLOSURE,
            r"^<sqlx_sqlite::connection::execute::ExecuteIter as .*Iterator>::next$",
        ],
        None,
    ),
}

# The first matching entry determines the group of a function.
PARTS = [
    ("copying and clearing memory", r"^__mem(cpy|move|set)|^mem(cpy|move|set)\b"),
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


def read_counts(path):
    """For each function: its own instructions, the inclusive instructions, and the number of calls (callgrind format of
    valgrind 3.19)."""
    names, own, whole, calls = {}, collections.Counter(), collections.Counter(), collections.Counter()
    function = called = None
    of_call = False
    named = re.compile(r"^(c?fn)=\((\d+)\)(?: (.*))?$")
    for line in open(path, errors="replace"):
        if line[:1] in "0123456789+-*":
            # The line after a call has the instructions of the callee, which are not the function's own.
            instructions = int(line.split()[1])
            whole[function] += instructions
            if not of_call:
                own[function] += instructions
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
    return own, whole, calls


def stages(whole, good):
    """Instructions of one call by stage. It is an error if a function with which a stage begins does not exist any more."""
    found = {}
    for name, (patterns, _) in STAGES.items():
        functions = set()
        for pattern in patterns:
            fitting = {function for function in whole if re.search(pattern, function)}
            if not fitting:
                sys.exit(f"stage {name}: no function is called that fits {pattern}; name the new one in deploy/load/instructions.py")
            functions |= fitting
        found[name] = sum(whole[function] for function in functions) / good
    by_stage = dict(found)
    for name, (_, parent) in STAGES.items():
        if parent:
            by_stage[parent] -= found[name]
    return {name: round(instructions) for name, instructions in by_stage.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the binary under test, with the names of its functions")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data and callgrind's output")
    parser.add_argument("--seconds", type=int, default=20, help="seconds of calls that are counted")
    parser.add_argument("--era", choices=["modern", "legacy"], default="modern", help="version of the protocol, as of `wardgate bench`")
    parser.add_argument("--functions", type=int, default=0, help="so many functions with the most instructions of their own, too")
    parser.add_argument("--write-budget", action="store_true", help="what is measured becomes the budget")
    arguments = parser.parse_args()
    if arguments.write_budget and arguments.era != "modern":
        parser.error("the budget is that of the modern protocol")
    data = arguments.out / "instructions"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    shutil.copytree(pathlib.Path(__file__).parent / "echo", data / "echo")

    server = Process(data / "server.log", [arguments.fixture, "--json"])
    callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={data}/callgrind.out"]
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--config", data / "echo/wardgate.yaml"]
    gateway = Process(data / "up.log", [*callgrind, *words], ECHO_URL=server.url, **ANY_PROCESSOR)
    token = data / "token"
    token.write_text(make_token(arguments.wardgate, data, "--sub", "ada", "--role", "Caller"))

    def bench(seconds):
        words = [arguments.wardgate, "bench", "--url", gateway.url, "--tool", "echo__greet", "--args", '{"name":"Ada"}', "--output", "json"]
        words += ["--connections", "1", "--warm-up", "0", "--seconds", str(seconds), "--era", arguments.era, "--token-file", token]
        return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)["good"]

    def measure(number):
        # The dump also sets the counts to zero.
        control_callgrind(gateway, "instrumentation", "on")
        good = bench(arguments.seconds)
        control_callgrind(gateway, "instrumentation", "off")
        control_callgrind(gateway, "dump")
        own, whole, calls = read_counts(data / f"callgrind.out.{number}")
        show_parts(own, calls, good, arguments.functions)
        return stages(whole, good)

    bench(3)
    for number in range(1, MEASUREMENTS + 1):
        measured = measure(number)
        if arguments.write_budget:
            BUDGET.write_text(json.dumps(measured, indent=2) + "\n")
        is_kept = show_stages(measured, json.loads(BUDGET.read_text()))
        # The budget applies to the modern protocol. Calls with the legacy protocol cost nearly the same.
        if is_kept or arguments.era != "modern":
            break
    else:
        sys.exit(f"A call takes more than {TOLERANCE:.0%} over the budget. Take instructions away, or say why it costs more and write the budget anew with --write-budget.")
    gateway.stop()
    server.stop()


def show_stages(measured, budget):
    """Prints counts and budget. Returns whether the counts are within the budget."""
    print(f"{'measured':>12} {'budget':>12}  stage")
    for name, instructions in measured.items():
        print(f"{instructions:>12,} {budget.get(name, 0):>12,}  {name}")
    total, allowed = sum(measured.values()), sum(budget.get(name, 0) for name in measured)
    print(f"{total:>12,} {allowed:>12,}  all stages ({total / allowed - 1:+.1%})")
    return total <= allowed * (1 + TOLERANCE)


def show_parts(own, calls, good, functions):
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
