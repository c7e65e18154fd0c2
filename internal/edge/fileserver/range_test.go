package fileserver

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
)

// Range requests follow RFC 9110, section 14.
func TestRangeRules(t *testing.T) {
	t.Parallel()
	w := start(t)
	url := "/app.js"
	n := len(script)
	full := w.get(url)
	tag := full.header.Get("Etag")
	for header, want := range map[string]struct {
		status int
		body   string
	}{
		"Bytes=0-3":                              {206, script[:4]}, // units are case-insensitive
		"BYTES = 0-3":                            {206, script[:4]},
		"bytes= 0-3 ":                            {206, script[:4]},
		"bytes=,0-3,":                            {206, script[:4]},
		"bytes=-0":                               {416, ""},
		"bytes=99999-":                           {416, ""},
		"bytes=99999-,-0":                        {416, ""},
		"bytes=99999-,0-3":                       {206, script[:4]}, // one satisfiable range is enough
		"bytes=-99999":                           {206, script},
		"bytes=0-99999":                          {206, script},
		"bytes=0-" + strings.Repeat("9", 30):     {206, script},
		"bytes=" + strings.Repeat("9", 30) + "-": {416, ""},
		"lines=0-3":                              {200, script}, // unknown units are ignored
		"none":                                   {200, script},
		"bytes":                                  {200, script},
		"bytes=":                                 {200, script},
		"bytes=abc":                              {200, script},
		"bytes=3-1":                              {200, script},
		"bytes=--3":                              {200, script},
		"bytes=+1-3":                             {200, script},
		"bytes=0x1-3":                            {200, script},
		"bytes=0-3,x":                            {200, script},
		"bytes=0-,0-,0-":                         {200, script}, // longer than the file
		"bytes=" + strings.Repeat("0-0,", 40) + "1-1": {200, script},
	} {
		a := w.get(url, "Range: "+header, "Accept-Encoding: identity")
		if a.status != want.status || want.status != 416 && a.body != want.body {
			t.Errorf("%q: status %d, %d bytes; want %d, %d bytes", header, a.status, len(a.body), want.status, len(want.body))
		}
		if cr := a.header.Get("Content-Range"); want.status == 416 && cr != fmt.Sprintf("bytes */%d", n) || want.status == 200 && cr != "" {
			t.Errorf("%q: Content-Range %q", header, cr)
		}
		if want.status != 416 && a.header.Get("Etag") != tag {
			t.Errorf("%q: Etag %q", header, a.header.Get("Etag"))
		}
	}
	// An ignored Range header doesn't turn compression off.
	w.get(url, "Range: lines=0-3", "Accept-Encoding: br").head(t, "Content-Encoding", "br")
	if a := w.do("HEAD", url, "Range: bytes=0-3",
		"Accept-Encoding: identity"); a.status != 200 || a.header.Get("Content-Length") != fmt.Sprint(n) ||
		a.header.Get("Content-Range") != "" {
		t.Errorf("HEAD: status %d, length %s", a.status, a.header.Get("Content-Length"))
	}
	for _, other := range []string{`"x"`, "W/" + tag, "Sat, 01 Jan 2028 00:00:00 GMT"} {
		if a := w.get(url, "Range: bytes=0-3", "If-Range: "+other); a.status != 200 || a.body != script {
			t.Errorf("If-Range %s: status %d", other, a.status)
		}
	}
	if a := w.get(url, "Range: bytes=0-3", "If-None-Match: "+tag); a.status != 304 {
		t.Errorf("If-None-Match before Range: status %d", a.status)
	}
	w.get(url, "Range: bytes=0-1,5-6,-2").want(t, 206, "Content-Range: bytes 5-6/"+fmt.Sprint(n))
}

// Ranges work for files in memory and on disk.
func TestRanges(t *testing.T) {
	t.Parallel()
	w := start(t)
	big := strings.Repeat("0123456789", Largest/10+1000)
	for path, text := range map[string]string{"/app.js": script, "/big.bin": big} {
		url := path
		tag := w.get(url).header.Get("Etag")
		n := len(text)
		for header, want := range map[string]string{
			"bytes=0-9":                      text[:10],
			fmt.Sprintf("bytes=%d-", n-5):    text[n-5:],
			"bytes=-7":                       text[n-7:],
			fmt.Sprintf("bytes=7-%d", n+100): text[7:],
		} {
			// A range is of the uncompressed file.
			a := w.get(url, "Range: "+header, "Accept-Encoding: br").head(t, "Content-Encoding", "").head(t, "Etag", tag)
			if a.status != 206 || a.body != want {
				t.Errorf("%s %s: status %d, %d bytes, want %d", path, header, a.status, len(a.body), len(want))
			}
		}
		w.get(url, "Range: bytes=99999999-").want(t, 416, "").head(t, "Content-Range", fmt.Sprintf("bytes */%d", n))
		w.get(url, "Range: bytes=0-3", "If-Range: "+tag).want(t, 206, text[:4])
		if a := w.get(url, "Range: bytes=0-3", `If-Range: "other"`); a.status != 200 || a.body != text {
			t.Errorf("%s: If-Range of another version: status %d, %d bytes", path, a.status, len(a.body))
		}
		if a := w.get(url, "Range: lines=1-2"); a.status != 416 && a.status != 200 {
			t.Errorf("%s: unknown unit: status %d", path, a.status)
		}
		a := w.get(url, "Range: bytes=0-1,5-6").want(t, 206, "")
		_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		parts := multipart.NewReader(strings.NewReader(a.body), params["boundary"])
		for _, want := range []string{text[0:2], text[5:7]} {
			p, err := parts.NextPart()
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(p); string(b) != want {
				t.Errorf("%s: part %q, want %q", path, b, want)
			}
		}
	}
}
