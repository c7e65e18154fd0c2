package compress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// The bytes that a program has written reach the visitor before the response is complete.
func TestAnswersComeAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	from, to := io.Pipe()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: from, ContentLength: -1}
	Answer(r, resp)
	for _, part := range []string{"first", "second"} {
		go func() { _, _ = io.WriteString(to, part) }()
		if part == "first" {
			packed, err := gzip.NewReader(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body = struct {
				io.Reader
				io.Closer
			}{packed, resp.Body}
		}
		got := make([]byte, len(part))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != part {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_ = to.CloseWithError(io.ErrUnexpectedEOF)
	if _, err := io.ReadAll(resp.Body); err != io.ErrUnexpectedEOF {
		t.Errorf("half an answer ends with %v", err)
	}
}
