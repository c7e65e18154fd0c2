package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxBytes   = 1 << 30 // of one tool
	maxEntries = 50_000
)

// errHostile says that a package holds what no tool needs.
var errHostile = errors.New("refused")

// collect copies the tree at from, which a stranger filled and now nobody writes to, to
// a new tree of ours. Only directories, files and links that stay inside arrive; owner,
// mode beyond "may be executed", times and attributes do not.
func collect(ctx context.Context, from, to string) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	defer src.Close()
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	defer dst.Close()

	var links []string
	var entries int
	var bytes int64
	err = fs.WalkDir(src.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("%w: more than %d files", errHostile, maxEntries)
		}
		info, err := src.Lstat(name)
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			return dst.Mkdir(name, 0o755)
		case mode.IsRegular():
			if bytes += info.Size(); bytes > maxBytes {
				return fmt.Errorf("%w: more than %d bytes", errHostile, maxBytes)
			}
			return copyFile(src, dst, name, info)
		case mode.Type() == fs.ModeSymlink:
			target, err := src.Readlink(name)
			if err != nil {
				return err
			}
			if path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
				return fmt.Errorf("%w: the link %q points outside", errHostile, name)
			}
			links = append(links, name)
			return dst.Symlink(target, name)
		default:
			return fmt.Errorf("%w: %q is neither a file nor a directory", errHostile, name)
		}
	})
	if err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	// A child that this process forked while a copy was open for writing holds it until it
	// execs, and the kernel runs no program that somebody may write to (ETXTBSY). Forking
	// is over when its lock is free.
	syscall.ForkLock.Lock()
	//lint:ignore SA2001 a barrier: nothing is guarded
	syscall.ForkLock.Unlock()
	// Each link looked harmless; a chain of them must be, too. os.Root follows none out.
	for _, name := range links {
		if _, err := dst.Stat(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("collect: %w: the link %q: %w", errHostile, name, err)
		}
	}
	return nil
}

func copyFile(src, dst *os.Root, name string, info fs.FileInfo) error {
	in, err := src.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(st, info) {
		return fmt.Errorf("%w: %q changed", errHostile, name)
	}
	perm := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		perm = 0o755
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if n, err := io.Copy(out, io.LimitReader(in, info.Size())); err != nil || n != info.Size() {
		_ = out.Close()
		return cmp.Or(err, fmt.Errorf("%w: %q shrank", errHostile, name))
	}
	if err := out.Chmod(perm); err != nil { // whatever our umask is
		_ = out.Close()
		return err
	}
	return out.Close()
}
