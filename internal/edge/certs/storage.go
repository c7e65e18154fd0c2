package certs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/certmagic"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
)

// Storage is a [certmagic.Storage] in the database that all nodes share. Values are sealed and bound to their key.
//
// Certificates stored during an attempt are held back: they are written in the transaction that activates them.
type Storage struct {
	db   *db.DB
	seal *seal.Sealer
	me   string // identifies the holder of locks taken here

	mu sync.Mutex // guards locks
	// share: total the locks of certificate orders under way; owner those of its orders; edge gone with the order
	locks map[string]context.CancelFunc
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// NewStorage returns a Storage in a database.
func NewStorage(d *db.DB, s *seal.Sealer) *Storage {
	return &Storage{db: d, seal: s, me: db.NewID("lock"), locks: map[string]context.CancelFunc{}}
}

// Store sets the value of a key.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if a := attemptOf(ctx); a != nil && strings.HasPrefix(key, "certificates/") {
		a.stored[key] = value
		return nil
	}
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.storeTx(ctx, tx, key, value) })
}

func (s *Storage) storeTx(ctx context.Context, tx *db.Tx, key string, value []byte) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO acme_storage (key, value, size, modified) VALUES ($1, $2, $3, $4)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, size = excluded.size, modified = excluded.modified`,
		key, s.seal.Seal(value, purpose(key)), len(value), db.Now())
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}

func purpose(key string) string { return "acme/" + key }

// Load returns the value of a key, or fs.ErrNotExist.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	return s.load(ctx, s.db, key)
}

func (s *Storage) load(ctx context.Context, r db.Reader, key string) ([]byte, error) {
	var sealed string
	err := r.QueryRow(ctx, "SELECT value FROM acme_storage WHERE key = $1", key).Scan(&sealed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("load %s: %w", key, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", key, err)
	}
	value, err := s.seal.Open(sealed, purpose(key))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", key, err)
	}
	return value, nil
}

// Delete removes a key and all keys below it. A missing key isn't an error.
func (s *Storage) Delete(ctx context.Context, key string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.deleteTx(ctx, tx, key) })
}

func (s *Storage) deleteTx(ctx context.Context, tx *db.Tx, key string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM acme_storage WHERE key = $1 OR substr(key, 1, $2) = $3", key,
		length(key+"/"), key+"/"); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Folders are compared with substr, which is independent of LIKE's wildcards and PostgreSQL's collation. It scans the
// whole table; certmagic doesn't list folders while it orders or serves certificates.
func length(prefix string) int { return utf8.RuneCountInString(prefix) }

// Exists reports whether the key or a key below it has a value.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// List returns the sorted keys directly in a folder, or all keys below it if recursive, or fs.ErrNotExist.
func (s *Storage) List(ctx context.Context, folder string, recursive bool) ([]string, error) {
	folder = strings.Trim(folder, "/")
	prefix := folder + "/"
	if folder == "" {
		prefix = ""
	}
	rows, err := s.db.Query(ctx, "SELECT key FROM acme_storage WHERE substr(key, 1, $1) = $2 ORDER BY key", length(prefix), prefix)
	keys, err := db.Collect(rows, err, column)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("list %s: %w", folder, fs.ErrNotExist)
	}
	out, seen := []string{}, map[string]bool{}
	for _, key := range keys {
		if !recursive {
			first, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
			key = path.Join(folder, first)
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out, nil
}

// Stat describes a key or folder, or returns fs.ErrNotExist.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	info := certmagic.KeyInfo{Key: key, IsTerminal: true}
	var modified db.Time
	err := s.db.QueryRow(ctx, "SELECT size, modified FROM acme_storage WHERE key = $1", key).Scan(&info.Size, &modified)
	if err == nil {
		info.Modified = modified.Time()
		return info, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return certmagic.KeyInfo{}, fmt.Errorf("stat %s: %w", key, err)
	}
	if _, err := s.List(ctx, key, false); err != nil {
		return certmagic.KeyInfo{}, fmt.Errorf("stat: %w", err)
	}
	return certmagic.KeyInfo{Key: key}, nil
}

// A lock is a lease that its holder renews, so a crashed holder loses it when the lease ends.
const (
	lockLease = 30 * time.Second
	lockBeat  = 10 * time.Second
	lockPoll  = 250 * time.Millisecond
)

// Lock waits until it holds the lock or ctx ends.
func (s *Storage) Lock(ctx context.Context, name string) error {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		if ok, err := s.TryLock(ctx, name); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

// TryLock takes the lock if it is free. A lock held by this process is not free either.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	s.mu.Lock()
	_, mine := s.locks[name]
	if !mine {
		s.locks[name] = func() {} // reserved while the lease is taken; others in this process wait
	}
	s.mu.Unlock()
	if mine {
		return false, nil
	}
	got, err := s.lease(ctx, name, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !got || err != nil {
		delete(s.locks, name)
		return false, err
	}
	// The holder's context may end before Unlock, but the lease must not.
	beat, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.locks[name] = stop
	// uncaught: renews a lease
	go s.keep(beat, name)
	return true, nil
}

// lease takes the row, or extends it if this process holds it.
func (s *Storage) lease(ctx context.Context, name string, take bool) (got bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		now := tx.Now()
		var n int64
		var err error
		if take {
			n, err = tx.Exec(ctx, `
				INSERT INTO acme_locks (name, holder, until) VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
				WHERE acme_locks.until < $4`, name, s.me, now.Add(lockLease), now)
		} else {
			n, err = tx.Exec(ctx, "UPDATE acme_locks SET until = $3 WHERE name = $1 AND holder = $2", name, s.me, now.Add(lockLease))
		}
		got = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", name, err)
	}
	return got, nil
}

// keep renews a lease until Unlock. A failed renewal is repeated at the next beat.
func (s *Storage) keep(ctx context.Context, name string) {
	tick := time.NewTicker(lockBeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.lease(ctx, name, false)
		}
	}
}

// Unlock releases the lock.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	stop, ok := s.locks[name]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("unlock %s: it is not held here", name)
	}
	stop()
	err := s.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM acme_locks WHERE name = $1 AND holder = $2", name, s.me)
		return err
	})
	s.mu.Lock()
	delete(s.locks, name)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}
