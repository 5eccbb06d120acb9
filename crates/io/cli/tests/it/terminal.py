"""Runs a command under a terminal of its own: what comes in is typed, what goes out is shown."""
import fcntl
import os
import pty
import select
import struct
import sys
import termios

ROWS, COLUMNS = 33, 120

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
sources = [0, terminal]
while terminal in sources:
    for source in select.select(sources, [], [])[0]:
        try:
            data = os.read(source, 65536)
        except OSError:  # nobody has the terminal open any more
            data = b""
        if data:
            os.write(1 if source == terminal else terminal, data)
        else:
            sources.remove(source)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code if code >= 0 else 128 - code)
