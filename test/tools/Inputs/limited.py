"""limited.py BYTES [--stdout=FILE] COMMAND ..: runs a command that may write files of so many bytes at most."""
import resource
import signal
import subprocess
import sys

limit = int(sys.argv[1])
command, stdout = sys.argv[2:], None
if command[0].startswith("--stdout="):
    stdout = open(command.pop(0).split("=", 1)[1], "wb")


def restrict():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; a shell does not
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, preexec_fn=restrict, check=False)
sys.stderr.buffer.write(done.stderr)
if done.returncode < 0:
    print(f"{command[0]} ended by {signal.Signals(-done.returncode).name}", file=sys.stderr)
sys.exit(done.returncode != 0)
