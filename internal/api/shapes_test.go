package api

import "testing"

func TestPlainText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"a \u0026\u0026 b"`: `"a && b"`, `"\\u0026"`: `"\\u0026"`, `"\\\u003c"`: `"\\<"`, `"\u003e\u0041"`: `">\u0041"`, `{}`: `{}`, ``: ``,
	} {
		if got := string(plainText([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
