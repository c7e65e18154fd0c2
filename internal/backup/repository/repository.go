// Package repository owns the format of backups (docs/backup-format.md): sealed objects at a place, the
// packs that content is cut into, and the lists of what lies where. It knows nothing of sites.
//
// Begin with repository.go; pack.go writes content, read.go reads it back, contents.go lists it.
package repository

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
)

// Repository stores sealed objects at a place, a directory or a bucket: packs of file
// pieces, and the manifests that name them. An object is compressed, then encrypted with
// AES-256-GCM. Its name is a keyed hash of digests of its plain bytes, so that equal bytes are
// stored once and the names tell nobody anything. It is safe for concurrent use.
//
// The repository's key is drawn when the first object is stored, and lies in the place
// itself: sealed with the installation's key, and encrypted for the operator's recipients
// (age-encryption.org/v1) where there are any.
type Repository struct {
	at         blob.Backend
	seal       *seal.Sealer // nil: only an identity opens it
	recipients []age.Recipient
	identities []age.Identity
	readOnly   bool

	mu   sync.Mutex // guards keys
	keys *keys      // nil until first used
}

type keys struct {
	aead        cipher.AEAD
	name, nonce []byte
}

// Config says where a repository is and what opens it. Backend is required, and
// one of Seal and Identities.
type Config struct {
	Backend    blob.Backend
	Seal       *seal.Sealer
	Recipients []age.Recipient // who else may open it. Optional.
	Identities []age.Identity  // open it without the installation's key. Optional.
	ReadOnly   bool            // a place without backups is an error, not the beginning of one
}

// New returns the repository at a place. It reads nothing yet.
func New(c Config) *Repository {
	return &Repository{at: c.Backend, seal: c.Seal, recipients: c.Recipients, identities: c.Identities, readOnly: c.ReadOnly}
}

// maxObject bounds an object's plain bytes. Packs are far smaller; manifests of many files
// are not.
const maxObject = 512 << 20

// KeySlot is the name of what the repository's key lies under.
var KeySlot = nameOf("slipway backup repository key")

func nameOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

type slot struct {
	Sealed string `json:"sealed,omitempty"` // with the installation's key
	Age    []byte `json:"age,omitempty"`    // for the recipients
}

const keyPurpose = "backup/repository"

// ErrNoKey is the error of a repository whose key neither the installation's key nor an
// identity opens.
var ErrNoKey = fault.New(fault.Conflict, "backup_key_missing", "The backups can't be opened with this installation's key",
	"they were made by another installation: restore with its secrets.key, or with an age identity that was a recipient")

func (r *Repository) open(ctx context.Context) (*keys, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys != nil {
		return r.keys, nil
	}
	raw, err := r.read(ctx, KeySlot, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return r.create(ctx)
	}
	if err != nil {
		return nil, err
	}
	var s slot
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read the key of the backups: %w", err)
	}
	key, err := r.unwrap(s)
	if err != nil {
		return nil, err
	}
	r.keys, err = derive(key)
	return r.keys, err
}

func (r *Repository) unwrap(s slot) ([]byte, error) {
	if r.seal != nil && s.Sealed != "" {
		if key, err := r.seal.Open(s.Sealed, keyPurpose); err == nil {
			return key, nil
		}
	}
	if len(r.identities) > 0 && len(s.Age) > 0 {
		plain, err := age.Decrypt(bytes.NewReader(s.Age), r.identities...)
		if err == nil {
			return io.ReadAll(io.LimitReader(plain, 1<<10))
		}
	}
	return nil, ErrNoKey
}

// create draws the key of a new repository. Of two that do it at once the one whose slot
// stays wins, which both read back.
func (r *Repository) create(ctx context.Context) (*keys, error) {
	if r.seal == nil || r.readOnly {
		return nil, &fault.Error{Kind: fault.NotFound, Message: "No backups found at this location", Details: "check the address"}
	}
	for e, err := range r.at.List(ctx) {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the place holds %s, but not the key of its backups", e.Name)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	s := slot{Sealed: r.seal.Seal(key, keyPurpose)}
	if len(r.recipients) > 0 {
		var out bytes.Buffer
		w, err := age.Encrypt(&out, r.recipients...)
		if err != nil {
			return nil, fmt.Errorf("encrypt the key of the backups: %w", err)
		}
		if _, err := w.Write(key); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		s.Age = out.Bytes()
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := r.at.Put(ctx, KeySlot, bytes.NewReader(raw), int64(len(raw))); err != nil {
		return nil, fmt.Errorf("store the key of the backups: %w", err)
	}
	r.keys, err = derive(key)
	return r.keys, err
}

func derive(key []byte) (*keys, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("the key of the backups has %d bytes, want 32", len(key))
	}
	part := func(what string) []byte {
		b, _ := hkdf.Key(sha256.New, key, nil, "slipway backup "+what, 32) // fails only for absurd lengths (RFC 5869 §2.3)
		return b
	}
	block, err := aes.NewCipher(part("encryption"))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &keys{aead: aead, name: part("names"), nonce: part("nonces")}, nil
}

// nameOf is the name of what is known by digests of its plain bytes: of all of them, or of a
// pack's pieces, one after the other.
func (k *keys) nameOf(digests []byte) string {
	h := hmac.New(sha256.New, k.name)
	h.Write(digests)
	return hex.EncodeToString(h.Sum(nil))
}

var (
	// share: total one for each processor that compresses; owner as many as its backups, of which one runs; edge more are made
	encoders = sync.Pool{New: func() any {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
		return e
	}}
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxObject))
		return d
	})
)

// Put stores an object and returns its name and the bytes that it takes.
func (r *Repository) Put(ctx context.Context, plain []byte) (name string, stored int64, err error) {
	sum := sha256.Sum256(plain)
	return r.putBy(ctx, sum[:], plain)
}

// putBy is Put for who has the digests already: no other bytes may have them.
func (r *Repository) putBy(ctx context.Context, digests, plain []byte) (name string, stored int64, err error) {
	k, err := r.open(ctx)
	if err != nil {
		return "", 0, err
	}
	if len(plain) > maxObject {
		return "", 0, &fault.Error{Kind: fault.TooLarge, Message: "The backup's list of files is too long"}
	}
	name = k.nameOf(digests)
	sealed := k.seal(name, plain)
	return name, int64(len(sealed)), r.store(ctx, name, sealed)
}

// store stores a sealed object.
func (r *Repository) store(ctx context.Context, name string, sealed []byte) error {
	return storeError(r.at.Put(ctx, name, bytes.NewReader(sealed), int64(len(sealed))))
}

// seal compresses and encrypts an object for its name.
func (k *keys) seal(name string, plain []byte) []byte {
	e := encoders.Get().(*zstd.Encoder)
	packed := e.EncodeAll(plain, make([]byte, k.aead.NonceSize(), k.aead.NonceSize()+len(plain)/2+64))
	encoders.Put(e)
	// The nonce follows from what is encrypted: equal bytes give equal objects, and no two
	// different messages share one (the construction of SIV, RFC 5297 §1.3).
	body := packed[k.aead.NonceSize():]
	h := hmac.New(sha256.New, k.nonce)
	h.Write([]byte(name))
	h.Write(body)
	copy(packed, h.Sum(nil)[:k.aead.NonceSize()])
	// In place: what is sealed is as long as what it takes the place of, and the tag.
	return k.aead.Seal(packed[:k.aead.NonceSize()], packed[:k.aead.NonceSize()], body, []byte(name))
}

// unseal is the inverse of seal.
func (k *keys) unseal(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < k.aead.NonceSize() {
		return nil, damaged(name)
	}
	packed, err := k.aead.Open(nil, sealed[:k.aead.NonceSize()], sealed[k.aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, damaged(name)
	}
	plain, err := decoder().DecodeAll(packed, nil)
	if err != nil {
		return nil, damaged(name)
	}
	return plain, nil
}

// Get returns an object's plain bytes, which are the very ones that were put.
func (r *Repository) Get(ctx context.Context, name string) ([]byte, error) {
	k, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	sealed, err := r.read(ctx, name, maxObject)
	if err != nil {
		return nil, err
	}
	plain, err := k.unseal(name, sealed) // which proves that seal has had them under this name
	if err != nil {
		r.at.Distrust(name)
		return nil, err
	}
	return plain, nil
}

func (r *Repository) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, size, err := r.at.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, damaged(name)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, damaged(name)
		}
		return nil, err
	}
	return b, nil
}

// ErrDamaged is the error of a backup whose stored bytes are not those that were written.
var ErrDamaged = errors.New("the backup is damaged")

func damaged(name string) error { return fmt.Errorf("object %.12s…: %w", name, ErrDamaged) }

// storeError gives a full place its words.
func storeError(err error) error {
	if disk.Full(err) {
		return fault.New(fault.Unavailable, "backup_place_full", "The backup storage is full",
			"free some space, then back up again")
	}
	return err
}

// sweepAge is how old an object must be before a sweep may take it: longer than a backup
// takes from its first object to its manifest.
const sweepAge = 24 * time.Hour

// Sweep deletes the objects that keep doesn't name and that are older than sweepAge.
func (r *Repository) Sweep(ctx context.Context, keep map[string]bool) (removed int, size int64, err error) {
	var gone []blob.Entry
	for e, err := range r.at.List(ctx) {
		if err != nil {
			return 0, 0, err
		}
		if !keep[e.Name] && e.Name != KeySlot && time.Since(e.Time) > sweepAge {
			gone = append(gone, e)
		}
	}
	for _, e := range gone {
		if err := r.at.Delete(ctx, e.Name); err != nil {
			return removed, size, err
		}
		removed++
		size += e.Size
	}
	return removed, size, nil
}
