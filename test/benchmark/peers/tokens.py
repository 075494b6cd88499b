"""Tokenizers as they are published, read by Hugging Face's tokenizers (or tiktoken, or rwkv) and by braid-run: do both give the same tokens?

  tokens.py [--texts N] [--seed N] [--braid-run PATH] [--timing-bytes N] [--any-character] [KIND or FILE..]
  tokens.py --write FOLDER [KIND..]

Needs the packages tokenizers and, for kinds of ranks, tiktoken, for rwkv, rwkv, and braid-run in PATH; no GPU. A FILE is a tokenizer.json, or a folder or file of the other two. A kind is a small BPE, trained here on this repository's
text, within what a family of published models puts around it: normalizer, pre-tokenizer, post-processor, decoder, added
tokens, flags of the model. For each kind, both make tokens of random texts (special ones too), and texts of these and
of random tokens. Prints the first three differences in full, and how long both took for a larger file. Exit status 1
where anything differs.

With --write, writes the kinds as FOLDER/KIND.json, and what tokenizers makes of hard texts as FOLDER/KIND.cases.jsonl:
of each "text" the "tokens", the "plain" ones (without those that the post-processor adds), and what the former give,
"decoded" without special tokens and "decoded_all". A kind of ranks is a folder with tiktoken.model and tokenizer_config.json, and rwkv one with its vocabulary.

This file isn't named for the package: its neighbours would import it in the package's place.
"""
import argparse
import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOREIGN = """Ein größerer Fluß, déjà vu à l'œuvre, mañana será otro día; žluťoučký kůň, Łódź, naïve façade.
İstanbul, ılık. The same decomposed: de\u0301ja\u0300 vu, man\u0303ana sera\u0301, gro\u0308ßer, A\u030angstro\u0308m.
Vie\u0323\u0302t, Việt Nam. Широкая река течёт медленно, и никто никуда не спешит. Ёжик в тумане; щука, Україна їде.
Ο ποταμός κυλάει αργά προς τη θάλασσα, ὁ ἄνθρωπος καὶ ἡ ὁδός, ΟΔΟΣ.
يجري النهر ببطء نحو البحر، والناس يَنْتَظِرُونَ على الضفة. أربعة ١٢٣٤، فارسی ۵۶۷.
नदी धीरे-धीरे समुद्र की ओर बहती है। किताबें, ज़रूरत, हिन्दी में लिखा हुआ, १२३।
大きな川はゆっくりと海へ流れる。カタカナとひらがな、漢字が混ざる文章。１２３、ＡＢＣ！
大河缓缓流向大海，没有人着急。今天天气很好，我们去河边走走吧。繁體字：龍、學、體。
큰 강은 천천히 바다로 흐른다. 오늘은 날씨가 좋아서 강가를 걷는다. \u1112\u1161\u11ab\u1100\u1173\u11af
แม่น้ำไหลช้าๆ ไปสู่ทะเล
👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 😀😀😀 🇫🇷🇯🇵 ❤️ ✨ 1️⃣ © ™ € £ ¥ ½ ¾ ² № … “quoted” ‘it’s’ — – • → ≤ ∑
def run(values, step=1):\n    for index, value in enumerate(values):\n        if value >= 0x1F and not done[index]:
            yield value ** 2\n\n\tswitch (kind) {\r\n\t\tcase 1: return "a\\n" + b->c[0];\r\n\t\tdefault:\r\n\t}\r\n
I'll, we've, they're, it's, don't, I'm, he'd; I'LL, WE'VE, IT'S, DON'T. 1, 12, 123, 1234, 12345, 1234567, 3.14159,
2024-01-31, 10:45, 1e-5, aaaaaaaaaaaaaaaa aaaaaaaa aaaa aa bbbb ---------------- ======== ........ !!!! ????
        deep                blanks   \t\t\t\n\n\n\n
"""
# Texts of every kind, and those of every other one.
HARD = [
    "", " ", "  ", "\n", "\t a", "  a", "a  ", " a  b   c ", "\r\n\r\n x\r\ny\rz", " \n \n  y \n", "\n" * 9 + " \n",
    "Don't DON'T don\u2019t I'LL we'Ve he'D 's'S", "x'\u017ft k'\u212a '\u017f \u212a'\ufb05", "1234567890123 12",
    "3.14e-10 0x1F; 1,000.5 b22c333d4444", "½Ⅷ①২٣１ ²³¹¼ 5½", "ò ó ù ü ý þ ÿ", "a\u0085b\u0085 c",
    "a\u00a0b \u00a0 c\u00a0", "a\u180eb \u180e", "a\u200bb\u200d \u2060c\u00ad", "\ufeffa\ufeff b", "\ufffd\ufffda",
    "\x00a\x00 \x7f", "a\x1cb\x1f c\x0b\x0cd", "\u2028\u2029a\u2003\u1680b", "\u3000\u3000日本 \u3000",
    "e\u0301 é A\u030a Å \u212b ό\u0301", "\u0301\u0302a \u0301", "q\u0323\u0307 q\u0307\u0323 a\u0345\u0301\u0334",
    "हिन्दी में \u0958 क\u093c", "Привет, мир! Ёё", "日本語、カナー。漢々龥", "한국어 문장 ㅋㅋ", "👩‍👩‍👧 👍🏽 🇩🇪 ❤️",
    "\u0378\U000e0080 \uffff\U0010ffff", "-----===!!\n\n/ //\n", "def f(x):\n    return x[0]  # ok\n\tif (a&&b):",
    "$5 + 3€ = ¥8 ~|`^\\n", "a_b aB CamelCase HTTPServer", "ÀB ÉCOLE E\u0301C", "中文abc中文123カ", "▁a ▁▁ Ġb Ċ",
    "<0x41> <0xE9> </w> ##a",
]
ALSO = [
    " " * 37 + "a", "\u1100\u1161\u11a8 각 가\u11a8 \u1161", "ﬁx ２ ㎏ ŉ ｱﾞ", "ǅ ǈa aǅB ʰa ªº Ⓐⓑ", "Ελλάς ΟΔΥΣΣΕΥΣ ᾳ\u0301",
    "العربية ١٢ يَنْ", "ไทยกำ ๑๒", "\ue000\ufdd0a𝒜𐐀\U0002f800", 'https://ex.org/a?b=c&d="#e" <a>', "a" * 300,
]
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + BLANKS
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "".join(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}{a}{LOWER}{b}{CONTRACTIONS}?|" for a, b in ("*+", "+*"))
O200K += r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + BLANKS
UPPER, LOWER = (part[:-1] + r"&&[^\p{Han}]]" for part in (UPPER, LOWER))
KIMI = "".join(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}{a}{LOWER}{b}{CONTRACTIONS}?|" for a, b in ("*+", "+*"))
KIMI = r"[\p{Han}]+|" + KIMI + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + BLANKS
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
DEEPSEEK += r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + BLANKS
BLANK = "\u2581"  # what stands for U+0020 in vocabularies that SentencePiece made
KINDS = {}
# What bytes are in vocabularies of bytes, and back: what can be printed is itself, the others are U+0100 and on.
PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = {chr(one): one for one in PRINTED}
BYTES |= {chr(0x100 + at): one for at, one in enumerate(one for one in range(256) if one not in PRINTED)}


def kind(make):
    KINDS[make.__name__] = make
    return make


def corpus():
    return "\n".join((ROOT / name).read_text() for name in ("README.md", "models/README.md")) + "\n" + FOREIGN * 12


# Parts of a tokenizer.json.


def sequence(what, *parts):
    return {"type": "Sequence", what: list(parts)}


def split(pattern, behavior="Isolated", invert=False, form="Regex"):
    return {"type": "Split", "pattern": {form: pattern}, "behavior": behavior, "invert": invert}


def replace(what, content, form="String"):
    return {"type": "Replace", "pattern": {form: what}, "content": content}


def byte_level(prefix=False, trim=True, **more):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim} | more


def token(content, special=False, normalized=False, **more):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}
    return {"content": content} | flags | more


def specials(*names):
    return [token(name, True) for name in names]


def template(vocab, *pieces):
    """Special tokens by name around the text, which is None."""
    text = lambda name, at: {"Sequence": {"id": name, "type_id": at}}
    single = [{"SpecialToken": {"id": name, "type_id": 0}} if name else text("A", 0) for name in pieces]
    names = {name: {"id": name, "ids": [vocab[name]], "tokens": [name]} for name in pieces if name}
    return {"type": "TemplateProcessing", "single": single, "pair": single + [text("B", 1)], "special_tokens": names}


SPELL = sequence("decoders", replace(BLANK, " "), {"type": "ByteFallback"}, {"type": "Fuse"})
SPELL_FIRST = sequence("decoders", *SPELL["decoders"], {"type": "Strip", "content": " ", "start": 1, "stop": 0})


def document(vocab, merges, added=(), normalizer=None, pre=None, post=None, decoder=None, old=False, **model):
    """A tokenizer.json. Those before 2024 have merges as strings, and not all flags."""
    ids = dict(vocab)
    for one in added:
        ids.setdefault(one["content"], len(ids))
    added = sorted(({"id": ids[one["content"]]} | one for one in added), key=lambda one: one["id"])
    flags = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False}
    flags |= {} if old else {"byte_fallback": False, "ignore_merges": False}
    merges = [" ".join(pair) if old else list(pair) for pair in merges]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder,
            "model": flags | model | {"vocab": vocab, "merges": merges}}


# Vocabularies, each with its merges.


def train(size, text, normalizer=None, pre=None, alphabet=(), first=()):
    """`first` are its first tokens."""
    made = tokenizers.Tokenizer.from_str(json.dumps(document({}, [], normalizer=normalizer, pre=pre)))
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet),
                                             special_tokens=list(first), show_progress=False)
    made.train_from_iterator(text.split("\n\n"), trainer)
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def train_bytes(size, normalizer, pre, first=(), last=()):
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = train(size, corpus(), normalizer, pre, alphabet, first)
    return vocab | {name: len(vocab) + at for at, name in enumerate(last)}, merges


def train_marked(size, normalizer, pre, first, prefix="", suffix=""):
    """The library numbers marked characters differently each time: here they are other characters until it's done."""
    library = tokenizers.Tokenizer.from_str(json.dumps(document({}, [], normalizer=normalizer, pre=pre)))
    text = "".join(c if c < "\u0250" or c in "日本語のприветмΟδς" else " " for c in corpus())
    words = [word for word, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))]
    mark = lambda part: "".join(chr(ord(c) + 0xF0000) for c in part)
    marked = [word[:1] + mark(word[1:]) if prefix else word[:-1] + mark(word[-1:]) for word in words]
    plain = lambda part: "".join(chr(ord(c) % 0xF0000) for c in part)
    is_marked = lambda c: ord(c) > 0xF0000
    name = lambda part: prefix * is_marked(part[0]) + plain(part) + suffix * is_marked(part[-1])
    vocab, merges = train(size, "\n\n".join(marked), first=first)
    named = {one if one in first else name(one): at for one, at in vocab.items()}
    return named, [(name(a), name(b)) for a, b in merges]


def train_pieces(size, first, bytes_missing=(), characters=110):
    """As SentencePiece numbers them: special tokens, bytes, what was merged, characters."""
    text = corpus().replace(" ", BLANK)
    kept = {c for c, _ in collections.Counter(text).most_common(characters)} - {"\r"}
    text = "".join(c if c in kept else "\n\n" for c in text)
    words = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "never", "split": True}
    trained, merges = train(size - 256 - len(first), text, pre=words)
    single = sorted(c for c in trained if len(c) == 1)
    spelled = [f"<0x{byte:02X}>" for byte in range(256) if byte not in bytes_missing]
    names = [*first, *spelled, *(name for name in trained if len(name) > 1), *single]
    return {name: at for at, name in enumerate(names)}, merges


# Kinds.


@kind
def gpt2():
    vocab, merges = train_bytes(500, None, byte_level(), last=["<|endoftext|>"])
    added = [token("<|endoftext|>", True, normalized=True)]
    return document(vocab, merges, added, None, byte_level(), byte_level(True, False), byte_level(True), old=True,
                    continuing_subword_prefix="", end_of_word_suffix="")


@kind
def neox():
    """GPT-NeoX, Pythia, Mamba: runs of blanks are added tokens."""
    nfc, first = {"type": "NFC"}, ["<|endoftext|>", "<|padding|>"]
    vocab, merges = train_bytes(480, nfc, byte_level(), first)
    added = specials(*first) + [token(" " * count, normalized=True) for count in range(12, 1, -1)]
    return document(vocab, merges, added, nfc, byte_level(), byte_level(), byte_level(), old=True)


@kind
def llama3():
    """Words of the vocabulary that no merges give are found all the same."""
    pre = sequence("pretokenizers", split(CL100K % "{1,3}"), byte_level(use_regex=False))
    vocab, merges = train_bytes(480, None, pre)
    for word in ("Ġtokenizer", "1234", "123", "ĠGermany", "'ll", "Ġof"):
        vocab.setdefault(word, len(vocab))
    merges = [(a, b) for a, b in merges if a + b not in ("Ġof", "Ġthe", "123")]
    added = specials("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>")
    begin = template({"<|begin_of_text|>": len(vocab)}, "<|begin_of_text|>", None)
    post = sequence("processors", byte_level(True, False, use_regex=True), begin)
    return document(vocab, merges, added, None, pre, post, byte_level(True, use_regex=True), ignore_merges=True)


@kind
def qwen():
    nfc, plain = {"type": "NFC"}, byte_level(trim=False, use_regex=False)
    pre = sequence("pretokenizers", split(CL100K % ""), plain)
    vocab, merges = train_bytes(480, nfc, pre)
    added = specials("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    added += [token("<tool_call>"), token("<think>"), token("</think>")]
    return document(vocab, merges, added, nfc, pre, plain, plain)


@kind
def deepseek_v3():
    pre = sequence("pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK),
                   byte_level(use_regex=False))
    first = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    vocab, merges = train_bytes(480, None, pre, first)
    added = specials(*first) + [token("<｜User｜>"), token("<think>", normalized=True)]
    return document(vocab, merges, added, sequence("normalizers"), pre, template(vocab, first[0], None),
                    byte_level(True, use_regex=True))


@kind
def o200k():
    """gpt-oss."""
    pre = sequence("pretokenizers", split(O200K), byte_level(use_regex=False))
    vocab, merges = train_bytes(480, None, pre)
    added = specials("<|startoftext|>", "<|endoftext|>", "<|start|>", "<|channel|>", "<|message|>")
    post = byte_level(True, False, use_regex=True)
    return document(vocab, merges, added, None, pre, post, byte_level(True, use_regex=True), ignore_merges=True)


@kind
def kimi():
    """Kimi K2 and Kimi Linear: ranks. Of "aaa" and of "the the" several pairs of tokens make the same one."""
    pre = sequence("pretokenizers", split(KIMI), byte_level(use_regex=False))
    vocab, _ = train_bytes(480, None, pre)
    for word in ("aa", "aaa", "aaaaa", "Ġtokenizer", "1234", "thethe", "thethethe", "å¤§æ²³", "Ġlet", "'ll"):
        vocab.setdefault(word, len(vocab))
    ranks = {bytes(BYTES[letter] for letter in word): rank for word, rank in vocab.items()}
    named = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|tool_call_begin|>", False)}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {str(len(ranks) + at): {"content": name, "special": special} | flags for at, (name, special) in named.items()}
    return {"ranks": ranks, "config": {
        "added_tokens_decoder": added, "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"}}


@kind
def gemma():
    """Blanks run together, and numbers say nothing of the order of merges."""
    first = ["<pad>", "<eos>", "<bos>", "<unk>"]
    vocab, merges = train_pieces(560, first)
    for a, b in (("\n", "\n"), ("\n\n", "\n"), (BLANK, BLANK), (BLANK * 2, BLANK * 2), (BLANK * 2, BLANK), (".", "\n")):
        vocab.setdefault(a + b, len(vocab))
        merges += [(a, b)] if (a, b) not in merges else []
    names = list(vocab)[len(first):]
    random.Random(3).shuffle(names)
    vocab = {name: at for at, name in enumerate(first + names)}
    added = specials(*first, "<start_of_turn>", "<end_of_turn>")
    added += [token(name) for name in ("\n\n\n", "\n\n", BLANK * 2, "<h1>")]
    pre = split(" ", "MergedWithPrevious", form="String")
    return document(vocab, merges, added, replace(" ", BLANK), pre, template(vocab, "<bos>", None), SPELL,
                    unk_token="<unk>", fuse_unk=True, byte_fallback=True)


@kind
def llama2():
    first = ["<unk>", "<s>", "</s>"]
    vocab, merges = train_pieces(560, first)
    normalizer = sequence("normalizers", {"type": "Prepend", "prepend": BLANK}, replace(" ", BLANK))
    return document(vocab, merges, specials(*first), normalizer, None, template(vocab, "<s>", None), SPELL_FIRST,
                    old=True, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


@kind
def metaspace():
    """Mistral, and Llama 2 as newer software writes it."""
    first = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    vocab, merges = train_pieces(560, first)
    pre = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": False}
    return document(vocab, merges, specials(*first), None, pre, template(vocab, "<s>", None), SPELL_FIRST,
                    unk_token="<unk>", fuse_unk=True, byte_fallback=True)


@kind
def falcon():
    """Digits are looked for among the characters that bytes have become."""
    pre = sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(use_regex=True),
                   {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
    first = [">>TITLE<<", ">>ABSTRACT<<", "<|endoftext|>"]
    vocab, merges = train_bytes(480, None, pre, first)
    post = byte_level(trim=False, use_regex=True)
    return document(vocab, merges, specials(*first), None, pre, post, byte_level(use_regex=True))


@kind
def digits():
    """SmolLM, Granite."""
    pre = sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level(use_regex=True))
    first = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    vocab, merges = train_bytes(480, None, pre, first)
    return document(vocab, merges, specials(*first), None, pre, None, byte_level(True, use_regex=True), old=True)


@kind
def odd_added():
    """RoBERTa, and added tokens of every sort: overlapping, within words, which take blanks around them."""
    pre, first = byte_level(True), ["<s>", "<pad>", "</s>", "<unk>"]
    vocab, merges = train_bytes(460, None, pre, first)
    added = specials(*first)
    added += [token("<mask>", True, lstrip=True), token("<r>", True, rstrip=True),
              token("<b>", True, lstrip=True, rstrip=True), token("<ma"), token("<mask"),
              token("word", normalized=True, single_word=True), token("or", normalized=True),
              token("é", normalized=True), token("é日"), token("a b"), token("  "), token("Ġx"),
              token("ab12", single_word=True, lstrip=True)]
    post = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
            "add_prefix_space": True}
    return document(vocab, merges, added, None, pre, post, byte_level(True))


@kind
def odd_words():
    """Ends of words are marked; what the text was is lost in many ways."""
    normalizer = sequence("normalizers", {"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                          replace(r"\s+", " ", "Regex"), replace("``", '"'))
    pre = split(r"'s|'t|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+", "Removed", True)
    first = ["<unk>", "<|startoftext|>", "<|endoftext|>"]
    vocab, merges = train_marked(420, normalizer, pre, first, suffix="</w>")
    post = {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 2], "cls": ["<|startoftext|>", 1],
            "trim_offsets": False, "add_prefix_space": False}
    return document(vocab, merges, specials(*first), normalizer, pre, post, {"type": "BPEDecoder", "suffix": "</w>"},
                    unk_token="<unk>", end_of_word_suffix="</w>")


@kind
def odd_prefix():
    """Inner parts of words are marked; all other ways to split; a word's unknown characters are one; no decoder."""
    pre = sequence("pretokenizers", {"type": "WhitespaceSplit"}, split("-", "MergedWithNext", form="String"),
                   split(r"[A-Z]+", "MergedWithNext"), split(r"[=<>]|\d", "Contiguous"),
                   split("_", "Removed", form="String"), split(r"[a-z]+", "MergedWithPrevious", True),
                   {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Whitespace"})
    normalizer, first = {"type": "NFD"}, ["[UNK]", "[CLS]", "[SEP]"]
    vocab, merges = train_marked(420, normalizer, pre, first, prefix="##")
    post = {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}
    return document(vocab, merges, specials(*first), normalizer, pre, post, None, unk_token="[UNK]", fuse_unk=True,
                    continuing_subword_prefix="##")


@kind
def odd_unknown():
    """Bytes are missing, so that characters are unknown, each by itself; merges aren't in the order they arose in."""
    first = ["<unk>", "<s>", "</s>"]
    vocab, merges = train_pieces(560, first, bytes_missing=(0x00, 0x9F, 0xA5, 0xBF), characters=80)
    merges = sorted(merges, key=lambda pair: (len(pair[0] + pair[1]) % 3, merges.index(pair)))
    space = {"type": "Metaspace", "replacement": BLANK, "add_prefix_space": True, "prepend_scheme": "always"}
    added = specials(*first) + [token("<x>")]
    return document(vocab, merges, added, {"type": "NFKD"}, space, template(vocab, "<s>", None, "</s>"),
                    sequence("decoders", {"type": "ByteFallback"}, space), unk_token="<unk>", byte_fallback=True)


@kind
def rwkv():
    """RWKV's models: the longest token that a text goes on with. Some end inside of characters, some within others' beginnings."""
    vocab, _ = train_bytes(480, None, byte_level())
    words = {bytes(BYTES[letter] for letter in word) for word in vocab}
    words |= {word.encode() for word in ("\n\n", "\r\n", "\t\t", " '", "'\"", "\\n", '"\\', "aaaa", "aaaaaaa", " the river", "\u3000\u3000", "日本", "é")}
    words |= {b"\xe6\x97", b"\x97\xa5\xe6", b"\xa5\xe6\x9c", b"\xe0\xa4"}
    single = [bytes([byte]) for byte in range(256)]
    # Its numbers begin with 1, and follow the lengths.
    return {"longest": {word: at for at, word in enumerate(single + sorted(words - set(single), key=lambda word: (len(word), word)), 1)}}


MORE = {
    "odd_added": ["a  <mask>  b", "<mask>  <mask>x", " <mas <mask <maskx>", "a <r>  b<r>\n\t c", "<r>   <mask>",
                  "x <b>\u00a0<b> y", "word words sword a word.", "word<b>or", "éé日é 日é", "a b a  b", "x  <mask>",
                  "a<r>  <r>", "a   b    c", "zĠxy \u0120x", "ab12 xab12  ab12.", "  ab12_", "\tor\nor",
                  " <s>\n</s> x", "a<r>   b", "<b>      x"],
    "odd_words": ["  \u3000x  \u00a0", "``q`` `", "日本語 приве ж", "it's 'tis 'S", "a</w>b"],
    "odd_prefix": ["a-b--c -", "ABCdEF gH", "a==b<=1 12=3>x", "a_b __ c_", "x,y.. (z) !", "日x本 y日日",
                   "a\u0301b_c \u200d", "##a"],
    "odd_unknown": ["日", "日日a", "語日b 日語", "日é", "一\0x", "<x>a<x> b", "ababab the there", "😀日😀"],
    "falcon": ["²³¹ ò1ó2", "12345 1234 a123", "!!! ¿? $$ a—b…", ">>TITLE<<x"],
    "gemma": ["a\n\nb\n\n\nc\n\n\n\nd\n", "x▁▁y", ".\n a"],
    "neox": ["a" + " " * 13 + "b" + " " * 25 + "c", "x  \n  y"],
    "llama3": ["the the of the, 1234 123", "I'll Germany"],
    "rwkv": ["aaaaaaaaaaaaaa aaa", "\\n'\"\n\n\n\r\n", "日本日", " the rivers the rive", "<|rwkv_tokenizer_end_of_text|"],
    "kimi": ["aaaaaaa aaaa aaaaaa", "thethethethe xthethe", "<|reserved_token_%d|>x" % 500, "大河abc大河12河", "Étéa大b"],
}


class Ranks:
    """tiktoken, as the class of Kimi's tokenizers calls it, with the names that tokenizers has."""

    def __init__(self, folder):
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe

        ranks = load_tiktoken_bpe(str(folder / "tiktoken.model"))
        added = json.loads((folder / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]
        numbers = range(len(ranks), len(ranks) + 258)
        names = {at: added[str(at)]["content"] if str(at) in added else f"<|reserved_token_{at}|>" for at in numbers}
        self.special = {int(at) for at, one in added.items() if one["special"]}
        self.library = tiktoken.Encoding("ranks", pat_str=KIMI, mergeable_ranks=ranks,
                                         special_tokens={name: at for at, name in names.items()})

    def encode(self, text, add_special_tokens=True):
        return argparse.Namespace(ids=self.library.encode(text, allowed_special="all"))

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def decode(self, tokens, skip_special_tokens):
        return self.library.decode([one for one in tokens if not (skip_special_tokens and one in self.special)])

    def get_vocab(self):
        return {self.id_to_token(at): at for at in range(self.library.n_vocab)}

    def id_to_token(self, token):
        return repr(self.library.decode_single_token_bytes(token))

    def no_truncation(self):
        pass

    no_padding = no_truncation


class Longest:
    """RWKV's own, which knows nothing of a token beside those of its file, with the names that tokenizers has."""

    end = "<|rwkv_tokenizer_end_of_text|>"

    def __init__(self, path):
        from rwkv.rwkv_tokenizer import TRIE_TOKENIZER

        self.library = TRIE_TOKENIZER(str(path))

    def encode(self, text, add_special_tokens=True):
        first, *others = [self.library.encode(part) for part in text.split(self.end)]
        return argparse.Namespace(ids=first + [token for part in others for token in [0] + part])

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def decode(self, tokens, skip_special_tokens):
        spelled = lambda token: self.library.decodeBytes([token]) if token else b"" if skip_special_tokens else self.end.encode()
        return b"".join(map(spelled, tokens)).decode(errors="replace")

    def get_vocab(self):
        return {self.id_to_token(token): token for token in (0, *self.library.idx2token)}

    def id_to_token(self, token):
        return repr(self.library.idx2token[token]) if token else self.end

    def no_truncation(self):
        pass

    no_padding = no_truncation


def vocabulary_in(path):
    """RWKV's, of a folder or itself."""
    return next((one for one in (path, *path.glob("*")) if one.name.startswith("rwkv_vocab")), None)


def library_of(path):
    if vocabulary_in(path):
        return Longest(vocabulary_in(path))
    return Ranks(path) if path.is_dir() else tokenizers.Tokenizer.from_file(str(path))


def is_folder(made):
    return "ranks" in made or "longest" in made


def text(word):
    """Of bytes the text that they are, or themselves."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        return word


def write_kind(made, path):
    """Ranks, and RWKV's vocabulary, as a folder, others as a file."""
    if not is_folder(made):
        path.write_bytes((dump(made) + "\n").encode())
        return
    path.mkdir(exist_ok=True)
    if "longest" in made:
        literals = ((one, repr(text(one))) for one in made["longest"])
        lines = (f"{made['longest'][one]} {literal} {len(one)}\n" for one, literal in literals)
        (path / "rwkv_vocab_v20230424.txt").write_bytes("".join(lines).encode())
        return
    lines = (base64.b64encode(one) + b" %d\n" % rank for one, rank in made["ranks"].items())
    (path / "tiktoken.model").write_bytes(b"".join(lines))
    (path / "tokenizer_config.json").write_bytes((dump(made["config"]) + "\n").encode())


def added_in(made):
    """The added tokens of a tokenizer.json, or of a configuration beside ranks."""
    return [one["content"] for one in made.get("added_tokens") or made.get("added_tokens_decoder", {}).values()]


def around(made):
    """Hard texts of the added tokens of one."""
    if "longest" in made:
        made = {"added_tokens": [{"content": Longest.end}]}
    a, b, c = (added_in(made.get("config", made)) * 3)[-3:]
    return [f"a{a}b {a} c", f" {a}  {a}\n x", b, b + b + " ", c[:-1] + " " + c[1:]]


# Frozen cases.


def encode(library, text, special=True):
    return library.encode(text, add_special_tokens=special).ids


def decode(library, tokens, skip=False):
    return library.decode(tokens, skip_special_tokens=skip)


def case(library, text):
    tokens = encode(library, text)
    return {"text": text, "tokens": tokens, "plain": encode(library, text, False),
            "decoded": decode(library, tokens, True), "decoded_all": decode(library, tokens)}


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write(name, folder):
    made, cases = KINDS[name](), folder / f"{name}.cases.jsonl"
    file = folder / (name if is_folder(made) else f"{name}.json")
    write_kind(made, file)
    library = library_of(file)
    texts = HARD + ALSO[list(KINDS).index(name) % 2::2] + MORE.get(name, []) + around(made)
    cases.write_bytes("".join(dump(case(library, text)) + "\n" for text in dict.fromkeys(texts)).encode())
    again = library_of(file)
    read = [json.loads(line) for line in cases.read_bytes().decode().split("\n")[:-1]]
    for one in read:
        if case(again, one["text"]) != one:
            sys.exit(f"{cases}: {ascii(one['text'])} isn't read back")
    size = len(made.get("ranks") or made.get("longest") or made["model"]["vocab"])
    print(f"{name}  {size} tokens; {len(read)} texts, {cases.stat().st_size} bytes")


# Comparisons.


def characters(everything):
    """Of Unicode 3.2, where they still are what they were: libraries hold tables of different age."""
    valid = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    now, old = unicodedata.category, unicodedata.ucd_3_2_0.category
    return valid if everything else [c for c in valid if now(c) == old(c) not in ("Cn", "Co", "Lo")]


def makers_of_text(draw, library, added, pool):
    """Functions of a number, mostly from 1 to 6: parts of random texts."""
    words, ids = corpus().split(), sorted(library.get_vocab().values())
    scripts = [(0x4E00, 0x9FA5), (0x3041, 0x3093), (0x30A1, 0x30FE), (0xAC00, 0xD7A3), (0x1100, 0x1112),
               (0x1161, 0x1175), (0x11A8, 0x11C2), (0x905, 0x939), (0x93C, 0x94D), (0x621, 0x652), (0x400, 0x45F),
               (0xE01, 0xE3A), (0x3B1, 0x3C9), (0xC0, 0x17F), (0x1F600, 0x1F64F)]
    accents = ["\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u093c", "\u3099", "\u11a8"]
    blanks = [" ", " ", " ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u0085", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c"]
    single = ["\u200d", "\ufeff", "\u180e", "\u017f", "\u212a", "\ufffd", "\0", "\x1c", BLANK, "\u0120", "👍🏽", "❤️"]
    single += ["\uffff", "\u0378"]
    contractions = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "\u2019s"]
    script = lambda: chr(draw.randint(*draw.choice(scripts)))
    some = lambda those: lambda count: "".join(draw.choices(those, k=count))
    either = lambda c: draw.choice((c.upper(), c.lower()))
    return [
        some(blanks), some(pool), some("0123456789"), some("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        lambda count: draw.choice(words), lambda count: " " + draw.choice(words),
        lambda count: " ".join(draw.choices(words, k=count)),
        lambda count: draw.choice(HARD + ALSO), lambda count: " " * count ** 2, lambda count: draw.choice(single),
        lambda count: script() * count, lambda count: "".join(script() for _ in range(count)),
        lambda count: draw.choice(added or [""]), lambda count: decode(library, [draw.choice(ids)]),
        lambda count: draw.choice("aeb-=. \n0é日") * count ** 2,
        lambda count: "".join(map(either, draw.choice(contractions))),
        lambda count: draw.choice("aeoAqあか가") + some(accents)(count),
    ]


def random_texts(draw, count, library, added, pool):
    makers, texts = makers_of_text(draw, library, added, pool), []
    while len(texts) < count:
        text = "".join(draw.choice(makers)(draw.randint(1, 6)) for _ in range(draw.randint(1, 12)))
        texts += [text] if text else []
    return texts


def command(program, *arguments):
    return [program, "tokenize", *map(str, arguments)]


def run(program, *arguments):
    result = subprocess.run(command(program, *arguments), capture_output=True)
    if result.returncode:
        sys.exit(" ".join(command(program, *arguments)) + "\n" + result.stderr.decode(errors="replace"))
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def write_lines(file, key, values):
    """Every other line as ASCII, which escapes."""
    lines = (json.dumps({key: value}, ensure_ascii=at % 2 == 0) + "\n" for at, value in enumerate(values))
    file.write_bytes("".join(lines).encode())


def differences(what, given, expected, got, spell):
    """Prints the first three. -> whether there are any"""
    if len(got) != len(expected):
        print(f"  {what}: {len(expected)} lines expected, {len(got)} printed")
    wrong = [at for at, (should, printed) in enumerate(zip(expected, got)) if should != printed]
    for at in wrong[:3]:
        print(f"  {what} {json.dumps(given[at])}\n    expected {spell(expected[at])}\n    got      {spell(got[at])}")
    if wrong:
        print(f"  {what}: {len(wrong)} of {len(expected)} differ")
    return bool(wrong) or len(got) != len(expected)


def time_both(program, file, library, size, folder, seed):
    """-> megabytes, seconds of the command and of tokenizers."""
    draw, paragraphs, texts, total = random.Random(seed), corpus().split("\n\n"), [], 0
    while total < size:
        texts.append("\n\n".join(draw.choices(paragraphs, k=20)))
        total += len(texts[-1].encode())
    large = folder / "large.jsonl"
    write_lines(large, "text", texts)
    begin = time.perf_counter()
    subprocess.run(command(program, "--tokenizer", file, "--data", large), stdout=subprocess.DEVNULL, check=True)
    middle = time.perf_counter()
    library.encode_batch(texts)
    return total / 1e6, middle - begin, time.perf_counter() - middle


def compare(name, file, options, folder, pool):
    """-> whether anything differs"""
    library = library_of(file)
    library.no_truncation()
    library.no_padding()
    beside = file / "tokenizer_config.json" if file.is_dir() else file
    added = [Longest.end] if vocabulary_in(file) else added_in(json.loads(beside.read_bytes()))
    draw = random.Random(f"{options.seed} {name}")
    texts, data = random_texts(draw, options.texts, library, added, pool), folder / "data.jsonl"
    expected = [encode(library, text) for text in texts]
    write_lines(data, "text", texts)
    got = [line["tokens"] for line in run(options.braid_run, "--tokenizer", file, "--data", data)]
    spell = lambda tokens: " ".join(f"{one}:{json.dumps(library.id_to_token(one))}" for one in tokens)
    wrong = differences("tokens of", texts, expected, got, spell)
    ids = sorted(library.get_vocab().values())
    chosen = [tokens for tokens in expected if tokens]
    chosen += [draw.choices(ids, k=draw.randint(1, 12)) for _ in range(options.texts // 2)]
    write_lines(data, "tokens", chosen)
    printed = run(options.braid_run, "--decode", "--tokenizer", file, "--data", data, "--field", "tokens")
    back = [line["text"] for line in printed]
    # What is no UTF-8 is written as the bytes that it is, and shown by each library in its own way.
    pairs = [pair for pair in zip(chosen, (decode(library, tokens) for tokens in chosen), back) if "\ufffd" not in pair[1]]
    wrong |= differences("text of", *map(list, zip(*pairs)), json.dumps)
    result = f"{name}  {len(texts)} texts  {sum(map(len, expected))} tokens  {'DIFFERENT' if wrong else 'equal'}"
    if options.timing_bytes:
        times = time_both(options.braid_run, file, library, options.timing_bytes, folder, options.seed)
        result += "; {:.1f} MB in {:.2f} s, by tokenizers in {:.2f} s".format(*times)
    print(result, flush=True)
    return wrong


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KIND or FILE", help=", ".join(KINDS))
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--texts", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--braid-run", default="braid-run", metavar="PATH")
    parser.add_argument("--timing-bytes", type=int, default=2000000, metavar="N", help="0: no timing")
    parser.add_argument("--any-character", action="store_true",
                        help="characters of any version of Unicode; libraries differ in which ones they know")
    options = parser.parse_args()
    options.names = options.names or list(KINDS)
    for name in options.names:
        if name not in KINDS and (options.write or not pathlib.Path(name).exists()):
            parser.error(f"{name}: neither a kind ({', '.join(KINDS)}) nor a file")
    return options


def main():
    options = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for name in options.names:
            write(name, options.write)
        return 0
    print(f"seed {options.seed}, tokenizers {tokenizers.__version__}")
    pool, wrong = characters(options.any_character), 0
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            made = KINDS[name]() if name in KINDS else {}
            file = folder / ("folder" if is_folder(made) else "tokenizer.json") if made else pathlib.Path(name)
            if made:
                write_kind(made, file)
            wrong += compare(name, file, options, folder, pool)
    print(f"{wrong} of {len(options.names)} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
