"""braid-run serve over HTTP: texts against those of braid-run generate, errors, clients that leave, and its end.

  serve.py WORK [--mesh=M] [--start=COMMAND] [--scores]    (--start: what starts the ranks, as "mpirun -n 2"; otherwise they are threads.
                                                            --scores: only log-probabilities of prompts)

Compiles and trains a model of a linear layer, attention and experts, whose texts are words of a tokenizer with a chat template. Prints a line for each
thing that holds.
"""
import argparse
import atexit
import concurrent.futures
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONTEXT, SEQUENCES = 256, 4
MODEL = {"name": "served", "vocab_size": 512, "d_model": 32, "num_layers": 2, "layer_pattern": "LN", "ffn_pattern": "EF",
         "mixers": {"L": {"kind": "gated_deltanet", "heads": 2, "head_dim": 8}, "N": {"kind": "attention", "heads": 2, "kv_heads": 2, "head_dim": 8}},
         "ffns": {"E": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 16}, "F": {"kind": "dense", "hidden": 32}},
         "train": {"batch": 2, "seq_len": 32}}


def braid(command, *arguments):
    """A command of the ranks."""
    return [*START, "braid-run", command, "P.braid", "--checkpoint", "C", *arguments, *RANKS]


def run(*command, code=0):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, f"{command}: status {done.returncode}: {done.stderr}"
    return done


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(braid("serve", "--port=0", *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(lambda: self.process.poll() is None and self.process.terminate())  # where something below does not hold
        line = self.process.stdout.readline()
        found = re.match(r"(\S+) on http://127\.0\.0\.1:(\d+)/v1: 4 texts at a time, each of 256 tokens", line)
        assert found, line + self.process.stderr.read()
        self.name, self.port = found[1], int(found[2])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        """-> status, headers, body"""
        connection = self.connect()
        connection.request(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), headers or {})
        answer = connection.getresponse()
        result = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return result

    def text(self, path, **body):
        status, _, answer = self.ask("POST", path, body)
        assert status == 200, answer
        if not body.get("stream"):
            choice = json.loads(answer)["choices"][0]
            return choice["text"] if "text" in choice else choice["message"]["content"], json.loads(answer)
        events = answer.split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-2]]
        return "".join(part["text"] if "text" in part else part["delta"].get("content", "") for part in parts), parts

    def metric(self, name):
        return float(re.search(rf"^braid_{name} (\S+)$", self.ask("GET", "/metrics")[2], re.MULTILINE)[1])

    def wait_for(self, name, value):
        end = time.time() + 60
        while self.metric(name) != value:
            assert time.time() < end, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGUSR1 if START else signal.SIGTERM)  # which mpirun hands on
        assert self.process.wait(timeout=60) == 0, self.process.stderr.read()
        said = self.process.stderr.read().removeprefix("mpirun: Forwarding signal 10 to job\n")
        assert said == "", said


def generated(prompts, count, *flags):
    with open("prompts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
    out = run(*braid("generate", "--prompts", "prompts.jsonl", f"--max-tokens={count}", *flags)).stdout
    return [json.loads(line)["text"] for line in out.splitlines()]


PROMPTS = ["the quick", "a", "lazy dogs jump over the lazy fox " * 3, "over", "jumps fox the", "one two three " * 9, "q", "the the the"]


def check_texts(server):
    """Many at once, every second one as a stream."""
    drawn = ["--temperature=0.8", "--top-k=40", "--seed=5"]
    wanted = generated(PROMPTS, 24, *drawn)

    def ask(i):
        return server.text("/v1/completions", model=server.name, prompt=PROMPTS[i % 8], max_tokens=24, temperature=0.8, top_k=40, seed=5 + i % 8, stream=i % 2 == 1)[0]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(ask, range(24)))
    assert texts == wanted * 3, (texts, wanted)
    print("texts: those of generate")
    several = server.text("/v1/completions", prompt=[PROMPTS[0], PROMPTS[1]], max_tokens=24, temperature=0.8, top_k=40, seed=5)[1]
    assert [choice["text"] for choice in several["choices"]] == wanted[:2]
    tokens = [json.loads(line)["tokens"] for line in run("braid-run", "tokenize", "--tokenizer", "C/step-00000003/tokenizer.json", "--prompts", "prompts.jsonl").stdout.splitlines()]
    text, whole = server.text("/v1/completions", prompt=tokens[2], max_tokens=24, temperature=0.8, top_k=40, seed=7, return_token_ids=True, echo=True, n=2)
    assert text == PROMPTS[2] + wanted[2] and len(whole["choices"][0]["token_ids"]) == 24 and whole["choices"][1]["text"] != text
    assert whole["usage"]["prompt_tokens"] == len(tokens[2]) and whole["usage"]["completion_tokens"] == 48
    print("texts: several prompts, tokens, echo")
    away = {"temperature": 0.9, "seed": 6, "min_p": 0.02, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": {"5": -100, "17": 2}}
    flags = ["--temperature=0.9", "--seed=6", "--min-p=0.02", "--repetition-penalty=1.2", "--presence-penalty=0.5", "--frequency-penalty=0.25", "--logit-bias=5:-100,17:2"]
    alone = generated([PROMPTS[2]], 24, *flags)[0]
    assert server.text("/v1/completions", prompt=PROMPTS[2], max_tokens=24, **away)[0] == alone != wanted[2], alone
    print("texts: away from what was read and drawn")
    greedy = generated(PROMPTS[:1], 40)[0]
    stop = re.search(r"(?<=.)[a-z]{2}", greedy, re.DOTALL)[0]
    for stream in (False, True):
        text, answer = server.text("/v1/completions", prompt=PROMPTS[0], max_tokens=40, temperature=0, stop=["no such", stop], stream=stream)
        assert text == greedy[:greedy.index(stop)], (text, greedy)
        assert (answer[-1] if stream else answer["choices"][0])["finish_reason"] == "stop"
    likely = server.text("/v1/completions", prompt=PROMPTS[0], max_tokens=5, temperature=0, logprobs=3)[1]["choices"][0]["logprobs"]
    assert all(max(top.values()) == own and len(top) <= 3 for top, own in zip(likely["top_logprobs"], likely["token_logprobs"])) and len(likely["tokens"]) == 5
    print("texts: stops, log-probabilities")


def check_scores(server):
    """A text scores what it was drawn with, many at once; and what else is asked about tokens."""
    def drawn(i):
        prompt = [(7 * i + j * j) % 480 for j in range(1 + 9 * i)]
        answer = server.text("/v1/completions", prompt=prompt, max_tokens=45, temperature=i % 2, seed=i, logprobs=1, return_token_ids=True, ignore_eos=True)[1]
        choice = answer["choices"][0]
        return prompt, choice["token_ids"], choice["logprobs"]

    def score(tokens, count, **more):
        answer = server.text("/v1/completions", prompt=tokens, max_tokens=count, temperature=0, logprobs=1, echo=True, return_token_ids=True, **more)[1]
        return answer, answer["choices"][0]["logprobs"]

    def difference(scored, likely):
        count = len(likely["tokens"])
        assert scored["tokens"][-count:] == likely["tokens"] and scored["text_offset"][0] == 0, (scored, likely)
        tops = list(zip(scored["top_logprobs"][-count:], likely["top_logprobs"]))
        assert all(top.keys() == other.keys() for top, other in tops), tops
        numbers = [abs(a - b) for a, b in zip(scored["token_logprobs"][-count:], likely["token_logprobs"])]
        return max(numbers + [abs(a - b) for top, other in tops for a, b in zip(top.values(), other.values())])

    def both(i):
        prompt, tokens, likely = drawn(i)
        answer, scored = score(prompt + tokens, 0)
        assert answer["usage"]["completion_tokens"] == 0 and answer["choices"][0]["finish_reason"] == "length"
        assert scored["token_logprobs"][0] is None and scored["top_logprobs"][0] is None and len(scored["tokens"]) == len(prompt) + 45
        return difference(scored, likely)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        worst = max(pool.map(both, range(17)))
    assert worst < 1e-4, worst
    # A token is drawn behind a prompt that is scored as behind one that is not; of one token there is nothing to say.
    prompt, tokens, likely = drawn(4)
    answer, scored = score(prompt + tokens[:-1], 1)
    assert answer["choices"][0]["token_ids"] == tokens[-1:] and difference(scored, likely) < 1e-4
    assert score(prompt[:1], 0)[1]["token_logprobs"] == [None] and len(score(prompt[:1], 1)[1]["tokens"]) == 2
    text, parts = server.text("/v1/completions", prompt="the quick fox", max_tokens=3, temperature=0, logprobs=0, echo=True, stream=True)
    shown = [name for part in parts if part["logprobs"] for name in part["logprobs"]["tokens"]]
    assert text.startswith("the quick fox") and "".join(shown) == text, (text, shown)
    several = server.text("/v1/completions", prompt=[PROMPTS[0], PROMPTS[2]], max_tokens=0, n=2, logprobs=1, echo=True)[1]["choices"]
    assert [choice["text"] for choice in several] == [PROMPTS[0]] * 2 + [PROMPTS[2]] * 2 and several[0]["logprobs"] == several[1]["logprobs"]
    # Scores that come while others of the same request are waited for.
    for i in range(40):
        prompts = [[(j * i) % 480 for j in range(1 + 40 * k % 90)] + [k] for k in range(32)]
        choices = server.text("/v1/completions", prompt=prompts, max_tokens=i % 2, logprobs=1, echo=True)[1]["choices"]
        for prompt, choice in zip(prompts, choices):
            numbers = choice["logprobs"]["token_logprobs"]
            assert len(numbers) == len(prompt) + i % 2 and [number is None for number in numbers] == [True] + [False] * (len(numbers) - 1), numbers
    print("scores: those that texts were drawn with")

    def asked(path, **body):
        status, _, answer = server.ask("POST", path, body)
        assert status == 200, answer
        return json.loads(answer)

    tokens = asked("/tokenize", prompt="the quick fox", add_special_tokens=False)
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == CONTEXT and asked("/detokenize", tokens=tokens["tokens"]) == {"prompt": "the quick fox"}
    chat = asked("/tokenize", messages=[{"role": "user", "content": "the fox"}])["tokens"]
    assert "the fox" in asked("/detokenize", tokens=chat)["prompt"] and len(chat) > 4
    status, _, info = server.ask("GET", "/tokenizer_info")
    assert status == 200 and json.loads(info).keys() >= {"eos_token", "bos_token", "vocab_size"}, info
    text = "the \u20ac fox"
    listed = asked("/v1/completions", prompt=text, max_tokens=0, logprobs=0, echo=True)["choices"][0]["logprobs"]
    assert listed["text_offset"][0] == 0 and text[listed["text_offset"][-1] :] == listed["tokens"][-1], listed
    print("tokens: to and fro")


def check_chats(server):
    messages = [{"role": "user", "content": "the fox"}]
    wanted = generated([messages], 20)[0]
    text, answer = server.text("/v1/chat/completions", messages=messages, max_tokens=20, temperature=0)
    assert text == wanted and answer["choices"][0]["message"]["role"] == "assistant", (text, wanted)
    text, parts = server.text("/v1/chat/completions", messages=messages, max_completion_tokens=20, temperature=0, stream=True)
    assert text == wanted and parts[0]["delta"]["role"] == "assistant" and parts[-1]["finish_reason"] in ("length", "stop")
    print("chats: those of generate")


def check_reuse(server):
    """A text goes on from what its sequence has read: its answer is the same."""
    def ask(server, prompt):
        answer = server.text("/v1/completions", prompt=prompt, max_tokens=12, temperature=0, return_token_ids=True)[1]
        return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    prompt = [5, 6, 7] * 9
    begun = ask(server, prompt)[0]
    goes_on = ask(server, prompt + begun + [9, 8, 7])
    assert goes_on[1] == 38 and server.metric("prompt_tokens_reused_total") >= 38, goes_on
    other = Server("--no-prefix-reuse")
    assert ask(other, prompt) == (begun, 0) and ask(other, prompt + begun + [9, 8, 7]) == (goes_on[0], 0)
    # What two prompts began with the third one need not read, and what was asked before only its last call.
    system = [(11 * i + 3) % 480 for i in range(150)]
    asked = [system + question for question in ([1, 2] * 9, [3, 4] * 5, [5, 6] * 7, [1, 2] * 9)]
    answers = [ask(server, prompt) for prompt in asked]
    assert [ask(other, prompt)[0] for prompt in asked] == [tokens for tokens, _ in answers]
    known = [count for _, count in answers]
    assert known[:2] == [0, 0] and 100 < known[2] <= 150 and 150 < known[3] < len(asked[3]), known
    several = server.text("/v1/completions", prompt=asked[0], max_tokens=2, n=4)[1]["usage"]
    assert 0 < several["prompt_tokens_details"]["cached_tokens"] < several["prompt_tokens"] == len(asked[0]), several
    assert server.metric("states_kept") > 1 and other.metric("states_kept") == 0
    other.stop()
    print("reuse: 38 of 42 tokens")


def check_errors(server):
    def fails(status, words, method, path, body=None):
        got, _, answer = server.ask(method, path, body)
        message = json.loads(answer)["error"]["message"]
        assert got == status and words in message, (got, message)

    fails(404, "there is no such place", "GET", "/v1/nothing")
    fails(404, "there is no such place", "GET", "/v1/completions")
    fails(404, "model: there is no 'other'; valid: served", "POST", "/v1/completions", {"model": "other", "prompt": "a"})
    fails(400, "the body is no JSON, at byte 2", "POST", "/v1/completions", "{")
    fails(400, "the body is no JSON", "POST", "/v1/completions", b'{"prompt": "\xff"}')
    fails(400, "need a context of 267, but the program was compiled for 256", "POST", "/v1/completions", {"prompt": "a", "max_tokens": 267})
    fails(400, "token 1 is 512, but the vocabulary has 0 to 511", "POST", "/v1/completions", {"prompt": [1, 512]})
    fails(400, "token 0 is 18446744073709551615", "POST", "/v1/completions", '{"prompt": [18446744073709551615]}')
    fails(400, "messages is 5; valid: a list", "POST", "/v1/chat/completions", {"messages": 5})
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl says of what it sends
    assert server.ask("POST", "/tokenize", {"prompt": "a" * 20000}, form)[0] == 200
    fails(413, "the body is longer than 1114112 bytes", "POST", "/v1/completions", b" " * 1114113)
    fails(400, "logprobs: of a prompt's tokens, which echo asks for, there is the likeliest beside them, and 2 are asked for; valid: 0 and 1", "POST", "/v1/completions", {"prompt": "a", "echo": True, "logprobs": 2})
    fails(400, "max_tokens: is 0, which is for echo with logprobs; valid: 1 and more", "POST", "/v1/completions", {"prompt": "a", "echo": True, "max_tokens": 0})
    fails(400, "prompt: is missing", "POST", "/tokenize", {})
    fails(400, "tokens: number 1 is -1; valid: 0 to ", "POST", "/detokenize", {"tokens": [1, -1]})
    fails(400, "tokens: number 1: is 1.5; valid: token numbers", "POST", "/detokenize", {"tokens": [1, 1.5]})
    fails(400, "tokens: is 5; valid: token numbers", "POST", "/detokenize", {"tokens": 5})
    fails(404, "model: there is no 'x'", "GET", "/v1/models/x")
    fails(400, "messages is empty", "POST", "/v1/chat/completions", {"messages": []})
    fails(400, "temprature: is not known here", "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "temprature": 1})
    status, _, answer = server.ask("POST", "/v1/completions", b"{}", {"Content-Encoding": "gzip"})
    assert status == 415 and "Content-Encoding: is 'gzip'; valid: identity" in answer, answer
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b'POST /v1/completions HTTP/1.0\r\nContent-Length: 32\r\n\r\n{"prompt": "a", "max_tokens": 3}')
        old = raw.makefile("rb").read()
    assert b"Content-Length: " in old and b"Transfer-Encoding" not in old and json.loads(old.split(b"\r\n\r\n")[1])["usage"]["completion_tokens"] == 3, old
    for noise in (b"\x00\xff" * 300, b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(noise)
    assert server.ask("GET", "/health")[:1] == (200,) and json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"] == server.name
    print("errors: named")


def check_leaving(server):
    ended, drawn = server.metric("texts_total"), server.metric("generated_tokens_total")
    for stream in (True, False):
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 250, "stream": stream, "ignore_eos": True, "n": 40}))
        server.wait_for("texts_running", 4)
        assert server.metric("texts_waiting") > 0
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        server.wait_for("texts_waiting", 0)
        server.wait_for("texts_running", 0)
    assert server.metric("texts_total") == ended + 80 and server.metric("generated_tokens_total") < drawn + 40 * 250
    print("clients that leave: their texts end")


def check_end():
    server = Server("--max-texts=40", "--model-name=other/name", "--no-prefix-reuse")
    assert server.name == "other/name"
    busy = run("braid-run", "serve", "P1.braid", "--checkpoint", "C", f"--port={server.port}", code=1).stderr
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use" in busy, busy
    many = {"prompt": "a", "max_tokens": 240, "ignore_eos": True, "n": 40}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.text, "/v1/completions", **many)
        server.wait_for("texts_running", 4)
        # As long as one of them is left there is no room for as many.
        status, headers, answer = server.ask("POST", "/v1/completions", many)
        assert status == 503 and headers["Retry-After"] == "1" and "40 texts are in the making" in answer, answer
        server.stop()
        assert [choice["finish_reason"] for choice in asked.result()[1]["choices"]] == ["length"] * 40
    print("end: texts that have begun are written")


parser = argparse.ArgumentParser()
parser.add_argument("work")
parser.add_argument("--mesh", default="")
parser.add_argument("--start", default="")
parser.add_argument("--scores", action="store_true")
arguments = parser.parse_args()
START = arguments.start.split()
WORLD = math.prod(int(size) for axis, size in (part.split("=") for part in arguments.mesh.split(",") if part) if axis in ("dp", "sp", "tp"))
RANKS = [f"--ranks={WORLD}"] if WORLD > 1 and not START else []
os.chdir(arguments.work)
with open("m.json", "w", encoding="utf-8") as file:
    json.dump(MODEL, file)
with open("text.txt", "w", encoding="utf-8") as file:
    file.write("the quick brown fox jumps over the lazy dog. " * 60)
os.makedirs("T", exist_ok=True)
shutil.copy(os.path.join(ROOT, "test", "tokenizers", "qwen.json"), "T/tokenizer.json")
shutil.copy(os.path.join(ROOT, "test", "templates", "tokenizer_config.json"), "T")
shutil.copy(os.path.join(ROOT, "test", "templates", "plain.jinja"), "T/chat_template.jinja")
flags = [f"--context-len={CONTEXT}", f"--decode-batch={SEQUENCES}"]
run("braid-compile", "m.json", "-o", "P1.braid", *flags)
run("braid-run", "train", "P1.braid", "--data", "text.txt", "--tokenizer", "T", "--steps=3", "--checkpoint-dir", "C", "--lr=0.01")
run("braid-compile", "m.json", "-o", "P.braid", *flags, *([f"--mesh={arguments.mesh}"] if arguments.mesh else []))
served = Server()
check_scores(served)
if arguments.scores:
    served.stop()
    sys.exit()
check_texts(served)
check_chats(served)
check_reuse(served)
check_errors(served)
check_leaving(served)
served.stop()
check_end()
