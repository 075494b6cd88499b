"""What `braid-tune --launch` may start: runs braid-run with two ranks. Usage: launcher.py [wrong=NAME] [fail=NAME] braid-run train P.braid ..;
of the program NAME the losses come out a thousandth larger, or the run fails.
"""
import json
import pathlib
import subprocess
import sys


def main(arguments):
    first = next(i for i, argument in enumerate(arguments) if "=" not in argument)
    told, command = dict(argument.split("=") for argument in arguments[:first]), arguments[first:]
    program = pathlib.Path(command[2])
    if told.get("fail") == program.name:
        sys.stderr.buffer.write(b"starting\nlauncher: error: node 7 is gone, \xff\nbye\n")  # what a child prints may be no UTF-8
        return 3
    code = subprocess.run([*command, "--ranks=2"]).returncode
    if told.get("wrong") == program.name:
        metrics = pathlib.Path(f"{program}.jsonl")
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        metrics.write_text("".join(json.dumps({**step, "loss": 1.001 * step["loss"]}) + "\n" for step in steps))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
