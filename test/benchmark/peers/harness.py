#!/usr/bin/env python3
"""lm-evaluation-harness against braid-run serve: what it says of answers, and the same from the tokens' log-probabilities as they are drawn.

  test/benchmark/peers/harness.py [--build-dir=build] [--model=models/tiny-hybrid.json]     (pip install "lm_eval[api]")

Trains a model of bytes for a moment, serves it, and has the harness answer questions of its own making: multiple choice, a text as a whole, a text to go on
with. Nothing is fetched. Log-likelihoods of answers are then computed again, a token at a time, by the program's decode entry: those of which every token is one
of the 20 likeliest, which are all that it names (7 of 36).
"""
import argparse
import http.client
import json
import math
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TASKS = [
    {"task": "choices", "output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{label}}", "metric_list": [{"metric": "acc"}]},
    {"task": "whole", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{question}}", "metric_list": [{"metric": "bits_per_byte"}]},
    {"task": "goes_on", "output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}",
     "generation_kwargs": {"until": ["\n"], "max_gen_toks": 60, "temperature": 0}, "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]},
]
END = 10  # a new line ends a text


def log_probabilities(port, tokens):
    """ln p of every token but the first, as a token that is drawn behind those before it has it; None: 20 others are likelier."""
    numbers = []
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for i in range(1, len(tokens)):
        body = {"prompt": tokens[:i], "max_tokens": 1, "temperature": 0, "logprobs": 20}
        connection.request("POST", "/v1/completions", json.dumps(body))
        top = json.loads(connection.getresponse().read())["choices"][0]["logprobs"]["top_logprobs"][0]
        numbers.append(top.get(chr(tokens[i])))
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", default="build")
    parser.add_argument("--model", default="models/tiny-hybrid.json")
    arguments = parser.parse_args()
    tools = os.path.join(ROOT, arguments.build_dir, "bin")
    with tempfile.TemporaryDirectory() as work:
        line = "The quick brown fox number {} jumps over the lazy dog.\n"
        with open(f"{work}/text.txt", "w", encoding="ascii") as file:
            file.writelines(line.format(i) for i in range(200))
        questions = []
        for i in range(12):
            begin, answer = line.format(i) + line.format(i + 1)[: 24 + i], line.format(i + 1)[24 + i :].rstrip("\n")
            questions.append({"question": begin, "answer": answer, "choices": [" sleeps", answer, answer[:4] + "?"], "label": 1})
        with open(f"{work}/questions.json", "w", encoding="ascii") as file:
            json.dump(questions, file)
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{work}/questions.json"}}, "test_split": "test"}
        for task in TASKS:
            with open(f"{work}/{task['task']}.yaml", "w", encoding="ascii") as file:
                json.dump(task | data, file)  # JSON is YAML
        subprocess.run([f"{tools}/braid-compile", os.path.join(ROOT, arguments.model), "-o", f"{work}/p.braid", "--decode-batch=4"], check=True)
        subprocess.run([f"{tools}/braid-run", "train", f"{work}/p.braid", "--data", f"{work}/text.txt", "--steps=40", "--checkpoint-dir", f"{work}/c"], check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen([f"{tools}/braid-run", "serve", f"{work}/p.braid", "--checkpoint", f"{work}/c", "--port=0", f"--separator={END}"], stdout=subprocess.PIPE, text=True)
        try:
            model, port = re.match(r"(\S+) on http://127\.0\.0\.1:(\d+)/", server.stdout.readline()).groups()
            environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": f"{work}/hf"}
            url = f"http://127.0.0.1:{port}/v1/completions"
            done = subprocess.run([sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", f"model={model},base_url={url},num_concurrent=4,max_length=256",
                                   "--tasks", ",".join(task["task"] for task in TASKS), "--include_path", work, "--log_samples", "--output_path", f"{work}/out"], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr[-3000:])
            print(done.stdout[done.stdout.find("|") :] or done.stderr[-3000:])
            samples = {}
            for folder, _, files in os.walk(f"{work}/out"):
                for name in files:
                    if found := re.match(r"samples_(\w+?)_\d{4}", name):
                        with open(os.path.join(folder, name), encoding="utf-8") as file:
                            samples[found[1]] = [json.loads(each) for each in file]
            worst, count, unseen = 0.0, 0, 0
            for sample in samples["choices"]:
                for arguments_of, said in zip(sample["arguments"].values() if isinstance(sample["arguments"], dict) else sample["arguments"], sample["resps"]):
                    context, answer = (list(arguments_of.values()) if isinstance(arguments_of, dict) else arguments_of)[:2]
                    tokens = list((context + answer).encode())
                    numbers = log_probabilities(int(port), tokens)[len(context.rstrip()) - 1 :]  # spaces at its end are the answer's
                    if None in numbers:
                        unseen += 1
                        continue
                    said = said[0] if isinstance(said[0], list) else said
                    worst, count = max(worst, abs(float(said[0]) - math.fsum(numbers))), count + 1
            print(f"{count} log-likelihoods differ by {worst:.1e} at most from those of tokens one by one ({unseen} have a token beyond the 20 likeliest)")
            sys.exit(count == 0 or worst > 1e-3)
        finally:
            server.terminate()
            server.wait()


main()
