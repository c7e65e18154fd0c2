package edge

import (
	"net/http"
	"time"
)

// defaultBodyTime is how long a request whose body nobody reads may take to send it. Without a
// bound net/http waits for the rest of it before it answers, for ever.
const defaultBodyTime = 10 * time.Second

// bound sets the deadlines of an answer of ours: nothing of the request's body is read,
// so what is not here soon ends the connection, and so does a visitor who reads nothing.
func (e *Edge) bound(w http.ResponseWriter, r *http.Request) {
	deadline(w, 0)
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(e.bodyTime))
	}
}

// deadline gives an answer of size bytes a minute, and more at 16 KiB/s, so that a
// visitor who reads nothing holds nothing for long. It stands until the connection's
// next answer sets its own.
func deadline(w http.ResponseWriter, size int64) {
	// Not every writer has deadlines (tests); those of servers do.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute + time.Duration(size>>14)*time.Second))
}

// closing makes a request whose length was given by Transfer-Encoding the last one of its
// connection (RFC 9112, section 6.1): net/http drops a Content-Length beside it without a
// word, and what a proxy before us took for the next request may be a part of this one.
// So is every request while the process drains.
func (e *Edge) closing(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 3 {
		return // it has no such field; its server tells clients of the end itself
	}
	if e.Draining != nil && e.Draining() || r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close")
	}
}
