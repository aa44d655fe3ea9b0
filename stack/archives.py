"""Class archives (AppCDS): Kafka and Connect start in half the time from them.

Most of a JVM's start goes into loading and checking some ten thousand classes.
Each program is run once with recording on and leaves an archive; later starts
map it. An archive fits one Java and one set of jars: Java ignores one that
does not fit, so a missing or stale archive costs time and nothing else.
"""

from __future__ import annotations

import shutil

from stack import java, process, servers
from stack.errors import StackError
from stack.home import Home
from stack.paths import LOCAL
from stack.waiting import Stopwatch, progress, say

RECORDED = ("connect", "kafka")
WRITE_SECONDS = 60.0


def make() -> bool:
    """Record the archives, unless that was done or tried before; False when there was nothing to do."""
    folder = java.archive_folder()
    if folder.is_dir():
        return False
    watch = Stopwatch()
    fresh = java.recording_folder()
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    home = Home(LOCAL / "recording", recording=True)
    home.wipe()
    try:
        with progress(lambda: "class archives for faster starts"), home.exclusively():
            _record(home)
    except StackError as error:
        say(f"  class archives: not made, starts stay slower ({str(error).splitlines()[0]})")
        shutil.rmtree(fresh)
        fresh.mkdir()
    finally:
        for name in RECORDED:
            servers.kill(home, name)
        home.wipe()
    # Seen whole or not at all: a JVM that maps half an archive would crash.
    fresh.rename(folder)
    say(f"  class archives: {len(list(folder.glob('*.jsa')))} ({watch.seconds:.0f} s)")
    return True


def _record(home: Home) -> None:
    for name in reversed(RECORDED):
        servers.launch(home, name)
    for name in reversed(RECORDED):
        servers.wait_ready(home, name)
    for name in RECORDED:
        if not process.stop(home.pid_file(name), servers.SERVERS[name].stop_signal, WRITE_SECONDS):
            raise StackError(f"{name}: did not end within {WRITE_SECONDS:.0f} s")
