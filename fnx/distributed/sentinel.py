"""The sentinel of a rank: a shell that outlives it, and says where it was when it was killed.

Who is killed tells nobody, and what MPI says of it names a process and no line. The watch of a rank writes
where its program is into a pipe; at the end of the pipe, unless the last word is that all is well, the
sentinel prints it. MPI then kills the others, too, sooner than a sentinel may wake: so the first few of a
machine speak, each with the process that MPI names. Where a rank has said why it ends the job, none does.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from typing import Any

_SCRIPT = """
read -r who; read -r mark
while read -r at; do last=$at; done
[ "$last" = bye ] && exit
for k in 1 2 3 4 5 6 7 8; do
    [ -d "$mark" ] && break
    mkdir "$mark-$k" 2>/dev/null || continue
    echo "fnx.distributed: $who was killed; it was last seen $last" >&2
    break
done
exec 2>&-; sleep 5; rmdir "$mark" "$mark"-*
"""


class Sentinel:
    """Started before MPI is, which dislikes processes that split later; `meet` tells it whose it is."""

    def __init__(self) -> None:
        self.pipe: Any = None
        self.mark = self.last = ""
        shell = shutil.which("sh")
        if shell is not None:
            null = subprocess.DEVNULL
            self.process = subprocess.Popen(
                [shell, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=null, start_new_session=True
            )
            self.pipe = self.process.stdin

    def meet(self, rank: int, size: int, job: str) -> None:
        """Tell whose sentinel it is; `job` is known to the ranks of one job only."""
        self.mark = os.path.join(tempfile.gettempdir(), f"fnx-{job}")
        self._write(f"rank {rank} of {size} (process {os.getpid()})")
        self._write(self.mark)
        self.see("before its first line")

    def see(self, place: str) -> None:
        """Tell where the program is."""
        if place != self.last:
            self.last = place
            self._write(place)

    def leave(self) -> None:
        """Tell that all is well."""
        self._write("bye")

    def speak_no_more(self) -> None:
        """Let no sentinel of this job speak: this rank ends it, and has said why."""
        with contextlib.suppress(OSError):
            os.mkdir(self.mark)

    def _write(self, line: str) -> None:
        if self.pipe is None:
            return
        try:
            self.pipe.write(line.encode() + b"\n")
            self.pipe.flush()
        except OSError:  # somebody killed the sentinel
            self.pipe = None


__all__ = ["Sentinel"]
