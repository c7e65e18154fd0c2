package db

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// alphabet is base32's letters and digits (RFC 4648 §6) in the order of their bytes, so
// that ids sort as the numbers they stand for.
var alphabet = base32.NewEncoding("234567abcdefghijklmnopqrstuvwxyz").WithPadding(base32.NoPadding)

// NewID returns prefix, "_" and 26 characters: 48 bits of time in milliseconds, then 80
// random bits. Ids of one prefix sort by the time they were made.
func NewID(prefix string) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:])
	return prefix + "_" + alphabet.EncodeToString(b[:])
}

// Random returns n random bytes as base32, for names that must not be guessed.
func Random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return alphabet.EncodeToString(b)
}
