#!/usr/bin/python3
"""Opens backups of Slipway without Slipway. See backup-format.md.

    backup-reader.py PLACE --key secrets.key            list what the place holds
    backup-reader.py PLACE --identity age.txt BKP TO    write a backup's files below the folder TO

PLACE is the directory of the backups, or a copy of the bucket. BKP is a backup's id, bkp_...
It needs Debian's python3-cryptography and python3-zstandard.
"""
import argparse, base64, hashlib, hmac, json, os, stat, sys
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SLOT = hashlib.sha256(b"slipway backup repository key").hexdigest()
MOST = 512 << 20  # bytes of one object


def hkdf(key, info, salt=None):
    return HKDF(hashes.SHA256(), 32, salt, info).derive(key)


def unsealed(text, keyfile):
    """The repository's key, sealed with the installation's: v1.<key id>.<base64 of nonce, box>."""
    _, wanted, box = text.split(".")
    box = base64.urlsafe_b64decode(box + "=" * (-len(box) % 4))
    for line in open(keyfile).read().split():
        key = bytes.fromhex(line)
        if hashlib.sha256(key).hexdigest()[:8] == wanted:
            return AESGCM(key).decrypt(box[:12], box[12:], b"backup/repository")
    raise SystemExit("the key file doesn't open these backups")


def bech32(text):
    alphabet, bits, n, out = "qpzry9x8gf2tvdw0s3jn54khce6mua7l", 0, 0, bytearray()
    for c in text.lower().rsplit("1", 1)[1][:-6]:
        bits, n = bits << 5 | alphabet.index(c), n + 5
        if n >= 8:
            n -= 8
            out.append(bits >> n & 0xFF)
    return bytes(out)


def aged(box, identities):
    """The repository's key, encrypted for age recipients (age-encryption.org/v1, X25519)."""
    plain64 = lambda s: base64.b64decode(s + b"=" * (-len(s) % 4))
    header, rest = box.split(b"\n---", 1)
    body = rest.split(b"\n", 1)[1]
    lines = header.split(b"\n")
    for line in open(identities):
        if not line.startswith("AGE-SECRET-KEY-1"):
            continue
        mine = X25519PrivateKey.from_private_bytes(bech32(line.strip()))
        public = mine.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        for i, stanza in enumerate(lines):
            if not stanza.startswith(b"-> X25519 "):
                continue
            share = plain64(stanza.split()[2])
            wrap = hkdf(mine.exchange(X25519PublicKey.from_public_bytes(share)), b"age-encryption.org/v1/X25519", share + public)
            try:
                filekey = ChaCha20Poly1305(wrap).decrypt(bytes(12), plain64(lines[i + 1]), None)
            except InvalidTag:
                continue
            # One chunk: the key has 32 bytes. Its nonce is eleven bytes of counter and the mark of the last.
            return ChaCha20Poly1305(hkdf(filekey, b"payload", body[:16])).decrypt(bytes(11) + b"\x01", body[16:], None)
    raise SystemExit("no identity opens these backups")


class Repository:
    def __init__(self, place, key, identity):
        self.place = place
        slot = json.loads(self.stored(SLOT))
        if identity:
            key = aged(base64.b64decode(slot.get("age") or ""), identity)
        else:
            key = unsealed(slot["sealed"], key)
        self.aead = AESGCM(hkdf(key, b"slipway backup encryption"))
        self.names = hkdf(key, b"slipway backup names")

    def stored(self, name):
        with open(os.path.join(self.place, name[:2], name), "rb") as f:
            return f.read(MOST)

    def object(self, name):
        """An object's plain bytes. What is not what was written raises InvalidTag."""
        box = self.stored(name)
        packed = self.aead.decrypt(box[:12], box[12:], name.encode())
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=MOST)

    def objects(self):
        for folder in sorted(os.listdir(self.place)):
            if len(folder) == 2:
                for name in sorted(os.listdir(os.path.join(self.place, folder))):
                    if len(name) == 64 and name != SLOT:
                        yield name

    def manifests(self):
        for name in self.objects():
            plain = self.object(name)
            if plain.startswith(b'{"version":'):
                yield Manifest(plain)


class Manifest:
    """A line of JSON, then three lists in binary. Numbers are unsigned varints."""

    def __init__(self, plain):
        head, self.rest = plain.split(b"\n", 1)
        self.head = json.loads(head)
        if self.head["version"] != 2:
            raise SystemExit("version %d of manifests is not read here" % self.head["version"])
        self.at = 0
        self.packs = [self.take(32).hex() for _ in range(self.number())]
        self.pieces = [(self.number(), self.number(), self.number(), self.take(32)) for _ in range(self.number())]
        files = self.number()
        self.number()  # the pieces of all files, for who makes room at once
        self.files = [self.file() for _ in range(files)]

    def number(self):
        n = shift = 0
        while True:
            c = self.rest[self.at]
            self.at, n, shift = self.at + 1, n | (c & 0x7F) << shift, shift + 7
            if c < 0x80:
                return n

    def take(self, n):
        self.at += n
        return self.rest[self.at - n : self.at]

    def file(self):
        f = {k: self.take(self.number()).decode("utf-8", "surrogateescape") for k in ("path", "link", "stamp")}
        f["size"], f["mode"], f["sum"] = self.number(), self.number(), self.take(32)
        f["pieces"] = [self.number() for _ in range(self.number())]
        return f


def restore(repo, m, to):
    pack = keep_last(repo.object)
    for f in m.files:
        path = os.path.normpath(os.path.join(to, f["path"]))
        if not path.startswith(os.path.normpath(to) + os.sep):
            raise SystemExit("%s lies outside" % f["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.realpath(os.path.dirname(path)) != os.path.abspath(os.path.dirname(path)):
            raise SystemExit("%s lies behind a link" % f["path"])
        if f["link"]:
            os.symlink(f["link"], path)
            continue
        digest = hashlib.sha256()
        with open(path, "xb") as out:
            for i in f["pieces"]:
                number, offset, length, _ = m.pieces[i]
                b = pack(m.packs[number])[offset : offset + length]
                digest.update(b)
                out.write(b)
            os.fchmod(out.fileno(), stat.S_IMODE(f["mode"]) or 0o600)
        if digest.digest() != f["sum"]:
            raise SystemExit("%s is damaged" % f["path"])


def keep_last(get):
    """Keeps the last object: pieces of a file lie beside each other."""
    kept = {}

    def last(name):
        if name not in kept:
            kept.clear()
            kept[name] = get(name)
        return kept[name]

    return last


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("place")
    p.add_argument("backup", nargs="?")
    p.add_argument("to", nargs="?")
    p.add_argument("--key", help="the installation's secrets.key")
    p.add_argument("--identity", help="a file of age identities, one of which was a recipient")
    a = p.parse_intermixed_args()
    if not (a.key or a.identity) or (a.backup and not a.to):
        p.error("name --key or --identity, and with a backup the folder that its files go to")
    repo = Repository(a.place, a.key, a.identity)
    for m in repo.manifests():
        if not a.backup:
            print(m.head["id"], m.head["at"], m.head.get("site") or "installation", len(m.files), sum(f["size"] for f in m.files))
        elif m.head["id"] == a.backup:
            os.makedirs(a.to, exist_ok=True)
            with open(os.path.join(a.to, "manifest.json"), "x") as out:
                json.dump(m.head, out, indent=2)
            restore(repo, m, os.path.realpath(a.to))
            return
    if a.backup:
        raise SystemExit("there is no backup " + a.backup)


try:
    main()
except InvalidTag:
    sys.exit("an object is damaged, or another key has written it")
except BrokenPipeError:
    pass
