"""Drives guided_host: a program under the recorder that does one thing after another as the test says."""
import json
import os
import pathlib
import select
import subprocess
import time

from sim_host import BUILD, HOSTS, SLOW, SimTest, environment

HOST = HOSTS / "guided_host"
TOOL = pathlib.Path(os.environ.get("GPUFLIGHT_TEST_TOOL") or BUILD / "bin" / "gpuflight")
PATIENCE = 20 * SLOW  # seconds for anything that must come


class Guided:
    def __init__(self, folder, *kernels, **variables):
        self.log = folder / "log.ndjson"
        variables.setdefault("GPUFLIGHT_LOG", self.log)
        variables.setdefault("GPUFLIGHT_SIM_DEVICE", "sm_86")
        variables.setdefault("GPUFLIGHT_FLUSH_MS", "10ms")
        preexec = variables.pop("preexec", None)
        command = [str(c) for c in variables.pop("under", [])] + [str(HOST), *kernels]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        cwd=folder, env=environment(**variables), preexec_fn=preexec, bufsize=0)
        self.pid = self.process.pid
        self.rest = b""
        if self.read() != "ready":
            raise AssertionError("not ready")

    def read(self):
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                self.process.kill()
                raise AssertionError(f"no answer; stderr: {self.process.stderr.read()[-2000:]}")
            self.rest += piece
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def tell(self, line):
        """Does not wait for the answer: of what may never come."""
        self.process.stdin.write(line.encode() + b"\n")

    def do(self, *lines):
        """The answer to the last."""
        for line in lines:
            self.tell(line)
            answer = self.read()
        return answer

    def events(self, kind):
        """Of the live log, whole lines only."""
        if not self.log.exists():
            return []
        start = b'{"type":"' + kind.encode() + b'"'
        return [json.loads(line) for line in self.log.read_bytes().split(b"\n")[:-1] if line.startswith(start)]

    def wait_for(self, kind, count=1, **wanted):
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [e for e in self.events(kind) if all(e.get(key) == value for key, value in wanted.items())]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(found)} of {count} {kind} {wanted} came")
            time.sleep(0.01)

    def end(self, line=None):
        """Its own end, after `line` or of its input: (exit code, seconds it took, stderr)."""
        begin = time.monotonic()
        if line is not None:
            self.tell(line)
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        return code, time.monotonic() - begin, self.process.stderr.read()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


class GuidedTest(SimTest):
    def guided(self, *kernels, **variables):
        host = Guided(self.dir, *(kernels or ("k:0.001",)), **variables)
        self.addCleanup(host.close)
        return host

    def in_folder(self, name):
        """What follows goes into a folder of its own."""
        self.root = getattr(self, "root", self.dir)
        self.dir = self.root / name.replace(" ", "_")
        self.dir.mkdir()

    def tool(self, *arguments, expect=0):
        run = subprocess.run([str(TOOL), *map(str, arguments)], capture_output=True, text=True, check=False,
                             timeout=PATIENCE, env=environment(preload=False, sim=False))
        if expect is not None:
            self.assertEqual(run.returncode, expect, (arguments, run.stdout, run.stderr))
        return run
