package framework

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf16"

	"slipway/internal/platform/fault"
)

// A project whose files are in UTF-16, as PowerShell writes them, is built with a warning.
func TestUTF16(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]binary.AppendByteOrder{"little endian": binary.LittleEndian, "big endian": binary.BigEndian} {
		encode := func(text string) *fstest.MapFile {
			b := order.AppendUint16(nil, 0xfeff)
			for _, u := range utf16.Encode([]rune(text)) {
				b = order.AppendUint16(b, u)
			}
			return &fstest.MapFile{Data: b}
		}
		files, err := FromFS(fstest.MapFS{
			"package.json": encode(`{"name": "é😀", "scripts": {"build": "vite build"}, "devDependencies": {"vite": "^6.0.0"}}`),
			".nvmrc":       encode("v20.11.0\r\n"),
			"index.html":   {Data: []byte("x")},
		})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Detect(files, Overrides{})
		if err != nil || plan.Framework != "vite" || plan.Node != "20.11.0" {
			t.Errorf("%s: %q with Node.js %q, %v", name, plan.Framework, plan.Node, err)
		}
		for _, file := range []string{"package.json", ".nvmrc"} {
			if n := len(slices.DeleteFunc(slices.Clone(plan.Warnings), func(w string) bool {
				return !strings.HasPrefix(
					w,
					file+" is encoded as UTF-16",
				)
			})); n != 1 {
				t.Errorf("%s: %d warnings of %s: %q", name, n, file, plan.Warnings)
			}
		}
	}
	// Text that ends within a code unit or surrogate pair, or that is only a byte order mark, isn't valid JSON.
	for _, text := range []string{"\xff\xfe", "\xfe\xff", "\xff", "\xff\xfe{", "\xff\xfe\x00\xd8"} {
		files, err := FromFS(fstest.MapFS{"package.json": {Data: []byte(text)}, "index.html": {Data: []byte("x")}})
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := Detect(files, Overrides{}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "package.json") {
			t.Errorf("%q: %q, %v", text, plan.Framework, err)
		}
	}
}
