"""Chat templates, rendered by Hugging Face's transformers (Jinja2) and by braid-run: do both give the same text and tokens?

  templates.py [--chats N] [--expressions N] [--seed N] [--braid-run PATH] [TEMPLATE.jinja..]
  templates.py --write FOLDER

Needs the package transformers with jinja2, and braid-run in PATH; no GPU. Random chats (tools, calls, thoughts, parts of
several kinds, blanks, words of templates) are rendered by each template, by default those of test/templates, which are
written in the manners of published ones; then random expressions by themselves. What one refuses the other must refuse.
Prints the first differences. Exit status 1 where anything differs.

With --write, writes what Jinja2 makes of chats as FOLDER/NAME.cases.jsonl for each template there (of each chat the
"text", or "refused"), and of expressions and statements as FOLDER/language.jsonl.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template as compiled

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOKENS = {"bos_token": "<|endoftext|>", "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"},
          "tokenizer_class": "PreTrainedTokenizerFast"}

# ---- Chats ----------------------------------------------------------------------------------------------------------

WORDS = ["the", "é", "中文", "<b>", "\n", "  ", '"q"', "'s", "</think>", "<think>", "\\", "1.5", "{", "}}", "{%", "🙂",
         "\t", "\n\n", "<tool_response>", "</tool_response>", "<|im_end|>", "\u2028", "\x7f"]


def text(rng, most=12):
    return "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randrange(most)))


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind > 6:
        return {rng.choice(["a", "é k", "type", "enum", "x y"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [rng.randrange(-1000, 10**6), rng.choice([0.5, 1e-7, 1e20, 3.0, -2.25, 0.1, 1e16, 123456.789]),
            rng.random() < 0.5, None, text(rng, 5), text(rng, 5),
            [value(rng, depth + 1) for _ in range(rng.randrange(4))] if kind == 6 else None][kind]


def tool(rng):
    function = {"name": rng.choice(["get", "find_it"]), "description": text(rng, 6)}
    if rng.random() < 0.9:
        fields = {}
        for name in rng.sample(["city", "unit", "n"], rng.randrange(4)):
            fields[name] = {"type": rng.choice(["string", "integer", ["string", "null"]]), "description": text(rng, 4)}
            if rng.random() < 0.3:
                fields[name]["enum"] = ["a", "b"]
            if rng.random() < 0.3:
                fields[name]["default"] = value(rng)
        function["parameters"] = {"type": "object", "properties": fields, "required": rng.sample(["city", "n"], 1)}
    for name in ("return", "strict"):
        if rng.random() < 0.2:
            function[name] = value(rng)
    return {"type": "function", "function": function}


def chat(rng):
    messages = [{"role": "system", "content": text(rng)}] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 4)):
        parts = [{"type": "text", "text": text(rng)}, {"type": "image"}]
        messages.append({"role": "user", "content": text(rng) if rng.random() < 0.9 else parts})
        kind = rng.random()
        if kind < 0.3:
            break
        answer = {"role": "assistant", "content": text(rng) if rng.random() < 0.9 else None}
        if rng.random() < 0.3:
            answer[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng)
        messages.append(answer)
        if kind > 0.6:
            continue
        calls = range(rng.randrange(1, 3))
        given = [{"city": text(rng, 3), "n": value(rng)}, {}, '{"n": 1}']
        answer["tool_calls"] = [{"id": "123456789", "type": "function",
                                 "function": {"name": "get", "arguments": rng.choice(given)}} for _ in calls]
        for _ in calls:
            messages.append({"role": "tool", "tool_call_id": "123456789",
                             "content": text(rng) if rng.random() < 0.8 else value(rng)})
        if rng.random() < 0.5:
            messages.append({"role": "assistant", "content": text(rng)})
    result = {"messages": messages}
    if rng.random() < 0.5:
        result["tools"] = [tool(rng) for _ in range(rng.randrange(3))]
    result["chat_template_kwargs"] = {"today": "31 Jan 2025"}
    for name in ("enable_thinking", "thinking", "short"):
        if rng.random() < 0.25:
            result["chat_template_kwargs"][name] = rng.random() < 0.5
    return result


# ---- Expressions ----------------------------------------------------------------------------------------------------

VALUES = {
    "s": "  Hello, Wörld!\n line2\r\n\tx ", "t": "abcabc", "e": "", "n": 7, "m": -3, "z": None, "f": 2.5, "g": 1e20,
    "b": True, "c": False, "l": [3, 1, 2, 1], "w": ["b", "A", "a", "c", ""], "le": [],
    "d": {"b": 1, "a": "x", "C": [1, 2]}, "de": {}, "q": "it's \"x\"",
    "ms": [{"role": "system", "content": "Be."}, {"role": "user", "content": "hi", "n": 1},
           {"role": "assistant", "content": None, "n": 2, "calls": [{"name": "f", "args": {"x": 1, "y": [1.5, None]}}]}],
}
# One a line; \N and \R stand for a newline and a carriage return within one.
LANGUAGE = r"""
{{ s }}|{{ s|trim }}|{{ s|upper }}|{{ s|title }}|{{ s.title() }}|{{ s|capitalize }}
{{ n }} {{ f }} {{ b }} {{ z }} {{ l }} {{ d }} {{ g }} {{ 1.5e-7 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 1/3 }} {{ [q] }}
{{ ms|tojson }} {{ ms|tojson(indent=2) }} {{ d|tojson(separators=(',', ':'), sort_keys=true) }} {{ s|tojson(true) }}
{{ "a\u2028\x7f\x1f</s>"|tojson }} {{ [[], {}, [[1]]]|tojson(indent=1) }} {{ {'1': 2, 3: 4, true: none}|tojson }}
{{ nothing }}x{{ ms[0].nothing }}|{{ nothing|default('d') }}{{ e|d('e', true) }}{{ [nothing] }}{{ not nothing }}{{ nothing|length }}
{{ nothing.more }}
{{ nothing + 'a' }}
{{ nothing() }}
{{ ms|length }} {{ s|length }} {{ d|count }} {{ l|sort }} {{ w|sort }} {{ w|sort(true, true) }} {{ w|unique|list }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'a': 2, 'b': 1}|dictsort(by='value', reverse=true) }} {{ d.items() }} {{ d|items|list }}
{{ l|first }} {{ l|last }} {{ s|first }} {{ d|first }} {{ le|first }}|{{ l|join('-') }} {{ ms|join(',', attribute='role') }}
{{ ms|map(attribute='n')|list }} {{ ms|map(attribute='n', default=0)|list }} {{ ms|selectattr('role', 'in', ['user'])|list }}
{{ ms|rejectattr('content')|map(attribute='role')|join }} {{ l|map('string')|list }} {{ l|select('odd')|list }} {{ l|reject('gt', 1)|list }}
{{ ms|selectattr('role', 'equalto', 'nobody') and 'an iterator is true' }} {{ ms|selectattr('n', 'defined')|first }}
{{ l|select|length }}
{{ l|sum }} {{ l|min }} {{ w|max }} {{ m|abs }} {{ '42'|int }} {{ ' 4.7 '|int }} {{ 'x'|int(9) }} {{ '3.5'|float }} {{ 2.675|round(2) }} {{ 2.5|round }}
{{ n // 2 }} {{ m // 2 }} {{ m % 2 }} {{ n / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -7.5 % 2 }} {{ 2 ** 3 ** 2 }} {{ -n|abs }} {{ 'a' ~ 1 ~ none }}
{{ 1 // 0 }}
{{ 'a' * 3 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 1 < 2 < 3 }} {{ 'b' in t }} {{ 'x' not in d }} {{ n == 7.0 }} {{ [1, 'a'] < [2] }}
{{ 1 + 'a' }}
{{ 'a' < 1 }}
{{ n is odd }} {{ n is divisibleby 7 }} {{ z is none }} {{ z is not none }} {{ d is mapping }} {{ d is sequence }} {{ nothing is iterable }} {{ b is number }} {{ b is integer }} {{ 3 is in l }} {{ 'ab' is lower }} {{ z is sameas none }}
{{ s[2:7] }} {{ s[::-1] }} {{ l[::-1] }} {{ l[-1] }} {{ l[5] }} {{ l[-9:2] }} {{ l[9:0:-2] }} {{ ms[-1]['role'] }} {{ ms[1:]|length }} {{ 'é🙂'[1] }}
{{ d.get('zz', 'no') }} {{ d.get('a') }} {{ d['C'][0] }} {{ d.C.0 }} {{ ms.0.role }}
{{ s.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ s.splitlines() }}
{{ t.startswith('ab') }} {{ t.endswith(('x', 'c')) }} {{ t.replace('b', '-') }} {{ t|replace('b', '-', 1) }} {{ t.find('c') }} {{ t.count('ab') }} {{ t.partition('b') }} {{ 'xxaxx'.strip('x') }} {{ t.removeprefix('abc') }} {{ t.rindex('c') }}
{{ t.index('z') }}
{{ range(3)|list }} {{ range(5, 0, -2)|list }} {{ range(3) }} {{ dict(a=1) }} {{ dict(d, z=1) }}
{{ 'yes' if b else 'no' }} {{ 'x' if c }} {{ 0 and 1 }} {{ nothing or 'd' }} {{ 1 if 0 else 2 if 0 else 3 }} {{ 'a' if n is defined and n > 5 else 'b' }}
{{ '%s-%d-%05.2f|%-5s|%5s|%x%%' % ('a', 3, 2.5, 'l', 'r', 255) }} {{ '%s'|format(l) }} {{ '{} {x} {{}}'.format(1, x=2) }}
{{ s|indent }}|{{ s|indent(2, true) }}|{{ 'a\n\nb'|indent('--', blank=true) }} {{ 'a-b c'|title }} {{ "x < 'z'"|e }} {{ '<b>'|safe }}
{{ 'Straße ﬁ İ ŉ'|upper }} {{ 'STRASSE ΑΣ ΣΑ İ'|lower }} {{ "ΑΣ foo's".title() }} {{ 'éCOLE'|capitalize }}
{{ "a" 'b' }} {{ 'a\'b' }} {{ "\t\u00e9\x41\q\101" }} {{ 1_000 }} {{ {'a': {'b': 1}}.a.b }} {{ {'a': {'b': 1}}}} {{ () }} {{ (1,) }}
{% for m in ms %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.cycle('a', 'b') }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem is defined }};{% endfor %}
{% for m in ms if m.role != 'user' %}{{ loop.index }}/{{ loop.length }}{% else %}none{% endfor %}{% for x in le %}a{% else %}empty{% endfor %}{% for x in nothing %}a{% endfor %}
{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'hé' %}{{ c }}.{% endfor %}
{% for a, in [[1]] %}{{ a }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set ns = namespace(x=0, y=[]) %}{% for i in l %}{% set ns.x = ns.x + i %}{% set ns.y = ns.y + [i] %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.w }}
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if c %}{% set y = 1 %}{% endif %}{{ y }}{% if b %}{% set y = 1 %}{% endif %}{{ y }}
{% set a, c = 1, 2 %}{{ a }}{{ c }}{% set k %}  t {{ n }}\N{% endset %}[{{ k }}]{% set k | trim | upper %} abc {% endset %}[{{ k }}]
{% set foo.bar = 1 %}
{% macro m(a, b=2, c='x') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}{{ m() }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro r(k) %}{{ k }}{% if k > 0 %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(3) }}{% macro o() %}{{ n }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ o() }}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}{% generation %}g{{ n }}{% endgeneration %}{% raw %}{{ not }}{% endraw %}{{ strftime_now('%Y')|length }}
{{ ms.append(1) }}
{{ d.update({'a': 1}) }}
{{ raise_exception('this is wrong') }}
{{ l|no_filter }}
{{ l is no_test }}
{% unknown %}
{% if b %}
{{ 'a
{{ (1 }}
{% for i in l %}\N  {{ i }}\N{% endfor %}\Nend\N
  {% if b %}\N    in\N  {% else %}\N    out\N  {% endif %}\N after
a {%+ if b %} b {% endif +%}\N c {%- if b -%} \N d {%- endif %} \N e {# x #}\N f {#- x -#} \N g
a\R\N{% if b -%}\R\N  b\R\N{%- endif %}\R\N  {{- n -}}  c\R\N
""".strip("\n")


def rendered(template, values):
    try:
        return compiled(template).render(**json.loads(json.dumps(values)))  # some filters change lists
    except Exception:  # whatever it is, it is refused
        return None


FILTERS = """abs capitalize count d dictsort first float indent int join last length list lower max min
    reverse round sort string sum title tojson trim upper""".split()
ATOMS = ["1", "0", "2", "-1", "1.5", "'a'", "'b,c'", '"it\'s"', "true", "none", "[]", "[1, 'x']", "{'a': 1}", "(1, 2)",
         "'%s'", "' 3.5 '", "nothing"]
TESTS = """defined undefined none string number mapping sequence iterable boolean true false integer float odd even lower
    upper""".split()
TAILS = ["[0]", "[-1]", "['a']", "[n]", ".role", ".a", ".items()", ".upper()", ".strip()",
         ".split()", ".title()", ".splitlines()", "|map(attribute='role')|list", "|map('string')|list",
         "|selectattr('n')|list", "|rejectattr('content', 'none')|list", "|sort(reverse=true)", "|tojson(indent=2)",
         "|int(3)", "|round(1)", "|trim('ab')", "|select('string')|list", "|default('q', true)"]


def expression(rng, depth=0):
    def inner():
        return expression(rng, depth + 1)
    kind = rng.randrange(13) if depth < 4 else 0
    if kind < 3:
        return rng.choice(ATOMS + list(VALUES) * 2)
    if kind < 5:
        return f"({inner()} {rng.choice('+ - * / // % ~ == != < > <= >= in and or'.split() + ['not in'])} {inner()})"
    if kind < 7:
        return f"({inner()})|{rng.choice(FILTERS)}"
    if kind == 7:
        return f"({inner()} if {inner()} else {inner()})"
    if kind == 8:
        return f"({inner()}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind == 9:
        method = rng.choice("split rsplit strip lstrip startswith endswith find count partition removeprefix".split())
        return f"({rng.choice(['s', 't', 'e', inner()])}).{method}({inner()})"
    if kind == 10:
        return f"[{inner()}, {rng.choice(list(VALUES))}{rng.choice(['[:2]', '[::-1]', '[-2:]'])}]"
    return f"({inner()}){rng.choice(TAILS)}"


# ---- Both -----------------------------------------------------------------------------------------------------------


def library(folder, template):
    """Writes what a published model has beside its weights."""
    (folder / "tokenizer.json").write_bytes((ROOT / "test/tokenizers/qwen.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    (folder / "chat_template.jinja").write_text(template, newline="")
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def applied(tokenizer, one):
    """The text and the tokens, or None."""
    try:
        both = [tokenizer.apply_chat_template(one["messages"], tools=one.get("tools"), add_generation_prompt=True,
                                              tokenize=tokens, return_dict=False, **one.get("chat_template_kwargs", {}))
                for tokens in (False, True)]
        return both[0], list(both[1])
    except Exception:  # whatever it is, it is refused
        return None


def ours(folder, chats, options):
    """What braid-run makes of chats: (text, tokens) of each, or None where it refuses one."""
    (folder / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in chats))
    run = subprocess.run([options.braid_run, "tokenize", "--tokenizer", folder, "--prompts", folder / "chats.jsonl"],
                         capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"braid-run ended with {run.returncode}: {run.stderr}")
    lines = [json.loads(line) for line in run.stdout.split("\n") if line]
    return [(line["prompt"], line["tokens"]) for line in lines] if run.returncode == 0 else None


def compare(path, rng, options):
    """How many chats differ."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokenizer = library(folder, path.read_bytes().decode())
        chats = [chat(rng) for _ in range(options.chats)]
        expected = [applied(tokenizer, one) for one in chats]
        good = [one for one, both in zip(chats, expected) if both]
        made = ours(folder, good, options) if good else []
        wrong = len(good) if made is None else 0
        for one, want, got in zip(good, [both for both in expected if both], made or []):
            if want != got:
                wrong += 1
                if wrong == 1:
                    print(f"{path.name}: {json.dumps(one)}\n  transformers {want}\n  braid-run    {got}")
        for one, want in zip(chats, expected):
            if not want and ours(folder, [one], options) is not None:
                wrong += 1
                print(f"{path.name}: transformers refuses {json.dumps(one)}")
        print(f"{path.name}: {len(good)} texts, {len(chats) - len(good)} refused, {wrong} differ")
        return wrong


def compare_expressions(rng, options):
    """How many random expressions differ. Those that braid-run says it does not read are counted apart."""
    counts = {"equal": 0, "refused": 0, "not read": 0, "differ": 0}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        library(folder, "")
        (folder / "chats.jsonl").write_text(
            json.dumps({"messages": [{"role": "user"}], "chat_template_kwargs": VALUES}))
        for _ in range(options.expressions):
            template = "{{ " + expression(rng) + " }}"
            want = rendered(template, VALUES)
            if want and (" object at 0x" in want or "<built-in" in want or len(want) > 100000):
                continue
            (folder / "chat_template.jinja").write_text(template)
            run = subprocess.run([options.braid_run, "tokenize", "--tokenizer", folder, "--prompts",
                                  folder / "chats.jsonl"], capture_output=True, text=True, check=False)
            got = json.loads(run.stdout)["prompt"] if run.returncode == 0 else None
            kind = ("equal" if want is not None else "refused") if got == want else "differ"
            if kind == "differ" and got is None and "read" in run.stderr:
                kind = "not read"
            counts[kind] += 1
            if kind == "differ":
                print(f"{template}\n  Jinja2    {want!r}\n  braid-run {got!r} {run.stderr.strip()}")
    print("expressions: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return counts["differ"]


def write(folder):
    rng = random.Random(7)
    for path in sorted(folder.glob("*.jinja")):
        with tempfile.TemporaryDirectory() as beside:
            tokenizer = library(pathlib.Path(beside), path.read_bytes().decode())
        with open(path.with_suffix(".cases.jsonl"), "w", encoding="utf-8") as file:
            for _ in range(16):
                one = chat(rng)
                both = applied(tokenizer, one)
                result = {"text": both[0]} if both else {"refused": True}
                file.write(json.dumps({"chat": one} | result, ensure_ascii=False) + "\n")
    with open(folder / "language.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(VALUES, ensure_ascii=False) + "\n")
        for template in LANGUAGE.split("\n"):
            template = template.replace("\\N", "\n").replace("\\R", "\r")
            made = rendered(template, VALUES)
            result = {"text": made} if made is not None else {"refused": True}
            file.write(json.dumps({"template": template} | result, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("templates", nargs="*", type=pathlib.Path)
    parser.add_argument("--chats", type=int, default=100)
    parser.add_argument("--expressions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--braid-run", default="braid-run")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if options.write:
        write(options.write)
        return 0
    rng = random.Random(options.seed)
    paths = options.templates or sorted((ROOT / "test/templates").glob("*.jinja"))
    wrong = sum(compare(path, rng, options) for path in paths)
    if not options.templates:
        wrong += compare_expressions(rng, options)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
