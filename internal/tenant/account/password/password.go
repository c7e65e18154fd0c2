// Package password owns how passwords are chosen and kept: what one has to be, and its argon2id
// hash as a PHC string.
//
// Hashing takes memory on purpose, so hashes wait for a place, shared by network.
package password

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// The cost of a password: OWASP's first choice for argon2id, about 40 ms and 19 MiB.
const (
	memory  = 19 * 1024 // KiB
	passes  = 2
	threads = 1
)

// A password's length, in characters and in bytes.
const (
	shortest = 12
	longest  = 1024
)

// Hasher hashes passwords. It is safe for concurrent use.
type Hasher struct {
	memory uint32     // of one hash, in KiB
	places *fair.Pool // bounds argon2id's memory
}

// New returns a hasher whose hashes take so much memory, in KiB. 0 means 19 MiB, OWASP's first choice.
func New(kib uint32) *Hasher {
	n := max(2, runtime.NumCPU())
	return &Hasher{
		memory: cmp.Or(kib, memory),
		// share: total 2 passwords hashed at once, or one for each processor; 200 waiting; owner half of them, and as much for each network that nobody is signed in from; edge waits in turn, then 503 with Retry-After
		places: fair.New(fair.Config{Places: n, Owner: n / 2, Waiting: 200, OwnerWaiting: 20}),
	}
}

// Decoy returns a hash that no password has. Comparing with it takes as long as comparing with a user's.
func (h *Hasher) Decoy() string {
	return fmt.Sprintf(
		"$argon2id$v=19$m=%d,t=%d,p=%d$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", h.memory, passes, threads)
}

// Hash checks that the password is good enough and returns it as a PHC string
// (github.com/P-H-C/phc-string-format).
func (h *Hasher) Hash(ctx context.Context, email, password string) (string, error) {
	refuse := func(details string) (string, error) {
		return "", fault.New(fault.Invalid, "weak_password", "Password doesn't meet the requirements", details)
	}
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return refuse("a password is text in UTF-8")
	case utf8.RuneCountInString(password) < shortest:
		return refuse(fmt.Sprintf("a password has at least %d characters; a few unrelated words are easy to remember", shortest))
	case len(password) > longest:
		return refuse(fmt.Sprintf("a password has at most %d bytes", longest))
	case strings.EqualFold(password, email):
		return refuse("a password must not be the email address")
	case strings.Count(password, password[:1]) == len(password):
		return refuse("a password must not be one repeated character")
	}
	var salt [16]byte
	rand.Read(salt[:])
	sum, err := h.argon(ctx, password, salt[:], passes, h.memory, threads, 32)
	if err != nil {
		return "", err
	}
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, passes, threads, b64(salt[:]), b64(sum)), nil
}

// Matches compares a password with a PHC string, in constant time, with the parameters
// that the string names: older hashes go on working when ours grow.
func (h *Hasher) Matches(ctx context.Context, phc, password string) (bool, error) {
	var version, m, t, p int
	part := strings.Split(phc, "$")
	if len(part) != 6 || part[1] != "argon2id" {
		return false, errors.New("the stored password is not argon2id")
	}
	if _, err := fmt.Sscanf(part[2]+" "+part[3], "v=%d m=%d,t=%d,p=%d", &version, &m, &t, &p); err != nil ||
		version != argon2.Version || m < 8 || m > 1<<20 || t < 1 || t > 100 || p < 1 || p > 64 {
		return false, errors.New("the stored password has unknown parameters")
	}
	salt, err := base64.RawStdEncoding.DecodeString(part[4])
	want, err2 := base64.RawStdEncoding.DecodeString(part[5])
	if err != nil || err2 != nil || len(want) < 16 || len(want) > 64 {
		return false, errors.New("the stored password is damaged")
	}
	if len(password) > longest {
		return false, nil
	}
	got, err := h.argon(ctx, password, salt, uint32(t), uint32(m), uint8(p), uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1, err
}

// argon runs argon2id (RFC 9106) on the normalised password when its turn comes: memory
// is what a flood of logins would exhaust.
func (h *Hasher) argon(ctx context.Context, password string, salt []byte, t, m uint32, p uint8, n uint32) ([]byte, error) {
	done, err := h.places.Take(ctx, fair.Who{Owner: db.Share(ctx)})
	if errors.Is(err, fair.ErrFull) {
		return nil, &fault.Error{
			Kind:       fault.Unavailable,
			Code:       "busy",
			Message:    "Too many passwords are being checked",
			Details:    "try again in a few seconds",
			RetryAfter: 5 * time.Second,
		}
	}
	if err != nil {
		return nil, err
	}
	defer done()
	return argon2.IDKey([]byte(norm.NFKC.String(password)), salt, t, m, p, n), nil
}
