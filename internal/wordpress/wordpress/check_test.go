package wordpress

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMinor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     bool
	}{{"6.4.1", "6.4.5", true}, {"6.4", "6.4.1", true}, {"6.4.5", "6.5", false}, {"6.4.5", "7.4.5", false}, {"10.1", "1.1", false}} {
		if got := minor(tt.from, tt.to); got != tt.want {
			t.Errorf("minor(%s, %s) = %v", tt.from, tt.to, got)
		}
	}
}

// Rewriting after an import, a clone or a change of the domain replaces an address in all notations, but not other
// addresses that look similar.
func TestAddressesAreRewritten(t *testing.T) {
	t.Parallel()
	lib, err := filepath.Abs("../core/files/tasks/serialized.php")
	if err != nil {
		t.Fatal(err)
	}
	const script = `require $argv[1]; [$pairs, $texts] = json_decode(stream_get_contents(STDIN), true); $n = 0;
echo json_encode(array_map(fn($t) => replaced($t, addresses($pairs), $n), $texts));`
	for name, tt := range map[string]struct {
		old   []string
		texts map[string]string
	}{
		"a host": {[]string{"https://old.test:8443", "https://new.test"}, map[string]string{
			`https://old.test:8443/a HTTP://OLD.test:8443/b`:                      `https://new.test/a https://new.test/b`,
			`{"u":"https:\/\/old.test:8443\/c\nhttps:\/\/old.test:8443"}`:         `{"u":"https:\/\/new.test\/c\nhttps:\/\/new.test"}`,
			`?to=https%3A%2F%2Fold.test%3A8443%2Fd https%3a%2f%2Fold.test%3a8443`: `?to=https%3A%2F%2Fnew.test%2Fd https%3A%2F%2Fnew.test`,
			`src="//old.test:8443/e"`:                                             `src="//new.test/e"`,
			`https://new.test/f https://old.test/g`:                               `https://new.test/f https://old.test/g`,
			`s:23:"https://old.test:8443/x";`:                                     `s:18:"https://new.test/x";`,
			`https%253A%252F%252Fold.test%253A8443 \\\/\\\/old.test:8443\\\/x`:    `https%253A%252F%252Fnew.test \\\/\\\/new.test\\\/x`,
		}},
		"part of another host": {[]string{"https://shop.example"}, map[string]string{
			`https://shop.example.au/ https://shop.example`:                `https://shop.example.au/ https://new.test`,
			`//shop.example-outlet.com //shop.example:81 //shop.example.`:  `//shop.example-outlet.com //shop.example:81 //new.test.`,
			`https%3A%2F%2Fshop.example%3A81 https:\/\/shop.example.au\/`:  `https%3A%2F%2Fshop.example%3A81 https:\/\/shop.example.au\/`,
			`https://my.shop.example/ ftp://shop.example/ me@shop.example`: `https://my.shop.example/ ftp://shop.example/ me@shop.example`,
		}},
		"WordPress in a folder": {[]string{"https://old.test", "https://old.test/wp"}, map[string]string{
			`https://old.test/wp/wp-content/uploads/a.png https://old.test/about/`: `https://new.test/wp-content/uploads/a.png https://new.test/about/`,
			`//old.test/wp/x https:\/\/old.test\/wp\/y`:                            `//new.test/x https:\/\/new.test\/y`,
			`https://old.test/wpx/ https://old.test/wp`:                            `https://new.test/wpx/ https://new.test`,
			`<img src="/wp/wp-content/uploads/a.png"> a/wp/wp-content/b`:           `<img src="/wp-content/uploads/a.png"> a/wp/wp-content/b`,
		}},
		"the address grows": {[]string{"https://new", "http://new.test"}, map[string]string{
			`https://new/a http://new.test/b https://new.test/c`: `https://new.test/a https://new.test/b https://new.test/c`,
		}},
	} {
		var texts, want, got []string
		for text, becomes := range tt.texts {
			texts, want = append(texts, text), append(want, becomes)
		}
		in, err := json.Marshal([]any{addressPairs(tt.old, "https://new.test"), texts})
		if err != nil {
			t.Fatal(err)
		}
		php := exec.Command("php", "-d", "display_errors=stderr", "-r", script, lib)
		php.Stdin = bytes.NewReader(in)
		out, err := php.Output()
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %s became %s, want %s", name, texts[i], got[i], want[i])
			}
		}
	}
}
