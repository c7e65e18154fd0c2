package db

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// alphabet is base32's letters and digits (RFC 4648 §6) in the order of their bytes, so
// that ids sort as the numbers they stand for.
var alphabet = base32.NewEncoding("234567abcdefghijklmnopqrstuvwxyz").WithPadding(base32.NoPadding)

// lastID is the time and count of the newest id, so that ids made by one process sort in
// the order they were made, also within a millisecond or when the clock steps back.
var lastID atomic.Uint64

// NewID returns prefix, "_" and 26 characters: 48 bits of time in milliseconds, 16 bits
// that count within one, then 64 random bits. Ids of one prefix sort by the time they
// were made.
func NewID(prefix string) string {
	var stamp uint64
	for {
		last := lastID.Load()
		stamp = max(uint64(time.Now().UnixMilli())<<16, last+1)
		if lastID.CompareAndSwap(last, stamp) {
			break
		}
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], stamp)
	rand.Read(b[8:])
	return prefix + "_" + alphabet.EncodeToString(b[:])
}

// FirstID returns what sorts before every id with the prefix that is made from a moment on.
func FirstID(prefix string, from Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(max(0, from))<<16)
	return prefix + "_" + alphabet.EncodeToString(b[:])
}

// Random returns n random bytes as base32, for names that must not be guessed.
func Random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return alphabet.EncodeToString(b)
}

// ID returns a new id of a type of its own: db.ID[site.ID]("site").
func ID[T ~string](prefix string) T { return T(NewID(prefix)) }
