#!/usr/bin/env python3
"""Times braid-run serve against braid-run generate, and a chat that goes on against one that is read again.

  test/benchmark/serve.py [--build-dir=build] [--model=test/benchmark/models/hybrid-256.json] [--rounds=5] [--scores] [-o F.md]    (--scores: only the last of these)

First texts are compared: those of the server are those of generate. Then, in turn, `--rounds` times:
  generate   all prompts in one command, as many at a time as the program has sequences: what the same rounds give without HTTP
  serve      as many clients as sequences, each asks for its next text when it has one; texts whole, and as streams
  one        one client
and the time until the first token, with what was read before and without (--no-prefix-reuse), of a chat whose history grows, and of the third question behind
a system message; and that of questions of which each of four answers is scored (echo with logprobs, as lm-evaluation-harness asks), behind examples that all
questions share: their numbers are compared.
Medians and spread; the load is that of clients on the same cores.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEQUENCES, CONTEXT, TEXTS, PROMPT, TOKENS = 8, 8192, 64, 100, 128
HISTORIES = (500, 2000, 7000)
QUESTIONS, ANSWERS = 24, 4


class Server:
    def __init__(self, run, *flags):
        self.process = subprocess.Popen([run, "serve", "P.braid", "--checkpoint", "C", "--port=0", *flags], stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)/v1", self.process.stdout.readline())[1])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def text(self, prompt, seed, stream=False, tokens=TOKENS):
        """-> its text, seconds until its first token"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        begin = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0.8, "seed": seed, "stream": stream, "return_token_ids": not stream}))
        answer = connection.getresponse()
        first = time.perf_counter() - begin  # the head comes with the first token
        body = answer.read().decode()
        connection.close()
        if not stream:
            choice = json.loads(body)["choices"][0]
            return (choice["text"] if isinstance(prompt, str) else choice["token_ids"]), first
        return "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in body.split("\n\n")[:-2]), first

    def scores(self, prompts):
        """The log-probabilities of prompts' tokens, SEQUENCES clients at a time."""
        def score(prompt):
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}))
            numbers = json.loads(connection.getresponse().read())["choices"][0]["logprobs"]["token_logprobs"]
            connection.close()
            return numbers[1:-1]

        with concurrent.futures.ThreadPoolExecutor(SEQUENCES) as pool:
            return list(pool.map(score, prompts))

    def texts(self, prompts, clients, stream):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return list(pool.map(lambda i: self.text(prompts[i], i, stream), range(len(prompts))))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", default="build")
    parser.add_argument("--model", default="test/benchmark/models/hybrid-256.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("-o", default="")
    arguments = parser.parse_args()
    run = os.path.join(ROOT, arguments.build_dir, "bin", "braid-run")
    model = os.path.join(ROOT, arguments.model)
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read().encode("ascii", "replace").decode()
    lines = []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = re.search(r"model name\s*: (.*)", file.read())
    say(f"# Serving\n\ntest/benchmark/serve.py: {arguments.model}, f32, {os.cpu_count()} cores of {cpu[1] if cpu else 'a CPU'}, {time.strftime('%Y-%m-%d')}, commit {commit}, {arguments.rounds} rounds\n")
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        with open("text.txt", "w", encoding="ascii") as file:
            file.write(text)
        subprocess.run([run.replace("braid-run", "braid-compile"), model, "-o", "P.braid", f"--decode-batch={SEQUENCES}", f"--context-len={CONTEXT}"], check=True)
        subprocess.run([run, "train", "P.braid", "--data", "text.txt", "--steps=20", "--checkpoint-dir", "C"], check=True, stdout=subprocess.DEVNULL)
        prompts = [text[i * 97:i * 97 + PROMPT] for i in range(TEXTS)]
        with open("prompts.jsonl", "w", encoding="ascii") as file:
            file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)

        def generate():
            done = subprocess.run([run, "generate", "P.braid", "--checkpoint", "C", "--prompts", "prompts.jsonl", f"--max-tokens={TOKENS}", "--temperature=0.8"], check=True,
                                  capture_output=True, text=True)
            rates = re.search(r"prompt: (\d+) tokens, (\S+) tokens/s; generated: (\d+) tokens, (\S+) tokens/s", done.stderr)
            return [json.loads(line)["text"] for line in done.stdout.splitlines()], int(rates[1]) / float(rates[2]) + int(rates[3]) / float(rates[4])

        server, again = Server(run), Server(run, "--no-prefix-reuse")
        wanted = generate()[0]
        same = [made == text for stream in (False, True) for (made, _), text in zip(again.texts(prompts, SEQUENCES, stream), wanted)]
        say(f"{sum(same)} of {len(same)} texts are those of generate (rounding may turn a draw where the others' rows are others).")
        if sum(same) < 0.9 * len(same):
            sys.exit("too many texts are others: not timed")
        times = {}

        def add(name, seconds):
            times.setdefault(name, []).append(seconds)

        for number in range(0 if arguments.scores else arguments.rounds):
            add("generate", generate()[1])
            for name, clients, stream in (("serve", SEQUENCES, False), ("serve, streams", SEQUENCES, True), ("serve, twice as many clients", 2 * SEQUENCES, False)):
                begin = time.perf_counter()
                first = [first for _, first in again.texts(prompts, clients, stream)]
                add(name, time.perf_counter() - begin)
                add(name + " first", statistics.median(first))
            begin = time.perf_counter()
            again.texts(prompts[:8], 1, False)
            add("one client", (time.perf_counter() - begin) * TEXTS / 8)
            for length in HISTORIES:
                history = list((text * 9)[:length].encode())
                for name, which in (("goes on", server), ("read again", again)):
                    answer = which.text(history, 1, tokens=32)[0]
                    add(f"{name} {length}", which.text(history + answer + list(b" and then what is to be said?"), 2, tokens=4)[1])

                system = list((str(number) + text * 9)[:length].encode())
                for question in (b"What?", b"And how?", b"But why does it?"):
                    for name, which in (("third", server), ("third read", again)):
                        first = which.text(system + list(question), 3, tokens=4)[1]
                        if question.startswith(b"But"):
                            add(f"{name} {length}", first)

        def questions(length, number):
            """Prompts of tokens: examples, a question of 80, an answer of 10."""
            part = lambda first, count: list((text * 9)[first : first + count].encode())
            return [part(number, length) + part(1000 + 53 * q, 80) + part(4000 + 37 * (ANSWERS * q + a), 10) for q in range(QUESTIONS) for a in range(ANSWERS)]

        for number in range(arguments.rounds):
            for length in HISTORIES:
                asked = questions(length, 7 * number)
                made = []
                for name, which in (("scored", server), ("scored read", again)):
                    begin = time.perf_counter()
                    made.append(which.scores(asked))
                    add(f"{name} {length}", (time.perf_counter() - begin) / len(asked))
                worst = max(abs(a - b) for one, other in zip(*made) for a, b in zip(one, other))
                if worst > 1e-3:
                    sys.exit(f"scores differ by {worst}")

        def median(name):
            return statistics.median(times[name])

        if not arguments.scores:
            say(f"\n{TEXTS} texts of {PROMPT} + {TOKENS} tokens, {SEQUENCES} at a time\n")
            say("| | tokens/s | of generate | first token, ms | spread |")
            say("|---|---|---|---|---|")
        for name in () if arguments.scores else ("generate", "serve", "serve, streams", "serve, twice as many clients", "one client"):
            first = f"{1e3 * median(name + ' first'):.1f}" if name + " first" in times else ""
            spread = (max(times[name]) - min(times[name])) / median(name)
            say(f"| {name} | {TEXTS * TOKENS / median(name):.0f} | {median('generate') / median(name):.2f} | {first} | {100 * spread:.0f} % |")
        for what, how, known, read in (("history", "first token", "goes on", "read again"), ("system message, third question", "first token", "third", "third read"),
                                       ("examples before scored answers", "an answer", "scored", "scored read")):
            if f"{known} {HISTORIES[0]}" not in times:
                continue
            say(f"\n| {what}, tokens | {how}, ms | all read, ms | times as fast |")
            say("|---|---|---|---|")
            for length in HISTORIES:
                on, all_read = median(f"{known} {length}"), median(f"{read} {length}")
                say(f"| {length} | {1e3 * on:.1f} | {1e3 * all_read:.1f} | {all_read / on:.1f} |")
        server.stop()
        again.stop()
    if arguments.o:
        with open(os.path.join(ROOT, arguments.o), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


main()
