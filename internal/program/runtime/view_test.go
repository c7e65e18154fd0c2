package runtime

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A View must open what a program sees of its release, whatever is mounted over it, and must say where in storage the
// rest is.
func TestView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.spec("view", map[string]string{"index.php": "script", "up/seed": "seed", "content/themes/one/style.css": "of the release", "deep/a/b": "b"})
	s.Trees = []Tree{{Path: "content/themes/two", From: "inner", Bundle: w.bundle(map[string]string{"inner/style.css": "of the tree", "outer": "no"})}}
	s.Files = []File{{Path: "deep/secret", Text: []byte("hunter2")}}
	s.Storage = []Storage{{Path: "up"}, {Path: "content/uploads", Temporary: true}, {Path: "content"}}
	v, err := OpenView(t.Context(), w.c.Bundles, s)
	ok(t, err)
	defer v.Close()
	root := v.files.tree.Name()
	for name, to := range map[string]string{"in": "up/photo", "out": "../../etc/passwd", "loop": "loop", "abs": "/etc/passwd"} {
		ok(t, os.Symlink(to, filepath.Join(root, name)))
	}
	for name, want := range map[string]string{
		"index.php":                    "script",
		"/index.php":                   "script",
		"x/../index.php":               "script",
		"content/themes/two/style.css": "of the tree",
		"content/themes/two/outer":     "",
		"content/themes/one/style.css": "content themes/one/style.css",
		"content/uploads/a/b.jpg":      "content/uploads a/b.jpg",
		"up/seed":                      "up seed",
		"up/../up/../../up/x":          "up x",
		"in":                           "up photo",
		"in/below":                     "up photo/below",
		"deep/a/b":                     "b",
		"deep/secret":                  "", // its existence is visible
		"out":                          "",
		"abs":                          "",
		"loop":                         "",
		"none":                         "",
	} {
		f, stored, err := v.Open(name)
		got := ""
		switch {
		case stored != nil:
			got = stored.Folder + " " + stored.Path
		case err == nil:
			text, err := io.ReadAll(f)
			ok(t, err)
			f.Close()
			got = string(text)
		}
		if got != want {
			t.Errorf("%s opens as %q, %v and not as %q", name, got, err, want)
		}
	}
	if f, _, err := v.Open("deep/secret"); err != nil {
		t.Errorf("a file of the specification: %v", err)
	} else {
		f.Close()
	}
	s.Files = []File{{Path: "up/secret"}}
	if _, err := OpenView(t.Context(), w.c.Bundles, s); err == nil {
		t.Error("a file lies in storage")
	}
	s.Files, s.Bundle = nil, "0000"
	if _, err := OpenView(t.Context(), w.c.Bundles, s); err == nil {
		t.Error("OpenView opened a missing bundle")
	}
}
