"""What the programs share: worker processes that die with them, and waiting."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30
POLL_S = 0.01


def until(what, holds):
    """Waits until `holds` returns something true, and returns that."""
    end = time.monotonic() + PATIENCE_S
    while not (result := holds()):
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(POLL_S)
    return result


@contextlib.contextmanager
def worker(module, *arguments, **environment):
    """A process `python -m module`, which the kernel kills with this one, however this one ends.
    What it logged is shown if the test fails."""
    here = os.path.dirname(__file__)
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": here, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-5_000:])
            raise
        finally:
            process.kill()
            process.wait()
