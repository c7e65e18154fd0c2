package edge

import (
	"fmt"
	"strings"
	"testing"
)

// Ranges as RFC 9110, section 14, has them.
func TestRangeRules(t *testing.T) {
	t.Parallel()
	w, _ := site1(t)
	url := "https://blog.sites.test/app.js"
	n := len(script)
	full := w.get(url)
	tag := full.header.Get("Etag")
	for header, want := range map[string]struct {
		status int
		body   string
	}{
		"Bytes=0-3":                              {206, script[:4]}, // units have no case
		"BYTES = 0-3":                            {206, script[:4]},
		"bytes= 0-3 ":                            {206, script[:4]},
		"bytes=,0-3,":                            {206, script[:4]},
		"bytes=-0":                               {416, ""},
		"bytes=99999-":                           {416, ""},
		"bytes=99999-,-0":                        {416, ""},
		"bytes=99999-,0-3":                       {206, script[:4]}, // one is enough
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
		"bytes=0-,0-,0-":                         {200, script}, // more than the file
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
	// What is ignored doesn't cost the visitor the compression.
	w.get(url, "Range: lines=0-3", "Accept-Encoding: br").head(t, "Content-Encoding", "br")
	if a := w.do("HEAD", url, "Range: bytes=0-3", "Accept-Encoding: identity"); a.status != 200 || a.header.Get("Content-Length") != fmt.Sprint(n) || a.header.Get("Content-Range") != "" {
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

// The variant a visitor gets (RFC 9110, section 12.5.3).
func TestThreeEncodings(t *testing.T) {
	t.Parallel()
	w, _ := site1(t)
	for accept, want := range map[string]string{
		"gzip, deflate, br, zstd": "br", "zstd, gzip": "zstd", "gzip": "gzip", "zstd;q=1, br;q=0.9": "zstd", "gzip;q=1.0, zstd;q=0.5": "gzip",
		"*": "br", "br;q=0, *": "zstd", "identity": "", "br;q=0, gzip;q=0, zstd;q=0": "", "identity;q=1, zstd;q=0.5": "", "": "", "compress": "",
	} {
		a := w.get("https://blog.sites.test/app.js", "Accept-Encoding: "+accept)
		a.want(t, 200, "").head(t, "Content-Encoding", want).head(t, "Vary", "Accept-Encoding")
	}
}
