"""The command `tidegate`, forked from a process that has imported MLflow: in an interpreter of its own that takes 2 s.

Nothing of ours is imported before the fork: a command finds its modules, variables, folder and streams as it would in
an interpreter of its own. `python` in the same shell is one.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

STREAMS = 3
COMMAND = """\
#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    status = server.recv(1)
sys.exit(status[0] if status else "the command was killed")
"""


@contextmanager
def forked(command: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Let a file be the command as long as the block lasts; `variables` are those of the interpreter."""
    address = f"{command}.socket"
    program = [sys.executable, "-c", f"from {__name__} import serve; serve({address!r})"]
    packages = os.pathsep.join([variables["PYTHONPATH"], str(Path(__file__).parents[2])])
    said = dict(variables) | {"PYTHONPATH": packages, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(program, env=said, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == b"ready\n"
            command.write_text(COMMAND.format(python=sys.executable, address=address), "utf-8")
            command.chmod(0o755)
            yield
        finally:
            server.terminate()


def serve(address: str) -> NoReturn:
    """Fork a process for each command that is asked for."""
    import mlflow.pyfunc  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            caller, _ = listening.accept()
            with caller:
                if os.fork() == 0:
                    _run(caller)


def _run(caller: socket.socket) -> NoReturn:
    """Run the command, tell its status and end, without taking MLflow's thousand modules apart."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(caller, 1, STREAMS)
    with caller.makefile("rb") as said:
        arguments, folder, variables = json.load(said)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["tidegate", *arguments]
    status = 1
    try:
        from tidegate.__main__ import main

        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as an interpreter does
        sys.excepthook(*sys.exc_info())
    else:
        status = 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(bytes([status]))
    os._exit(status)
