// Package seal owns secrets at rest: it turns them into text that is safe to store and
// back, with a key that lives outside the database.
//
// AES-256-GCM with a random nonce; the purpose (and the row it belongs to) is bound as
// additional data, so that a sealed value copied to another row does not open. Several
// keys may be held: the newest seals, all open. It never logs and never prints a secret.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/platform/disk"
)

// ErrOpen is returned if no key opens a value, or if it was sealed for another purpose.
var ErrOpen = errors.New("sealed value does not open: the secrets key is another one, or the value was changed")

// Sealer seals and opens. It is safe for concurrent use.
type Sealer struct {
	newest string
	keys   map[string]cipher.AEAD // by id: the first 8 hex digits of the key's SHA-256
}

// Load reads the keys at path, one per line in hex, the newest last. If the file is missing, it creates one (0600) with
// a new key.
func Load(path string) (*Sealer, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = create(path); err != nil {
			return nil, fmt.Errorf("create secrets key: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read secrets key: %w", err)
	}
	s := &Sealer{keys: map[string]cipher.AEAD{}}
	for line := range strings.FieldsSeq(string(text)) {
		key, err := hex.DecodeString(line)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("read secrets key: %s holds a line that is not 64 hex digits", path)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(key)
		s.newest = hex.EncodeToString(sum[:4])
		if s.keys[s.newest], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, err
		}
	}
	if s.newest == "" {
		return nil, fmt.Errorf("read secrets key: %s is empty", path)
	}
	return s, nil
}

// Newest returns the id of the key that seals: the first 8 hex digits of its SHA-256.
func (s *Sealer) Newest() string { return s.newest }

// Has reports whether the Sealer has a key.
func (s *Sealer) Has(id string) bool { return s.keys[id] != nil }

// create writes a new key and returns the file's content. If two processes start at once, both return the first one's.
func create(path string) ([]byte, error) {
	key := make([]byte, 32)
	rand.Read(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := disk.Create(path, fmt.Appendf(nil, "%x\n", key), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// Seal returns plain sealed for the purpose, as text: "v1.<key id>.<base64>".
func (s *Sealer) Seal(plain []byte, purpose string) string {
	box := s.keys[s.newest].Seal(nil, nil, plain, []byte(purpose))
	return "v1." + s.newest + "." + base64.RawURLEncoding.EncodeToString(box)
}

// Open returns what was sealed for the purpose, or ErrOpen.
func (s *Sealer) Open(sealed, purpose string) ([]byte, error) {
	rest, ok := strings.CutPrefix(sealed, "v1.")
	id, text, ok2 := strings.Cut(rest, ".")
	aead := s.keys[id]
	if !ok || !ok2 || aead == nil {
		return nil, ErrOpen
	}
	box, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, ErrOpen
	}
	plain, err := aead.Open(nil, nil, box, []byte(purpose))
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}
