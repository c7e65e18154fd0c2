package build

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/lazyregexp"
)

// Limits of what is read from a failed build's files to find the cause.
const (
	maxHintFile = 32 << 20
	maxScript   = 64 << 10
)

// manifests lists files in which a merge conflict breaks an installation with unclear errors.
var manifests = []string{
	"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock",
	"bun.lock", ".npmrc",
}

// readable opens a regular file of the checkout, or returns nil.
func readable(root *os.Root, name string) *os.File {
	f, err := openRegular(root, name)
	if err != nil {
		return nil
	}
	return f
}

// conflict returns a manifest or lock file that has conflict markers, or "".
func (b *build) conflict() string {
	root, err := b.checkout()
	if err != nil {
		return ""
	}
	defer root.Close()
	for _, dir := range slices.Compact([]string{b.Plan.Root, ""}) {
		for _, name := range manifests {
			f := readable(root, path.Join(dir, name))
			if f == nil {
				continue
			}
			found := conflicted(io.LimitReader(f, maxHintFile))
			f.Close()
			if found {
				return path.Join(dir, name)
			}
		}
	}
	return ""
}

// conflicted reports whether a line begins with a conflict marker of Git.
func conflicted(r io.Reader) bool {
	in := bufio.NewReaderSize(r, 64<<10)
	begins := true
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return false
		}
		if begins && bytes.HasPrefix(line, []byte("<<<<<<< ")) {
			return true
		}
		begins = !more
	}
}

var reference = lazyregexp.New(`\$\{(\w+)\}`)

// unset returns a variable that the registry's settings use but the build lacks, or "".
func (b *build) unset() string {
	root, err := b.checkout()
	if err != nil {
		return ""
	}
	defer root.Close()
	for _, dir := range slices.Compact([]string{b.Plan.Root, ""}) {
		for _, name := range []string{".npmrc", ".yarnrc.yml"} {
			f := readable(root, path.Join(dir, name))
			if f == nil {
				continue
			}
			text, _ := io.ReadAll(io.LimitReader(f, maxScript))
			f.Close()
			for _, m := range reference.FindAllStringSubmatch(string(text), 100) {
				if !slices.ContainsFunc(b.env, func(kv string) bool { return strings.HasPrefix(kv, m[1]+"=") }) {
					return m[1]
				}
			}
		}
	}
	return ""
}

// windows returns a function that reports whether a script that c calls has Windows line endings.
func (b *build) windows(c framework.Command) func(name string) bool {
	return func(name string) bool {
		root, err := b.checkout()
		if err != nil {
			return false
		}
		defer root.Close()
		for _, dir := range slices.Compact([]string{c.Dir, b.Plan.Root, ""}) {
			at := path.Join(dir, name)
			if path.IsAbs(name) {
				at = strings.TrimPrefix(path.Clean(name), "/build/"+RepoDir+"/")
			}
			if !filepath.IsLocal(at) {
				continue
			}
			f := readable(root, at)
			if f == nil {
				continue
			}
			text, _ := io.ReadAll(io.LimitReader(f, maxScript))
			f.Close()
			first, _, ok := bytes.Cut(text, []byte("\n"))
			return ok && bytes.HasPrefix(first, []byte("#!")) && bytes.HasSuffix(first, []byte("\r"))
		}
		return false
	}
}
