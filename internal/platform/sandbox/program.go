package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The helper inside (cmd/slipway-init) is a program of its own, which the Makefile builds into
// ours under the tag slipway_init:
//
//	go generate ./internal/platform/sandbox
//	go build -tags slipway_init ./cmd/slipway
//
// Without the tag our own binary is started in its place (inside/reexec.go).
//
//go:generate env CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags slipway_init -ldflags "-s -w" -o slipway-init.$GOARCH slipway/cmd/slipway-init

// helperName is the prefix of the helper's file name.
const helperName = "slipway-init-"

// helperKept is how long another version's helper is kept: that version may run at the same time during an upgrade.
const helperKept = 24 * time.Hour

// ownHelper returns the path of the helper in dir and writes it if it is missing.
func ownHelper(dir string) (string, error) {
	if len(helperProgram) == 0 {
		return os.Executable()
	}
	return writeHelper(dir, helperProgram)
}

func writeHelper(dir string, program []byte) (string, error) {
	sum := sha256.Sum256(program)
	path := filepath.Join(dir, helperName+hex.EncodeToString(sum[:8]))
	now := time.Now()
	others, _ := filepath.Glob(filepath.Join(dir, helperName+"*"))
	for _, other := range others {
		if st, err := os.Lstat(other); err == nil && other != path && now.Sub(st.ModTime()) > helperKept {
			_ = os.Remove(other)
		}
	}
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, program) && os.Chmod(path, 0o755) == nil {
		return path, os.Chtimes(path, now, now)
	}
	part := path + "." + newID()
	// A process forked while the file is open for writing would keep it open until its exec, and executing the helper
	// would fail meanwhile.
	syscall.ForkLock.RLock()
	// unsynced: each start compares its content and writes it again
	err := os.WriteFile(part, program, 0o755)
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = os.Chmod(part, 0o755) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
		return "", fmt.Errorf("write the sandbox's helper: %w", err)
	}
	return path, nil
}

// mayExecute reports whether dir's file system allows executing programs.
func mayExecute(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) != nil || fs.Flags&unix.ST_NOEXEC == 0
}
