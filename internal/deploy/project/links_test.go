package project

import (
	"context"
	"io"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/fault"
)

// tree is a commit: its files, and symbolic links as "-> target".
type tree [][2]string

func (c tree) Files(context.Context) (all []fetch.File, err error) {
	for _, f := range c {
		mode := fetch.ModeFile
		if strings.HasPrefix(f[1], "-> ") {
			mode = fetch.ModeSymlink
		}
		all = append(all, fetch.File{Path: f[0], OID: f[1], Mode: mode, Size: int64(len(f[1]))})
	}
	return all, nil
}

func (tree) Read(_ context.Context, files []fetch.File, fn func(fetch.File, io.Reader) error) error {
	for _, f := range files {
		if err := fn(f, strings.NewReader(strings.TrimPrefix(f.OID, "-> "))); err != nil {
			return err
		}
	}
	return nil
}

// A manifest that is a symbolic link is read like npm reads it. A broken link fails the detection.
func TestDetectFollowsLinks(t *testing.T) {
	t.Parallel()
	const vite = `{"devDependencies": {"vite": "7"}, "scripts": {"build": "vite build"}}`
	for name, commit := range map[string]tree{
		"a file":   {{"conf/package.json", vite}, {"index.html", "x"}, {"package.json", "-> conf/package.json"}},
		"a folder": {{"conf/package.json", vite}, {"index.html", "x"}, {"link", "-> conf"}, {"package.json", "-> link/package.json"}},
	} {
		if plan, err := Detect(t.Context(), commit, framework.Overrides{}); err != nil || plan.Framework != "vite" {
			t.Errorf("%s: %q, %v", name, plan.Framework, err)
		}
	}
	for _, to := range []string{"conf/none.json", "../package.json", "/etc/package.json", "package.json"} {
		plan, err := Detect(t.Context(), tree{{"index.html", "x"}, {"package.json", "-> " + to}}, framework.Overrides{})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "package.json can't be read") {
			t.Errorf("%s: %q, %v", to, plan.Framework, err)
		}
	}
}
