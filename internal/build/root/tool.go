package root

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"slipway/internal/platform/lazyregexp"
)

// Tool returns the root of a program that builds call. It returns nil if the host has the program, or nothing here does. A root
// that a plan asks for by version goes before the host's. The caller must call Release.
func (r *Roots) Tool(ctx context.Context, tool, version string, say func(format string, args ...any)) (*Lease, error) {
	if r == nil {
		return nil, nil
	}
	k, ok := toolKind(tool, version)
	if !ok || (k.minor == 0 || version == "") && onHost(tool) {
		return nil, nil
	}
	if why := r.Why(); why != "" && !r.has(k.Name) {
		if !onHost(tool) {
			say("%s is not installed on this server; %s", tool, why)
		} else {
			say("Hugo %s can't be installed; the build runs with the server's (%s)", version, why)
		}
		return nil, nil
	}
	if want := hugoMinor(version); want > 0 && want != k.minor {
		say("Hugo %s is not available: %s is used", version, k.Title)
	}
	return r.Use(ctx, k, say)
}

var hugoVersion = lazyregexp.New(`^(?:extended_)?v?0\.(\d{1,4})(?:\.|$)`)

// hugoMinor returns 131 of 0.131.0, and 0 if a version can't be understood.
func hugoMinor(version string) int {
	m := hugoVersion.FindStringSubmatch(version)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// toolKind returns the kind that has a program: of Hugo the oldest that isn't older than the version, else the newest.
func toolKind(tool, version string) (k Kind, ok bool) {
	want := hugoMinor(version)
	for _, x := range Catalogue { // newest first
		if slices.Contains(x.tools, tool) && (!ok || want > 0 && x.minor >= want) {
			k, ok = x, true
		}
	}
	return k, ok
}

// onHost reports whether the host has a program where a sandbox finds it. Debian's python3 can't make virtual environments
// without python3-venv, which brings ensurepip.
func onHost(tool string) bool {
	found := slices.ContainsFunc([]string{"/usr/local/bin", "/usr/bin"}, func(dir string) bool {
		st, err := os.Stat(filepath.Join(dir, tool))
		return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
	})
	if tool != "python3" {
		return found
	}
	list, _ := filepath.Glob("/usr/l*/python3*/ensurepip")
	more, _ := filepath.Glob("/usr/local/lib/python3*/ensurepip")
	return found && len(list)+len(more) > 0
}
