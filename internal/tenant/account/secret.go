package account

import (
	"crypto/rand"
	"hash/crc32"
	"math/big"
	"strings"
)

// A key's secret: the prefix, 256 random bits in base62, and the CRC-32 (IEEE) of all
// that in base62. The checksum lets secret scanners tell a key from a lookalike without
// asking anybody, as GitHub's tokens do.
const (
	prefix    = "slw_"
	bodyLen   = 43 // 62^43 > 2^256
	sumLen    = 6  // 62^6 > 2^32
	secretLen = len(prefix) + bodyLen + sumLen
	hintLen   = len(prefix) + 6
)

func newSecret() string { return NewSecret(prefix) }

// NewSecret returns a secret of this form with a prefix of four characters, such as "slo_".
func NewSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:])
	text := prefix + base62(new(big.Int).SetBytes(b[:]), bodyLen)
	return text + checksum(text)
}

// LooksLikeKey reports whether s has the shape and the checksum of an API key.
func LooksLikeKey(s string) bool { return HasSecretForm(s, prefix) }

// HasSecretForm reports whether s has the shape and the checksum of a secret that NewSecret made with this prefix.
func HasSecretForm(s, prefix string) bool {
	if len(s) != secretLen || !strings.HasPrefix(s, prefix) {
		return false
	}
	return checksum(s[:secretLen-sumLen]) == s[secretLen-sumLen:]
}

// SecretHint is the beginning of a secret that may be shown, to tell secrets apart.
func SecretHint(secret string) string { return secret[:hintLen] }

func checksum(text string) string {
	return base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(text)))), sumLen)
}

func base62(n *big.Int, width int) string {
	s := n.Text(62)
	return strings.Repeat("0", width-len(s)) + s
}
