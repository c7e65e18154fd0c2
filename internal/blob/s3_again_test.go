package blob

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/blob/s3test"
)

// A gateway's word on an earlier request of the connection is not taken for an answer.
func TestS3AsksAgain(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	var bad atomic.Int32
	st := store(t, faulty(t, s, s.Bucket(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPut && bad.Add(1)%2 == 1 {
			w.Header().Set("Connection", "close")
			http.Error(w, "An error occurred when parsing the HTTP request.", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	}))
	if _, _, err := st.Put(t.Context(), strings.NewReader(strings.Repeat("again ", 100))); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range st.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 || bad.Load() < 2 {
		t.Errorf("%d objects after %d requests", n, bad.Load())
	}
}
