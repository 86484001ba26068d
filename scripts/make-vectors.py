#!/usr/bin/env python3
"""Test vectors of Forebay's keys, computed from docs/keys.md alone: no code is shared with the library.

    scripts/make-vectors.py            writes tests/vectors/keys.txt
    scripts/make-vectors.py --check    recomputes every line of the file and compares

SHA-256 comes from hashlib; XXH3-128 with a secret is written out below (messages of 17 bytes and more, as ours are).
"""
import argparse
import hashlib
import pathlib
import random
import struct
import sys

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/vectors/keys.txt"
MASK = (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
TYPES = {"adapter": 1, "salt": 2, "tenant": 3, "text": 4}

# ---- XXH3-128 with a secret ---------------------------------------------------------------------------------------


def le64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def mix16(data, at, secret, s):
    return fold(le64(data, at) ^ le64(secret, s), le64(data, at + 8) ^ le64(secret, s + 8))


def mix32(acc, data, one, two, secret, s):
    low, high = acc
    low = (low + mix16(data, one, secret, s)) & MASK ^ (le64(data, two) + le64(data, two + 8)) & MASK
    high = (high + mix16(data, two, secret, s + 16)) & MASK ^ (le64(data, one) + le64(data, one + 8)) & MASK
    return low, high


def middle(acc, n):
    low, high = acc
    first = avalanche((low + high) & MASK)
    second = avalanche((low * P64[0] + high * P64[3] + n * P64[1]) & MASK)
    return -second & MASK, first


def accumulate(acc, data, at, secret, s):
    for i in range(8):
        value = le64(data, at + 8 * i)
        key = value ^ le64(secret, s + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & MASK
        acc[i] = (acc[i] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK


def merge(acc, secret, s, start):
    for i in range(4):
        start += fold(acc[2 * i] ^ le64(secret, s + 16 * i), acc[2 * i + 1] ^ le64(secret, s + 16 * i + 8))
    return avalanche(start & MASK)


def xxh3_long(data, secret):
    n, size = len(data), len(secret)
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes = (size - 64) // 8
    blocks = (n - 1) // (64 * stripes)
    for block in range(blocks):
        for i in range(stripes):
            accumulate(acc, data, 64 * (block * stripes + i), secret, 8 * i)
        for i in range(8):
            acc[i] = ((acc[i] ^ acc[i] >> 47) ^ le64(secret, size - 64 + 8 * i)) * P32[0] & MASK
    for i in range((n - 1 - 64 * stripes * blocks) // 64):
        accumulate(acc, data, 64 * (blocks * stripes + i), secret, 8 * i)
    accumulate(acc, data, n - 64, secret, size - 64 - 7)
    low = merge(acc, secret, 11, n * P64[0] & MASK)
    high = merge(acc, secret, size - 64 - 11, ~(n * P64[1]) & MASK)
    return high, low


def xxh3_128(data, secret):
    n = len(data)
    assert n > 16 and len(secret) == 192
    if n > 240:
        high, low = xxh3_long(data, secret)
    elif n > 128:
        acc = n * P64[0] & MASK, 0
        for i in range(4):
            acc = mix32(acc, data, 32 * i, 32 * i + 16, secret, 32 * i)
        acc = avalanche(acc[0]), avalanche(acc[1])
        for i in range(4, n // 32):
            acc = mix32(acc, data, 32 * i, 32 * i + 16, secret, 3 + 32 * (i - 4))
        high, low = middle(mix32(acc, data, n - 16, n - 32, secret, 136 - 17 - 16), n)
    else:
        acc = n * P64[0] & MASK, 0
        for i in range((n - 1) // 32, -1, -1):
            acc = mix32(acc, data, 16 * i, n - 16 * (i + 1), secret, 32 * i)
        high, low = middle(acc, n)
    return struct.pack(">QQ", high, low)


# ---- Keys, as docs/keys.md has them ---------------------------------------------------------------------------------


def xxh3_secret(secret):
    return b"".join(hashlib.sha256(b"forebay-xxh3-secret-1" + struct.pack("<I", i) + secret).digest() for i in range(6))


def hash128(kind, secret, message):
    return hashlib.sha256(message).digest()[:16] if kind == "sha256" else xxh3_128(message, xxh3_secret(secret))


def namespace(parts):
    parts = [(kind, data) for kind, data in parts if not (kind == "salt" and data == b"")]
    return struct.pack("<I", len(parts)) + b"".join(struct.pack("<BI", TYPES[k], len(d)) + d for k, d in parts)


def root(kind, secret, fingerprint, parts):
    head = b"forebay-root-1" + struct.pack("<I", len(secret)) + secret + fingerprint
    return hash128(kind, secret, head + namespace(parts))


def chain(kind, secret, h, tokens, block_tokens):
    hashes = []
    for at in range(0, len(tokens) - block_tokens + 1, block_tokens):
        h = hash128(kind, secret, h + struct.pack(f"<{block_tokens}I", *tokens[at:at + block_tokens]))
        hashes.append(h)
    return hashes


def fingerprint(f):
    def field(tag, data):
        return struct.pack("<BI", tag, len(data)) + data

    def u32(tag, value):
        return field(tag, struct.pack("<I", value))

    message = b"forebay-fingerprint-1" + u32(1, 1)
    for tag, name in ((2, "model_id"), (3, "revision"), (5, "kv_dtype"), (7, "layer_set"), (8, "layout")):
        message += field(tag, f[name].encode())
    message += field(4, struct.pack("<Q", f["epoch"]))
    for tag, name in ((6, "block_tokens"), (9, "tp"), (10, "cp"), (11, "pp")):
        message += u32(tag, f[name])
    message += u32(12, len(f["groups"]))
    for name, payload, trailing in f["groups"]:
        message += field(13, name.encode()) + u32(14, payload) + u32(15, trailing)
    return hashlib.sha256(message).digest()[:16]


# ---- The file -------------------------------------------------------------------------------------------------------

HEAD = """\
# Vectors of Forebay's keys; docs/keys.md says what each line computes. Made by scripts/make-vectors.py.
#
# fingerprint model_id revision epoch kv_dtype block_tokens layer_set layout tp cp pp name:payload_bytes:trailing,... digest
# chain hash block_tokens secret fingerprint namespace tokens root h0,h1,... key
#
# Bytes are hex and '-' is none. A namespace is type:bytes,... with type adapter, salt, tenant or text. Tokens are decimal;
# a*b stands for b tokens counting up from a (modulo 2^32). The key is that of the last block in group 1.
"""


def hexed(data):
    return data.hex() or "-"


def unhexed(text):
    return b"" if text == "-" else bytes.fromhex(text)


def tokens_of(text):
    tokens = []
    for piece in [] if text == "-" else text.split(","):
        start, _, count = piece.partition("*")
        tokens += [(int(start) + i) % (1 << 32) for i in range(int(count or 1))]
    return tokens


def fingerprint_answer(words):
    names = ("model_id", "revision", "epoch", "kv_dtype", "block_tokens", "layer_set", "layout", "tp", "cp", "pp")
    f = dict(zip(names, words))
    for name in ("epoch", "block_tokens", "tp", "cp", "pp"):
        f[name] = int(f[name])
    groups = (group.split(":") for group in words[10].split(","))
    f["groups"] = [(name, int(payload), int(trailing)) for name, payload, trailing in groups]
    return [fingerprint(f).hex()]


def chain_answer(words):
    kind, block_tokens, secret, digest, space, tokens = words[:6]
    parts = [] if space == "-" else [(p.split(":")[0], unhexed(p.split(":")[1])) for p in space.split(",")]
    first = root(kind, unhexed(secret), unhexed(digest), parts)
    hashes = chain(kind, unhexed(secret), first, tokens_of(tokens), int(block_tokens))
    return [first.hex(), ",".join(h.hex() for h in hashes) or "-", f"{hashes[-1].hex()}-g1" if hashes else "-"]


ANSWERS = {"fingerprint": (11, fingerprint_answer), "chain": (6, chain_answer)}
FINGERPRINTS = [
    "org/model r1 0 bf16 16 0-31 layer_first 1 1 1 full:4096:0",
    "org/model r2 0 bf16 16 0-31 layer_first 1 1 1 full:4096:0",
    "org/model r1 1 bf16 16 0-31 layer_first 1 1 1 full:4096:0",
    "org/model r1 18446744073709551615 fp8_e4m3 64 0-60 mla 8 1 2 latent:73728:0,index:8448:0",
    "org/hybrid main 7 bf16 32 0-47 block_first 4 1 1 full:131072:0,window:32768:4,state:2097152:1",
]
NAMESPACES = [
    "-", "salt:-", "adapter:-", "tenant:-", "text:-", "adapter:58", "salt:58", "tenant:58", "text:58",
    "adapter:58,salt:58", "salt:58,adapter:58", "adapter:6162,salt:63", "adapter:61,salt:6263", "adapter:58,salt:-",
    "text:61,text:62", "text:62,text:61", "text:6162", "text:" + b"forebay-root-1".hex(), "text:" + b"salt:X".hex(),
    "text:00", "text:0000", "tenant:" + b"../../etc/passwd".hex(), "text:" + "0a" * 40, "text:" + bytes(range(256)).hex(),
    "adapter:" + "ff" * 300 + ",salt:" + "00" * 64 + ",tenant:" + b"acme".hex(), "text:" + "41" * 1500,
]
SHAPES = [(4, "0*4"), (4, "1*12"), (1, "7*3"), (16, "100*32"), (16, "4294967288*16"), (16, "5*39"), (32, "9,8,7*30,0*32"),
          (64, "1000*64"), (256, "1*256"), (300, "3*300"), (2048, "11*2048"), (16, "1*15"), (16, "-")]
SECRETS = {"sha256": ["-", "6b", "00" * 16, bytes(range(64)).hex()],
           "xxh3": ["00" * 16, bytes(range(16)).hex(), bytes(range(1, 33)).hex(), bytes(range(64)).hex()]}


def questions():
    yield from ("fingerprint " + line for line in FINGERPRINTS)
    draw = random.Random(1)
    digests = ["00" * 16, "ff" * 16, bytes(range(16)).hex()]
    for kind, secrets in SECRETS.items():
        for space in NAMESPACES:
            yield f"chain {kind} 16 {secrets[0]} {digests[2]} {space} 100*32"
        for block_tokens, tokens in SHAPES:
            for secret in secrets:
                yield f"chain {kind} {block_tokens} {secret} {digests[0]} adapter:58 {tokens}"
        for _ in range(40):
            block_tokens = draw.choice([1, 2, 4, 8, 16, 24, 48, 96])
            tokens = ",".join(str(draw.getrandbits(32)) for _ in range(2 * block_tokens))
            yield (f"chain {kind} {block_tokens} {draw.choice(secrets)} {draw.choice(digests)} "
                   f"{draw.choice(NAMESPACES[:20])} {tokens}")


def answered(question):
    kind, *words = question.split()
    return " ".join([question] + ANSWERS[kind][1](words))


def check():
    wrong = lines = 0
    for number, line in enumerate(FILE.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        words = line.split()
        expected = answered(" ".join(words[:1 + ANSWERS[words[0]][0]]))
        lines += 1
        if line != expected:
            wrong += 1
            print(f"{FILE.name}:{number}: have {line}\n  want {expected}")
    print(f"{lines} vectors, {wrong} wrong")
    return 1 if wrong or lines < 200 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return check()
    FILE.write_text(HEAD + "".join(answered(question) + "\n" for question in questions()))
    return 0


sys.exit(main())
