package toolchain

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"slipway/internal/platform/lease"
)

// taken is a tool in use. The modification time of its lock is when the tool was last taken.
type taken struct {
	once sync.Once
	file *os.File
}

func (l *taken) release() { l.once.Do(func() { lease.Unlock(l.file) }) }

// take takes a tool that is there; nil when it is not, or is being made or removed.
func (t *Toolchain) take(p pack) (*taken, error) {
	f, err := t.locks.Try(p.key(), false)
	if f == nil || err != nil {
		return nil, err
	}
	if _, err := os.Lstat(t.kept(p)); err != nil {
		lease.Unlock(f)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("take %s: %w", p.key(), err)
	}
	now := t.now()
	_ = os.Chtimes(t.locks.Path(p.key()), now, now) // only the order of sweeping hangs on it
	return &taken{file: f}, nil
}
