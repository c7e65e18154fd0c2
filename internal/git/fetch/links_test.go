package fetch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/fault"
)

// targets maps links to their targets; an empty target is a file.
type targets map[string]string

func (l targets) Read(_ context.Context, files []File, fn func(File, io.Reader) error) error {
	for _, f := range files {
		if err := fn(f, strings.NewReader(l[f.Path])); err != nil {
			return err
		}
	}
	return nil
}

func (l targets) list() (all []File) {
	for name, to := range l {
		f := File{Path: name, Mode: ModeFile}
		if to != "" {
			f.Mode = ModeSymlink
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// A link is followed to a file or folder of the same commit, through a limited number of other links.
func TestFollow(t *testing.T) {
	t.Parallel()
	tree := targets{
		"index.html": "", "docs/a.html": "", "docs/deep/b.html": "", "docs-old/c.html": "",
		"home":           "index.html",
		"docs/up":        "../index.html",
		"docs/side":      "deep/../a.html",
		"docs/deep/far":  "../../docs/./a.html",
		"latest":         "docs/deep",
		"docs/deep/loop": "../..",
		"through":        "latest/b.html",
		"out":            "../index.html",
		"further":        "docs/../../x/index.html",
		"absolute":       "/index.html",
		"nothing":        "missing.html",
		"self":           "self",
		"one":            "two",
		"two":            "one",
		"chain":          "docs/up",
		"top":            ".",
		"x/y":            "../y",
		"y/x":            "../x",
	}
	for i := range 42 {
		tree[fmt.Sprintf("n%02d", i)] = fmt.Sprintf("n%02d", i+1)
	}
	tree["n42"] = "index.html"
	files, left, err := Follow(t.Context(), tree, tree.list())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Path] = f.Real
	}
	for name, want := range map[string]string{
		"home": "index.html", "docs/up": "index.html", "docs/side": "docs/a.html", "docs/deep/far": "docs/a.html",
		"chain": "index.html", "index.html": "index.html", "through": "docs/deep/b.html",
		"latest/b.html": "docs/deep/b.html", "latest/far": "docs/a.html",
		"n42": "index.html", "n03": "index.html",
		"n02": "", "out": "", "further": "", "absolute": "", "nothing": "", "self": "", "one": "", "top": "", "latest/loop/index.html": "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{"out", "absolute", "nothing", "self", "top", "docs/deep/loop", "x/y"} {
		if !slices.ContainsFunc(left, func(f File) bool { return f.Path == name }) {
			t.Errorf("%s is not among those left", name)
		}
	}
}

// Nested folders of links to folders of links end with an error instead of using up memory.
func TestFollowIsBounded(t *testing.T) {
	t.Parallel()
	tree := targets{"d30/x": ""}
	for i := range 30 {
		for _, side := range []string{"l", "r"} {
			tree[fmt.Sprintf("d%d/%s", i, side)] = fmt.Sprintf("../d%d", i+1)
		}
	}
	if _, _, err := Follow(t.Context(), tree, tree.list()); !fault.Is(err, fault.Invalid) {
		t.Errorf("Follow = %v", err)
	}
}
