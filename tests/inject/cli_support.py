"""What the tests of the command line share. CLI_TEST_TOOL, CLI_TEST_WRITER and CLI_TEST_BUILD come from ctest."""
import os
import pathlib
import subprocess
import tempfile
import unittest

TOOL = os.environ.get("CLI_TEST_TOOL", "gpuflight")
WRITER = os.environ.get("CLI_TEST_WRITER", "cli_log_writer")
BUILD = pathlib.Path(os.environ.get("CLI_TEST_BUILD", "."))
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def environment(**changes):
    """Ours without anything that would change what the tool does; None takes a variable out."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("GPUFLIGHT_", "CUDA_", "NVTX_", "LD_PRELOAD", "NO_COLOR", "COLUMNS"))}
    for name, value in changes.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = str(value)
    return kept


def tool(*arguments, env=None, cwd=None, input=None, timeout=120):
    return subprocess.run([TOOL, *map(str, arguments)], env=env or environment(), cwd=cwd, input=input,
                          capture_output=True, text=True, errors="surrogateescape", timeout=timeout)


def write_log(path, *options):
    """Writes a log with the recorder's own encoder and sink, returns its path."""
    done = subprocess.run([WRITER, str(path), *map(str, options)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return pathlib.Path(done.stdout.strip())


class FolderTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="gpuflight-cli-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
